from libc.stdint cimport int64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

cdef extern from "<string_view>" namespace "std" nogil:
    cdef cppclass string_view:
        string_view()
        string_view(const char*, size_t)
        const char* data()
        size_t size()
        cbool empty()

cdef extern from "detok.hpp" namespace "fastfront" nogil:
    cdef cppclass CVocab "fastfront::Vocab":
        CVocab(cbool byte_level, int strip_left)
        void add(string_view piece, uint8_t flags) except +
        size_t size()
        uint8_t flags(int64_t token_id)
        string_view piece(int64_t token_id)

    cdef cppclass CDecoder "fastfront::Decoder":
        CDecoder(const CVocab* vocab, cbool skip_special)
        void seed(const vector[int64_t]& prompt) except +
        void feed(int64_t token_id, string& out) except +
        void finish(string& out) except +

cdef class Vocab:
    cdef CVocab* vocab

cdef class Decoder:
    cdef Vocab _vocab
    cdef CDecoder* _decoder

cdef void read_ids(object ids, vector[int64_t]& out) except *
