from libc.stdint cimport int64_t, uint32_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from fastfront.fast.detok_native cimport string_view

cdef extern from "outputs.hpp" namespace "fastfront" nogil:
    cdef cppclass COutput "fastfront::Output":
        string_view request_id
        vector[int64_t] token_ids
        int finish_reason
        cbool has_stop_id
        int64_t stop_id
        cbool has_stop_text
        string_view stop_text
        string_view raw

    cdef cppclass COutputWalker "fastfront::OutputWalker":
        COutputWalker(string_view message)
        int64_t engine_index()
        const char* error()
        size_t offset()
        cbool next(COutput& out) except +
        cbool says_nothing_more()
        string_view field(uint32_t place)
        int64_t integer(string_view piece)
        void end()

cdef object stop_reason(const COutput& output)
cdef bytes raw_bytes(string_view data)
cdef tuple rest_of(COutputWalker* walker)
