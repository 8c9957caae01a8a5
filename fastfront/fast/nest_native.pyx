# cython: boundscheck=False, wraparound=False
"""The end of a JSON value, over csrc/nest.hpp. The contract is in `nest.py`, the pure twin."""


cdef class Nest:
    def __cinit__(self, str opening not None):
        if opening not in ('"', "{", "["):
            raise ValueError(f"no JSON string, object or array begins with {opening!r}")
        self.nest = new CNest(<char> ord(opening))

    def __dealloc__(self):
        del self.nest

    @property
    def done(self):
        return self.nest.done()

    def take(self, str text not None, Py_ssize_t at):
        cdef Py_ssize_t size = len(text)
        while at < size and not self.nest.done():
            self.nest.feed(text[at])
            at += 1
        return at
