# cython: boundscheck=False, wraparound=False
"""The per-token path, from an output message to bytes in an outbox. The contract is in `stream.py`, the pure twin.

From `Router.feed` down to `Stream.write_event` no Python object is made for a token: ids, text and events live in C++
buffers, and a stream is found by the slot number in its request id. Python objects appear only with a Step.

LIFETIME: a Stream's decoder, scanner and stretch point into its Vocab, Patterns and Nest, which the Stream keeps alive.
An Output's views point into the message that is being walked.
"""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

import secrets

from fastfront.fast.stream import Parsed, Step
from fastfront.fast.stretch import Stretch  # no-cython-lint: the same record, for who imports this twin

from fastfront.fast.detok_native cimport CDecoder, Vocab, read_ids, string_view
from fastfront.fast.msgpack_native cimport COutput, COutputWalker, raw_bytes, rest_of, stop_reason
from fastfront.fast.nest_native cimport CNest, Nest
from fastfront.fast.scan_native cimport CMatch, CPatterns, CScanner, Patterns
from fastfront.fast.sse_native cimport Outbox, append_escaped

cdef extern from "stretch.hpp" namespace "fastfront" nogil:
    cdef cppclass CStretch "fastfront::Stretch":
        CStretch(const CPatterns* markers, string_view trail, cbool once, CNest* nest, string_view lead,
                 string_view blank) except +
        cbool feed(string_view piece) except +
        string_view certain()
        void taken(size_t size)
        const string& end()


cdef extern from "<optional>" namespace "std" nogil:
    cdef cppclass COptionalView "std::optional<std::string_view>":
        cbool has_value()
        string_view& value()

cdef extern from "zmtp.hpp" namespace "fastfront" nogil:
    COptionalView next_message(string_view data, size_t& at)


cdef enum:
    STOP = 0  # the wire's finish_reason for an end token or a stop token id
    ID_DIGITS = 12  # at the end of a request id: 6 hex digits of the slot, 6 of a running number
    SLOT_DIGITS = 6
    MAX_SLOTS = 1 << 24


