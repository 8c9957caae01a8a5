# cython: boundscheck=False, wraparound=False
"""One field's value cut out of the JSON of an object, over csrc/cut.hpp. The contract is in `cut.py`, the pure twin."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.string_view cimport string_view

cdef extern from "cut.hpp" namespace "fastfront" nogil:
    cdef cppclass FieldFinder:
        size_t begin
        size_t end
        cbool find(string_view json, string_view key)


def cut_field(bytes json not None, bytes key not None):
    cdef FieldFinder finder
    cdef const char* data = PyBytes_AS_STRING(json)
    cdef size_t size = len(json)
    if not finder.find(string_view(data, size), string_view(PyBytes_AS_STRING(key), len(key))):
        return None
    cdef bytes around = PyBytes_FromStringAndSize(NULL, size - (finder.end - finder.begin))
    cdef char* out = PyBytes_AS_STRING(around)
    memcpy(out, data, finder.begin)
    memcpy(out + finder.begin, data + finder.end, size - finder.end)
    return around, data[finder.begin : finder.end]
