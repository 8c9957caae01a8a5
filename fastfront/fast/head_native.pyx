# cython: boundscheck=False, wraparound=False
"""The heads of plain requests, over csrc/head.hpp. The contract is in `head.py`, the pure twin."""

from libc.string cimport memcpy


cdef class HeadReader:
    def __cinit__(self, size_t max_size, size_t max_count, uint64_t max_length):
        self.max_size = max_size
        self.max_count = max_count
        self.max_length = max_length

    def read(self, bytes data not None, Py_ssize_t at):
        cdef CHead* head = &self.head
        cdef size_t i
        cdef CField* field
        cdef dict headers
        cdef str path
        if not head.read(string_view(<const char*> data + at, len(data) - at)):
            return None
        if head.size > self.max_size or head.count > self.max_count or head.length > self.max_length:
            return None
        headers = {}
        for i in range(head.count):
            field = &head.fields[i]
            headers[lower(field.name)] = text(field.value)
        if <size_t> len(headers) != head.count:
            return None  # a header is there twice
        path = text(head.path)
        return (
            text(head.method),
            path,
            text(head.query),
            headers,
            path if head.target.size() == head.path.size() else text(head.target),
            head.keep_alive,
            at + head.size,
            head.length,
        )


cdef str text(string_view of):
    """Of ASCII, as all of a plain head is."""
    cdef str made = PyUnicode_New(of.size(), 127)
    memcpy(PyUnicode_DATA(made), of.data(), of.size())
    return made


cdef str lower(string_view of):
    cdef str made = PyUnicode_New(of.size(), 127)
    cdef char* out = <char*> PyUnicode_DATA(made)
    cdef char c
    for i in range(<Py_ssize_t> of.size()):
        c = of.data()[i]
        out[i] = c + 32 if c"A" <= c <= c"Z" else c
    return made
