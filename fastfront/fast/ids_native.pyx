"""Token ids as engines and clients read them, over csrc/ids.hpp. The contract is in `ids.py`, the pure twin."""

from cpython cimport array
from libc.stdint cimport int64_t, uint32_t
from libcpp.string cimport string

from fastfront.fast.ids import json_ids as json_of_any

cdef extern from "ids.hpp" namespace "fastfront" nogil:
    size_t ID_SIZE
    size_t ARRAY_SIZE
    size_t JSON_ID_SIZE
    char* write_array(char* to, uint32_t count)
    char* write_id(char* to, uint32_t value)
    char* write_json_ids(char* to, const uint32_t* ids, size_t count)
    char* write_packed_ids(char* to, const uint32_t* ids, size_t count, uint32_t limit)


cdef bint is_id_array(object ids):
    return type(ids) is array.array and ids.typecode == "I" and ids.itemsize == 4


def pack_ids(ids, uint32_t limit):
    cdef bint packed = is_id_array(ids)
    cdef list items = None if packed else ids if type(ids) is list else list(ids)
    cdef size_t count = len(ids) if packed else len(items)
    cdef string out
    out.resize(ARRAY_SIZE + ID_SIZE * count)
    cdef char* at
    if packed:
        at = write_packed_ids(&out[0], (<array.array> ids).data.as_uints, count, limit)
        return None if at == NULL else out.data()[: at - out.data()]
    at = write_array(&out[0], count)
    cdef int64_t number
    cdef object value
    try:
        for value in items:
            if type(value) is not int:
                return None
            number = value
            if number < 0 or number >= limit:
                return None
            at = write_id(at, <uint32_t> number)
    except OverflowError:
        return None
    return out.data()[: at - out.data()]


def json_ids(ids):
    if not is_id_array(ids):
        return json_of_any(ids)
    cdef size_t count = len(ids)
    cdef string out
    out.resize(2 + JSON_ID_SIZE * count)
    cdef char* end = write_json_ids(&out[0], (<array.array> ids).data.as_uints, count)
    return out.data()[: end - out.data()]
