r"""Pages of an XRANGE reply: where each word lies, before anything is made of it.

    *2\r\n              a page of two entries
    *2\r\n              an entry:
    $3\r\n5-1\r\n         its ID
    *4\r\n                its words, field and value in turn:
    $3\r\ndev\r\n
    $3\r\nd12\r\n
    ...

scan() finds the whole entries among the bytes that have arrived and takes a note of each:

    | words u32 | at u32  n u32 | at u32  n u32 | ...     little-endian; the places are those in the inbox
      ID included   the ID        its words

So an entry is never half decoded, and the reader knows the last ID of a page, and can ask for the next
page, before this one is decoded.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from headrace import mem
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.errors import CommandError, ProtocolError
from headrace.limits import ENTRY_BYTES_MAX, REQUEST_ARGUMENTS_MAX

CR = cython.declare(cython.uchar, 13)
LF = cython.declare(cython.uchar, 10)
ARRAY = cython.declare(cython.uchar, 42)  # *
BULK = cython.declare(cython.uchar, 36)  # $
DASH = cython.declare(cython.uchar, 45)
TWO = cython.declare(cython.uchar, 50)
SHORT_RECORD_BYTES = cython.declare(cython.Py_ssize_t, 4 + 8 * 100)  # the note of a hundred words
INCOMPLETE = cython.declare(cython.longlong, -2)  # the bytes end before the line does
UNKNOWN = cython.declare(cython.longlong, -1)  # the page's head has not arrived
DIGITS_MAX = cython.declare(cython.Py_ssize_t, 10)  # of a length or a count
ENTRY_MAX = cython.declare(cython.longlong, ENTRY_BYTES_MAX)
INBOX_MAX = cython.declare(cython.longlong, ENTRY_BYTES_MAX + (1 << 28))  # an entry and the lines between
COUNT_MAX = cython.declare(cython.longlong, REQUEST_ARGUMENTS_MAX)


@cython.final
@cython.cclass
class ReplyPageTokenizer:
    """Bytes of pages in, notes of entries out.

    For each page: page(anchor), then feed() or receive(), and scan(), until that says the page is whole.
    Sooner or later a decoder must use up the notes, or skip(). Hostile bytes raise ProtocolError, an error
    that the server answers is raised as CommandError.

    entries      how many the page has, once its head is there
    anchor_lost  the page should have begun with the anchor and did not, but with:
    first_id     the ID it begins with, if it has an entry
    last_id      of the last entry noted
    """

    buffer: GrowableBuffer  # bytes received; those before `at` are noted
    scanned: cython.Py_ssize_t
    cursor: cython.Py_ssize_t
    token_index: GrowableBuffer
    next_record: cython.Py_ssize_t  # notes before this one are used up
    entries_left: cython.longlong  # entries of the page yet to come
    entry_count: cython.longlong
    anchor: bytes
    anchor_lost: cython.bint
    first_id: bytes  # noted only when the anchor is lost
    last_id: bytes

    def __init__(self) -> None:
        self.buffer = GrowableBuffer(1 << 16)
        self.token_index = GrowableBuffer(1 << 12)
        self.first_id = b""
        self.last_id = b""
        self.reset()

    @cython.ccall
    def begin_page(self, anchor: bytes) -> cython.void:
        """A new page follows. Its first entry is to be the anchor, and is left out; b"" for no anchor."""
        self.anchor = anchor
        self.anchor_lost = False
        self.first_id = b""
        self.entries_left = UNKNOWN
        self.entry_count = 0

    @cython.ccall
    def reset(self) -> cython.void:
        """The connection is a new one: forget what the old one left."""
        self.buffer.used = 0
        self.token_index.used = 0
        self.scanned = 0
        self.next_record = 0
        self.cursor = 0
        self.begin_page(b"")

    @cython.ccall
    def feed(self, data: bytearray, n: cython.Py_ssize_t) -> cython.void:
        """Take the first n bytes of data."""
        assert 0 <= n <= len(data), "more bytes than there are"
        self._compact()
        self.buffer.put(data, 0, n)

    def receive(self, into: Callable[[memoryview], int], n: int) -> int:
        """The same without a copy: hand a place for n bytes to `into`, which answers how many it has put."""
        self._compact()
        used: cython.Py_ssize_t = self.buffer.used
        if used + n > self.buffer.cap:
            self.buffer.grow(n)
        with memoryview(self.buffer.buf) as whole, whole[used : used + n] as place:
            came = into(place)
        assert 0 <= came <= n, "more bytes than there is room for"
        self.buffer.used = used + came
        return came

    @cython.cfunc
    def _compact(self) -> cython.void:
        """Notes point into the bytes. When they are used up, so are the bytes that they were taken of."""
        inbox: GrowableBuffer = self.buffer
        if self.next_record < self.token_index.used:
            return
        if self.scanned:
            mem.move(inbox.p, 0, self.scanned, inbox.used - self.scanned)
            inbox.used -= self.scanned
            self.scanned = 0
        self.token_index.used = 0
        self.next_record = 0

    @cython.ccall
    @cython.exceptval(check=False)
    def buffered_bytes(self) -> cython.Py_ssize_t:
        """How many bytes are here: of notes that are not used up, and those that no note was taken of yet."""
        return self.buffer.used

    @cython.ccall
    def scan(self) -> cython.bint:
        """Note the whole entries that have arrived; True when they end the page."""
        p: cython.p_const_uchar = self.buffer.buf
        end: cython.Py_ssize_t = self.buffer.used
        size: cython.longlong
        last: cython.Py_ssize_t = -1
        if self.entries_left == UNKNOWN:
            if self.scanned < end and p[self.scanned] == DASH:
                return self._raise_error_reply()
            size = self._read_length(p, self.scanned, end, ARRAY)
            if size == INCOMPLETE:
                return False
            self.entries_left = size
            self.entry_count = size
            self.scanned = self.cursor
            self.anchor_lost = size == 0 and len(self.anchor) > 0
        while self.entries_left > 0:
            start: cython.Py_ssize_t = self.token_index.used
            if not self._index_short_entry(p, end) and not self._index_entry(p, end):
                self.token_index.used = start
                if end - self.scanned > INBOX_MAX:
                    raise ProtocolError("an entry larger than any server stores")
                break
            last = start
            self.scanned = self.cursor
            self.entries_left -= 1
            if len(self.anchor):
                last = self._drop_anchor(p, start)
        if last >= 0:
            self.last_id = self._record_id(p, last)
        return self.entries_left == 0

    @cython.cfunc
    def _raise_error_reply(self) -> cython.bint:
        """The server answers an error: raise it when its line is whole."""
        text: bytes = mem.to_bytes(self.buffer.buf, self.scanned + 1, self.buffer.used - self.scanned - 1)
        if b"\r\n" in text:
            raise CommandError(text.partition(b"\r\n")[0].decode(errors="replace"))
        if len(text) > ENTRY_MAX:
            raise ProtocolError("an endless error")
        return False

    @cython.cfunc
    def _drop_anchor(self, p: cython.p_const_uchar, note: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The page's first entry is noted: leave it out if it is the anchor. Answers whose ID is the last."""
        anchor: bytes = self.anchor
        self.anchor = b""
        first: bytes = self._record_id(p, note)
        if first == anchor:
            self.token_index.used = note
            return -1
        self.anchor_lost = True
        self.first_id = first
        return note

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _index_short_entry(self, p: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.bint:
        """Note an entry of less than 100 words of less than 100 bytes; False, nothing done, if another."""
        notes: GrowableBuffer = self.token_index
        if notes.used + SHORT_RECORD_BYTES > notes.cap:
            notes.grow(SHORT_RECORD_BYTES)
        at: cython.Py_ssize_t = self.scanned
        note: cython.Py_ssize_t = notes.used + 4
        words: cython.int = 0  # yet to come
        count: cython.int = 0
        size: cython.int
        second: cython.int
        if end - at < 4 or p[at] != ARRAY or p[at + 1] != TWO or p[at + 2] != CR or p[at + 3] != LF:
            return False
        at += 4
        while count == 0 or words > 0:
            if end - at < 5 or p[at] != BULK or not 48 <= p[at + 1] <= 57:
                return False
            size = p[at + 1] - 48
            if p[at + 2] != CR:
                second = p[at + 2] - 48
                if not 0 <= second <= 9:
                    return False
                size = 10 * size + second
                at += 1
            at += 4
            if end - at < size + 2 or p[at - 2] != CR or p[at - 1] != LF:
                return False
            mem.put_u32le(notes.p, note, at)
            mem.put_u32le(notes.p, note + 4, size)
            note += 8
            at += size + 2
            if p[at - 2] != CR or p[at - 1] != LF:
                return False
            count += 1
            words -= 1
            if count == 1:
                if end - at < 5 or p[at] != ARRAY or not 48 <= p[at + 1] <= 57:
                    return False
                words = p[at + 1] - 48
                if p[at + 2] != CR:
                    second = p[at + 2] - 48
                    if not 0 <= second <= 9:
                        return False
                    words = 10 * words + second
                    at += 1
                at += 4
                if end < at or p[at - 2] != CR or p[at - 1] != LF or words & 1:
                    return False
        mem.put_u32le(notes.p, notes.used, count)
        notes.used = note
        self.cursor = at
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _index_entry(self, p: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.bint:
        """Note the entry at `at`, with cursor behind it; False when its end has not arrived."""
        start: cython.Py_ssize_t = self.token_index.used
        words: cython.longlong = self._read_length(p, self.scanned, end, ARRAY)
        if words == INCOMPLETE:
            return False
        if words != 2:
            raise ProtocolError(f"an entry of {words} parts, not an ID and its fields")
        self.token_index.put_u32(0)  # the count, known in a moment
        if not self._index_token(p, end):
            return False
        words = self._read_length(p, self.cursor, end, ARRAY)
        if words == INCOMPLETE:
            return False
        if words % 2 or words > COUNT_MAX:
            raise ProtocolError(f"an entry of {words} words")
        mem.put_u32le(self.token_index.p, start, words + 1)
        while words > 0:
            if not self._index_token(p, end):
                return False
            words -= 1
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _index_token(self, p: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.bint:
        """Note the bulk string at the cursor and step over it; False when its end has not arrived."""
        size: cython.longlong = self._read_length(p, self.cursor, end, BULK)
        if size == INCOMPLETE:
            return False
        if size > ENTRY_MAX:
            raise ProtocolError(f"a word of {size} bytes")
        at: cython.Py_ssize_t = self.cursor
        if end - at < size + 2:
            return False
        self.cursor = at + size + 2
        if p[at + size] != CR or p[at + size + 1] != LF:
            raise ProtocolError("a word longer than its length says")
        notes: GrowableBuffer = self.token_index
        if notes.used + 8 > notes.cap:
            notes.grow(8)
        mem.put_u32le(notes.p, notes.used, at)
        mem.put_u32le(notes.p, notes.used + 4, size)
        notes.used += 8
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_length(
        self, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, kind: cython.uchar
    ) -> cython.longlong:
        """The number of the `<kind><digits>` line at `at`, cursor behind it; CUT if it is not whole."""
        if at >= end:
            return INCOMPLETE
        if p[at] != kind:
            raise ProtocolError(f"expected '{chr(kind)}', got {mem.to_bytes(p, at, 1)!r}")
        start: cython.Py_ssize_t = at + 1
        number: cython.longlong = 0
        digit: cython.int
        at = start
        while at < end:
            if p[at] == CR and at > start:
                if at + 1 == end:
                    return INCOMPLETE
                if p[at + 1] != LF:
                    break
                self.cursor = at + 2
                return number
            if not 48 <= p[at] <= 57 or at - start >= DIGITS_MAX:
                break
            digit = p[at] - 48
            number = number * 10 + digit
            at += 1
        if at >= end:
            return INCOMPLETE
        raise ProtocolError(f"invalid length {mem.to_bytes(p, start, at - start + 1)!r}")

    @cython.cfunc
    def _record_id(self, p: cython.p_const_uchar, note: cython.Py_ssize_t) -> bytes:
        """The ID of a noted entry."""
        return mem.to_bytes(
            p, mem.u32le(self.token_index.p, note + 4), mem.u32le(self.token_index.p, note + 8)
        )

    @cython.ccall
    def skip_records(self) -> cython.void:
        """The notes are of no interest: only IDs and counts are."""
        self.next_record = self.token_index.used