cdef class Stream:
    cdef readonly object owner
    cdef readonly str request_id
    cdef readonly Py_ssize_t tokens
    cdef readonly double first_at
    cdef readonly double last_at
    cdef readonly Py_ssize_t given

    cdef string wire_id
    cdef Vocab vocab
    cdef Patterns stop
    cdef CDecoder* decoder
    cdef CScanner* scanner
    cdef bint include_stop
    cdef Py_ssize_t min_tokens
    cdef bint keep_ids
    cdef vector[int64_t] ids
    cdef Py_ssize_t interval
    cdef bint steps
    cdef Py_ssize_t told  # tokens at the last event, or at the last step that was due

    cdef Outbox outbox
    cdef bytes opening
    cdef bint shown
    cdef string head
    cdef string tail
    cdef string after_total
    cdef string after_completion
    cdef bint with_usage
    cdef Py_ssize_t prompt_tokens

    cdef string text  # decoded and not delivered; its last `held` bytes may still become a stop string
    cdef size_t held

    cdef CStretch* stretch  # if there is one, what is certain of the text has gone into it
    cdef Patterns markers
    cdef Nest nest
    cdef bint quoted
    cdef object began

    def __cinit__(self, owner, Vocab vocab not None, *, bint skip_special=True, prompt=(), Patterns stop=None,
                  bint include_stop=False, Py_ssize_t min_tokens=0, bint keep_ids=False, Py_ssize_t interval=1,
                  bint steps=False):
        cdef vector[int64_t] before
        self.owner = owner
        self.request_id = ""
        self.vocab = vocab
        self.stop = stop
        self.decoder = new CDecoder(vocab.vocab, skip_special)
        if prompt:
            read_ids(prompt, before)
            self.decoder.seed(before)
        if stop is not None:
            self.scanner = new CScanner(stop.compiled)
        self.include_stop = include_stop
        self.min_tokens = min_tokens
        self.keep_ids = keep_ids
        self.interval = interval
        self.steps = steps

    def __dealloc__(self):
        del self.decoder
        del self.scanner
        del self.stretch

    @property
    def token_ids(self):
        return list(self.ids) if self.keep_ids else None

    def to_outbox(self, Outbox outbox not None, bytes opening not None, bytes head not None, tail, prompt_tokens):
        self.frame(head, tail)
        self.outbox = outbox
        self.opening = opening or None
        self.prompt_tokens = prompt_tokens

    def begin_stretch(self, stretch not None, frame):
        cdef bytes begin = stretch.begin.encode()
        cdef bytes trail = edge(stretch.trail)
        cdef bytes lead = edge(stretch.lead)
        cdef bytes blank = edge(stretch.blank)
        cdef const CPatterns* markers = NULL
        cdef CNest* nest = NULL
        if self.stretch is not NULL:
            raise ValueError("the stretch before is not over")
        if frame is None:
            self.shown = False
        else:
            self.frame(frame[0], frame[1])
        self.markers, self.nest, self.quoted = stretch.markers, stretch.nest, stretch.quoted
        self.began = stretch.began
        if self.markers is not None:
            markers = self.markers.compiled
        if self.nest is not None:
            nest = self.nest.nest
        self.stretch = new CStretch(markers, view(trail), stretch.once, nest, view(lead), view(blank))
        self.stretch.feed(view(begin))

    cdef int frame(self, bytes head, tail) except -1:
        if len(tail) not in (1, 3):
            raise ValueError(f"a tail has 1 or 3 pieces, not {len(tail)}")
        self.shown = True
        self.head = head
        self.tail = tail[0]
        self.with_usage = len(tail) == 3
        if self.with_usage:
            self.after_total, self.after_completion = tail[1], tail[2]
        return 0

    def release(self):
        self.owner = None
        self.outbox = None

    cdef object take(self, COutput& output, double now):
        """Takes one engine step; a Step where Python must go on, else None."""
        cdef int matched
        cdef int finish = output.finish_reason
        cdef bint due
        if self.first_at == 0.0:
            self.first_at = now
        self.last_at = now
        if self.opening is not None:
            if self.outbox is not None:
                self.outbox.append(self.opening)
            self.opening = None
        matched = self.decode(output, finish == STOP and not self.include_stop)
        if matched >= 0:
            return self.step(STOP, self.stop.patterns[matched], finish >= 0, output, True)
        if finish >= 0:
            self.held = 0
            self.decoder.finish(self.text)
            return self.step(finish, stop_reason(output), True, output, True)
        due = self.is_due()
        if self.stretch is not NULL and not self.feed_stretch():
            self.end_stretch()
        if self.stretch is not NULL:
            if due and self.outbox is not None:
                self.write_stretch()
            return self.bare_step(output)
        if self.steps:
            if due:
                self.told = self.tokens
            elif output.raw.empty():
                return None
            return self.step(-1, None, False, output, due)
        if due and self.outbox is not None:
            self.text.erase(0, self.write_event(string_view(self.text.data(), self.text.size() - self.held)))
        return self.bare_step(output)

    cdef bint is_due(self) noexcept:
        return self.told == 0 or self.tokens - self.told >= self.interval

    cdef int decode(self, COutput& output, bint hide_last) except -2:
        """Adds the text of the ids; the number of the stop string that ended it, or -1."""
        cdef size_t count = output.token_ids.size()
        cdef size_t at, before, start
        cdef int64_t token_id
        cdef CMatch match
        for at in range(count):
            token_id = output.token_ids[at]
            self.tokens += 1
            if self.keep_ids:
                self.ids.push_back(token_id)
            if hide_last and at == count - 1:
                break
            before = self.text.size()
            self.decoder.feed(token_id, self.text)
            if self.scanner is NULL or self.text.size() == before:
                continue
            match = self.scanner.scan(
                string_view(self.text.data() + before, self.text.size() - before), self.tokens > self.min_tokens)
            if match.which >= 0:
                start = before + match.end
                if not self.include_stop:
                    start -= self.stop.compiled[0][match.which].text.size()
                self.text.resize(start)
                self.held = 0
                return match.which
            self.held = self.scanner.held()
        return -1

    cdef object step(self, int finish, stop_reason, bint engine_done, COutput& output, bint due):
        if self.stretch is not NULL:
            self.end_stretch()
        self.given += 1
        ids = ()
        if self.steps and self.keep_ids:
            ids = list(self.ids)
            self.ids.clear()
        return Step(self, self.take_text(), finish, stop_reason, engine_done, raw_bytes(output.raw), ids, due)

    cdef object bare_step(self, COutput& output):
        """For fields that are seldom there, of an output whose text has its own way."""
        if output.raw.empty():
            return None
        self.given += 1
        return Step(self, "", -1, None, False, raw_bytes(output.raw))

    cdef str take_text(self):
        """All that is certain."""
        cdef size_t ready = self.text.size() - self.held
        cdef str text = PyUnicode_DecodeUTF8(self.text.data(), ready, NULL)
        self.text.erase(0, ready)
        return text

    cdef bint feed_stretch(self) except -1:
        """Moves all that is certain into the stretch; whether that goes on."""
        cdef size_t ready = self.text.size() - self.held
        cdef bint goes_on = self.stretch.feed(string_view(self.text.data(), ready))
        self.text.erase(0, ready)
        return goes_on

    cdef int write_stretch(self) except -1:
        cdef size_t size = self.write_event(self.stretch.certain())
        self.stretch.taken(size)
        if size > 0 and self.began is not None:
            self.began()
            self.began = None
        return 0

    cdef int end_stretch(self) except -1:
        self.text.insert(0, self.stretch.end())
        del self.stretch
        self.stretch = NULL
        self.quoted = False
        self.began = None
        return 0

    cdef Py_ssize_t write_event(self, string_view text) except -1:
        """How much of the text has gone: all."""
        cdef string* body
        cdef string once
        if text.empty():
            return 0
        self.told = self.tokens
        if self.outbox.closed or not self.shown:
            return text.size()
        body = &self.outbox.body
        body.append(self.head)
        if self.quoted:
            append_escaped(text, once)
            append_escaped(string_view(once.data(), once.size()), body[0])
        else:
            append_escaped(text, body[0])
        body.append(self.tail)
        if self.with_usage:
            append_number(body, self.prompt_tokens + self.tokens)
            body.append(self.after_total)
            append_number(body, self.tokens)
            body.append(self.after_completion)
        self.outbox.grown()
        return text.size()


