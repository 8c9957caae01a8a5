"""One output message walked, over csrc/. The contract is in `msgpack.py`, the pure twin."""

from cpython.unicode cimport PyUnicode_DecodeUTF8

from fastfront.errors import WireError
from fastfront.fast.msgpack import Output, Outputs


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
