from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.string_view cimport string_view

cdef extern from "Python.h":
    str PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    void* PyUnicode_DATA(object text)

cdef extern from "head.hpp" namespace "fastfront" nogil:
    cdef cppclass CField "fastfront::Head::Field":
        string_view name
        string_view value

    cdef cppclass CHead "fastfront::Head":
        string_view method
        string_view path
        string_view query
        string_view target
        CField fields[64]
        size_t count
        size_t size
        uint64_t length
        cbool keep_alive
        cbool read(string_view text)

cdef class HeadReader:
    cdef CHead head
    cdef size_t max_size
    cdef size_t max_count
    cdef uint64_t max_length