cdef bytes edge(str characters):
    if not characters.isascii():
        raise ValueError(f"the edges of a stretch are ASCII characters, not {characters!r}")
    return characters.encode()


cdef string_view view(bytes data) noexcept:
    return string_view(<const char*> data, len(data))


cdef bint is_array(string_view message) noexcept:
    """Whether msgpack's array begins here, as in all that engines say but for their last word."""
    cdef unsigned char first = 0 if message.empty() else <unsigned char> message.data()[0]
    return first & 0xF0 == 0x90 or first == 0xDC or first == 0xDD


cdef void append_number(string* out, Py_ssize_t number):
    cdef char digits[24]
    cdef int size = snprintf(digits, sizeof(digits), "%zd", number)
    out.append(digits, size)


cdef class Router:
    cdef readonly Py_ssize_t dropped
    cdef readonly Py_ssize_t tokens
    cdef list slots
    cdef list free
    cdef int number
    cdef COutput output  # the one that is being read

    def __cinit__(self):
        self.slots = []
        self.free = []
        self.number = secrets.randbits(24)

    def __len__(self):
        return len(self.slots) - len(self.free)

    def open(self, Stream stream not None, str public_id not None):
        cdef Py_ssize_t slot
        if self.free:
            slot = self.free.pop()
            self.slots[slot] = stream
        else:
            slot = len(self.slots)
            if slot >= MAX_SLOTS:
                raise OverflowError("too many open streams")
            self.slots.append(stream)
        self.number = (self.number + 1) & 0xFFFFFF
        request_id = f"{public_id}-{slot:06x}{self.number:06x}"
        stream.request_id = request_id
        stream.wire_id = request_id.encode()
        return request_id

    def close(self, str request_id not None):
        cdef bytes data = request_id.encode()
        self.forget(view(data))

    def streams(self):
        return [stream for stream in self.slots if stream is not None]

    def feed(self, bytes message not None, double now):
        return self.feed_one(view(message), now, True)

    def feed_read(self, bytes data not None, size_t at, double now):
        cdef string_view whole = view(data)
        cdef COptionalView message
        cdef size_t end = at
        parsed = None
        while parsed is None:
            message = next_message(whole, end)
            if not message.has_value() or not is_array(message.value()):
                break
            at = end
            parsed = self.feed_one(message.value(), now, False)
        return at, parsed

    cdef object feed_one(self, string_view message, double now, bint always):
        """What of the message is left for Python; None where that is nothing, unless it is `always` asked for."""
        cdef COutputWalker* walker = new COutputWalker(message)
        cdef Stream stream
        cdef Py_ssize_t slot, before
        cdef list steps = None
        try:
            while walker.next(self.output):
                slot = self.find(self.output.request_id)
                if slot < 0:
                    self.dropped += 1
                    continue
                stream = <Stream> self.slots[slot]
                before = stream.tokens
                step = stream.take(self.output, now)
                self.tokens += stream.tokens - before
                if step is not None:
                    if step.finish_reason >= 0:
                        self.forget(self.output.request_id)
                    if steps is None:
                        steps = []
                    steps.append(step)
            if steps is None and not always and walker.says_nothing_more():
                return None
            return Parsed(walker.engine_index(), steps or [], *rest_of(walker))
        finally:
            del walker

    cdef Py_ssize_t find(self, string_view request_id):
        """The slot of an open stream, or -1."""
        cdef const char* digits = request_id.data() + request_id.size() - ID_DIGITS
        cdef Py_ssize_t slot = 0
        cdef int at
        cdef char digit
        cdef Stream stream
        if request_id.size() < ID_DIGITS:
            return -1
        for at in range(SLOT_DIGITS):
            digit = digits[at]
            if 48 <= digit <= 57:
                slot = slot << 4 | (digit - 48)
            elif 97 <= digit <= 102:
                slot = slot << 4 | (digit - 87)
            else:
                return -1
        if slot >= len(self.slots) or self.slots[slot] is None:
            return -1
        stream = <Stream> self.slots[slot]
        if stream.wire_id.size() != request_id.size():
            return -1
        return slot if memcmp(stream.wire_id.data(), request_id.data(), request_id.size()) == 0 else -1

    cdef int forget(self, string_view request_id) except -1:
        cdef Py_ssize_t slot = self.find(request_id)
        if slot >= 0:
            self.slots[slot] = None
            self.free.append(slot)
        return 0
