"""Incremental detokenization over csrc/detok.hpp. The theory and the contract are in `detok.py`, the pure twin."""

from cpython.unicode cimport PyUnicode_DecodeUTF8


cdef enum:
    DEFINED = 1
    SPECIAL = 2
    BYTE = 4


cdef void read_ids(object ids, vector[int64_t]& out) except *:
    """Appends token ids; one that does not fit is as unknown as -1."""
    cdef object token_id
    for token_id in ids:
        try:
            out.push_back(token_id)
        except OverflowError:
            out.push_back(-1)


cdef class Vocab:
    def __cinit__(self, pieces, special=(), byte_ids=(), int strip_left=0, bint byte_level=True):
        cdef bytes data
        cdef uint8_t flags
        self.vocab = new CVocab(byte_level, strip_left)
        special, byte_ids = frozenset(special), frozenset(byte_ids)
        for token_id, piece in enumerate(pieces):
            if piece is None:
                self.vocab.add(string_view(), 0)
                continue
            data = piece
            flags = DEFINED
            if token_id in special:
                flags |= SPECIAL
            if token_id in byte_ids:
                flags |= BYTE
            self.vocab.add(string_view(<const char*> data, len(data)), flags)

    def __dealloc__(self):
        del self.vocab

    def __len__(self):
        return self.vocab.size()

    def piece(self, token_id):
        if not 0 <= token_id < <object> self.vocab.size() or not self.vocab.flags(token_id):
            return None
        cdef string_view data = self.vocab.piece(token_id)
        return data.data()[: data.size()]


cdef class Decoder:
    def __cinit__(self, Vocab vocab not None, bint skip_special=True, prompt=()):
        cdef vector[int64_t] ids
        self._vocab = vocab  # the decoder points into it
        self._decoder = new CDecoder(vocab.vocab, skip_special)
        if prompt:
            read_ids(prompt, ids)
            self._decoder.seed(ids)

    def __dealloc__(self):
        del self._decoder

    def feed(self, ids):
        cdef vector[int64_t] numbers
        cdef string out
        cdef int64_t token_id
        read_ids(ids, numbers)
        for token_id in numbers:
            self._decoder.feed(token_id, out)
        return PyUnicode_DecodeUTF8(out.data(), out.size(), NULL)

    def finish(self):
        cdef string out
        self._decoder.finish(out)
        return PyUnicode_DecodeUTF8(out.data(), out.size(), NULL)
