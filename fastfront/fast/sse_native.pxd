from libcpp.string cimport string

from fastfront.fast.detok_native cimport string_view

cdef extern from "json.hpp" namespace "fastfront" nogil:
    void append_escaped(string_view text, string& out) except +

cdef class Flusher:
    cdef list dirty

cdef class Outbox:
    cdef readonly Flusher flusher
    cdef readonly object owner
    cdef readonly int fd
    cdef readonly size_t limit
    cdef readonly bint chunked
    cdef readonly bint direct
    cdef public size_t backlog
    cdef readonly bint closed
    cdef readonly size_t appended
    cdef string raw_bytes
    cdef string body
    cdef bint is_dirty
    cdef bint overflowed

    cdef size_t size(self) noexcept
    cdef int grown(self) except -1
    cdef int mark(self) except -1
    cdef int write(self) except -1
    cdef void close_chunk(self) noexcept
