from libc.stdint cimport uint32_t
from libcpp cimport bool as cbool

cdef extern from "nest.hpp" namespace "fastfront" nogil:
    cdef cppclass CNest "fastfront::Nest":
        CNest(char opening)
        cbool done()
        void feed(uint32_t unit)

cdef class Nest:
    cdef CNest* nest
