"""Event framing and the out buffer of a connection. The contract is in `sse.py`, the pure twin."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdio cimport snprintf

import logging
import os

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    int MSG_DONTWAIT

cdef extern from *:
    """
    #ifdef MSG_NOSIGNAL
    #define FASTFRONT_NOSIGNAL MSG_NOSIGNAL
    #else
    #define FASTFRONT_NOSIGNAL 0  /* Python ignores SIGPIPE */
    #endif
    """
    int FASTFRONT_NOSIGNAL


log = logging.getLogger("fastfront.fast")


def escape(str text not None):
    cdef bytes data = text.encode()
    cdef string out
    append_escaped(string_view(<const char*> data, len(data)), out)
    return out.data()[: out.size()]


cdef class Flusher:
    def __cinit__(self):
        self.dirty = []

    def flush(self):
        cdef list dirty = self.dirty
        cdef Outbox outbox
        if not dirty:
            return
        self.dirty = []
        for outbox in dirty:
            try:
                outbox.write()
            except Exception:  # one connection's fault must not reach the others
                log.exception("an outbox's owner failed")


cdef class Outbox:
    def __cinit__(self, Flusher flusher not None, owner, int fd, size_t limit, bint chunked):
        self.flusher = flusher
        self.owner = owner
        self.fd = fd
        self.limit = limit
        self.chunked = chunked
        self.direct = fd >= 0

    def pending(self):
        return self.size()

    def raw(self, bytes data not None):
        if self.closed:
            return
        self.close_chunk()
        self.raw_bytes.append(<const char*> data, len(data))

    def append(self, bytes data not None):
        if self.closed:
            return
        self.body.append(<const char*> data, len(data))
        self.grown()

    def set_direct(self, bint direct):
        self.direct = direct and self.fd >= 0

    def flush(self):
        self.write()

    cdef size_t size(self) noexcept:
        return self.raw_bytes.size() + self.body.size() + self.backlog

    cdef int grown(self) except -1:
        """To be called after each addition to `body`."""
        self.appended += 1
        if self.size() > self.limit:
            self.closed = self.overflowed = True
            self.body.clear()
            self.raw_bytes.clear()
        return self.mark()

    cdef int mark(self) except -1:
        if not self.is_dirty:
            self.is_dirty = True
            self.flusher.dirty.append(self)
        return 0

    cdef int write(self) except -1:
        cdef ssize_t sent = 0
        cdef int error
        self.is_dirty = False
        if self.overflowed:
            self.overflowed = False
            self.owner.outbox_overflow()
            return 0
        self.close_chunk()
        if self.raw_bytes.empty():
            return 0
        if self.direct:
            with nogil:
                sent = c_send(self.fd, self.raw_bytes.data(), self.raw_bytes.size(), MSG_DONTWAIT | FASTFRONT_NOSIGNAL)
            if <size_t> sent == self.raw_bytes.size():
                self.raw_bytes.clear()
                return 0
            error = errno
            if sent < 0 and error != EAGAIN and error != EINTR:
                self.closed = True
                self.raw_bytes.clear()
                self.owner.outbox_error(OSError(error, os.strerror(error)))
                return 0
            if sent < 0:
                sent = 0
            self.direct = False
        rest = self.raw_bytes.data()[sent: self.raw_bytes.size()]
        self.raw_bytes.clear()
        self.owner.outbox_blocked(rest)
        return 0

    cdef void close_chunk(self) noexcept:
        cdef char head[24]
        cdef int size
        if self.body.empty():
            return
        if not self.chunked:
            self.raw_bytes.append(self.body)
        else:
            size = snprintf(head, sizeof(head), "%zx\r\n", self.body.size())
            self.raw_bytes.append(head, size)
            self.raw_bytes.append(self.body)
            self.raw_bytes.append(b"\r\n", 2)
        self.body.clear()
