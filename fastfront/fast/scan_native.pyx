"""The scanner over csrc/scan.hpp. The theory and the contract are in `scan.py`, the pure twin."""

from cpython.unicode cimport PyUnicode_DecodeUTF8


cdef class Patterns:
    def __cinit__(self, patterns):
        cdef bytes data
        self.compiled = new CPatterns()
        self.patterns = tuple(patterns)
        for pattern in self.patterns:
            data = pattern.encode()
            if not data:
                raise ValueError("a pattern must not be empty")
            self.compiled.add(string_view(<const char*> data, len(data)))

    def __dealloc__(self):
        del self.compiled

    def __len__(self):
        return len(self.patterns)


cdef class Scanner:
    def __cinit__(self, Patterns patterns not None):
        self.patterns = patterns  # the scanner points into them
        self._scanner = new CScanner(patterns.compiled)

    def __dealloc__(self):
        del self._scanner

    def feed(self, str text not None, bint armed=True):
        cdef bytes piece = text.encode()
        cdef CMatch match = self._scanner.scan(string_view(<const char*> piece, len(piece)), armed)
        cdef size_t before = self._held.size()
        cdef size_t start, stop, cut
        self._held.append(<const char*> piece, len(piece))
        if match.which >= 0:
            stop = before + match.end
            start = stop - self.patterns.compiled[0][match.which].text.size()
            certain = _text(self._held, 0, start)
            rest = _text(self._held, stop, self._held.size())
            self.reset()
            return certain, match.which, rest
        cut = self._held.size() - self._scanner.held()
        certain = _text(self._held, 0, cut)
        self._held.erase(0, cut)
        return certain, -1, ""

    def finish(self):
        held = _text(self._held, 0, self._held.size())
        self.reset()
        return held

    def reset(self):
        self._scanner.reset()
        self._held.clear()


cdef str _text(const string& data, size_t start, size_t stop):
    return PyUnicode_DecodeUTF8(data.data() + start, stop - start, NULL)
