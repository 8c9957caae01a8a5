from libcpp cimport bool as cbool
from libcpp.string cimport string

from fastfront.fast.detok_native cimport string_view

cdef extern from "scan.hpp" namespace "fastfront" nogil:
    cdef cppclass CMatch "fastfront::Match":
        int which
        size_t end

    cdef cppclass CPattern "fastfront::Pattern":
        string text

    cdef cppclass CPatterns "fastfront::Patterns":
        CPatterns()
        void add(string_view pattern) except +
        size_t size()
        const CPattern& operator[](size_t which)

    cdef cppclass CScanner "fastfront::Scanner":
        CScanner(const CPatterns* patterns)
        CMatch scan(string_view piece, cbool armed)
        size_t held()
        void reset()

cdef class Patterns:
    cdef readonly tuple patterns
    cdef CPatterns* compiled

cdef class Scanner:
    cdef readonly Patterns patterns
    cdef CScanner* _scanner
    cdef string _held
