"""One request packed, one output message walked, over csrc/. The contract is in `msgpack.py`, the pure twin."""

from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint64_t
from libcpp.string cimport string

import msgspec

from fastfront.errors import WireError
from fastfront.fast.msgpack import Output, Outputs

cdef extern from "msgpack.hpp" namespace "fastfront" nogil:
    void write_unsigned(string& out, uint64_t value) except +
    void write_array(string& out, size_t count) except +

cdef object _encode = msgspec.msgpack.Encoder().encode


def pack_add(request, client_index, current_wave):
    cdef string out
    cdef list ids = request.prompt_token_ids
    cdef object token_id
    write_array(out, 22)
    _append(out, request.request_id)
    out.reserve(out.size() + 5 * len(ids) + 1024)
    write_array(out, len(ids))
    for token_id in ids:
        write_unsigned(out, <uint64_t> token_id)
    # the other fields in one go, without the array header that msgspec puts before them
    cdef bytes rest = _encode((
        None,  # mm_features
        request.sampling,
        None,  # pooling_params
        request.arrival_time,
        None,  # lora_request
        request.cache_salt,
        request.data_parallel_rank,
        None,  # prompt_embeds
        None,  # prompt_is_token_ids
        client_index,
        current_wave,
        request.priority,
        request.trace_headers,
        False,  # resumable
        request.external_req_id,
    ))
    cdef bytes tail = _encode((
        request.reasoning_ended,
        request.reasoning_parser_kwargs,
        False,  # abort_immediately
        request.session_id,
        None,  # kv_hints
    ))
    out.append(<const char*> rest + 1, len(rest) - 1)
    out.append(<const char*> tail + 1, len(tail) - 1)
    return out.data()[: out.size()]


def first_wrong_id(ids, limit):
    cdef Py_ssize_t place = 0
    cdef long long most = limit
    cdef long long number
    cdef int overflow
    cdef object value
    for value in ids:
        if type(value) is not int:
            return place
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow or number < 0 or number >= most:
            return place
        place += 1
    return -1


cdef int _append(string& out, object value) except -1:
    cdef bytes data = _encode(value)
    out.append(<const char*> data, len(data))
    return 0


def walk_outputs(bytes message not None):
    cdef COutput output
    cdef COutputWalker* walker = new COutputWalker(string_view(<const char*> message, len(message)))
    outputs = []
    try:
        while walker.next(output):
            request_id = PyUnicode_DecodeUTF8(output.request_id.data(), output.request_id.size(), "replace")
            outputs.append(Output(
                request_id, list(output.token_ids), output.finish_reason, stop_reason(output), raw_bytes(output.raw)))
        return Outputs(walker.engine_index(), outputs, *rest_of(walker))
    finally:
        del walker


cdef object stop_reason(const COutput& output):
    if output.has_stop_text:
        return PyUnicode_DecodeUTF8(output.stop_text.data(), output.stop_text.size(), "replace")
    return output.stop_id if output.has_stop_id else None


cdef bytes raw_bytes(string_view data):
    return None if data.empty() else data.data()[: data.size()]


cdef tuple rest_of(COutputWalker* walker):
    """(stats, utility, finished_requests, wave_complete, start_wave, error) after the last output."""
    cdef string_view stats = walker.field(2)
    walker.field(3)  # the engine's clock
    cdef string_view utility = walker.field(4)
    cdef string_view finished = walker.field(5)
    cdef string_view complete = walker.field(6)
    cdef string_view start = walker.field(7)
    walker.field(8)  # the weights' version
    waves = [None if wave.empty() else walker.integer(wave) for wave in (complete, start)]
    walker.end()
    if walker.error() != NULL:
        what = (<bytes> walker.error()).decode()
        error = WireError(f"malformed output message: {what}", offset=walker.offset())
        return None, None, None, None, None, error
    return raw_bytes(stats), raw_bytes(utility), raw_bytes(finished), waves[0], waves[1], None
