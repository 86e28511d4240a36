r"""Tokenize pages of an XRANGE reply: find the offset and size of each bulk string, without decoding it.

    *2\r\n              a page of two entries
    *2\r\n              an entry:
    $3\r\n5-1\r\n         its ID
    *4\r\n                its fields and values in turn:
    $3\r\ndev\r\n
    $3\r\nd12\r\n
    ...

scan() finds the complete entries among the received bytes, and appends an index record for each:

    | tokens u32 | at u32  n u32 | at u32  n u32 | ...     little-endian; offsets in the buffer
      with the ID  the ID          fields and values

So an entry is never half decoded. The reader also knows the last ID of a page, and can request the next page,
before this one is decoded.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from headrace import mem
from headrace.arrow.growable_buffer import GrowableBuffer
from headrace.errors import CommandError, ProtocolError
from headrace.limits import ENTRY_BYTES_MAX

CR = cython.declare(cython.uchar, 13)
LF = cython.declare(cython.uchar, 10)
ARRAY = cython.declare(cython.uchar, 42)  # *
BULK = cython.declare(cython.uchar, 36)  # $
DASH = cython.declare(cython.uchar, 45)
TWO = cython.declare(cython.uchar, 50)
SHORT_RECORD_BYTES = cython.declare(cython.Py_ssize_t, 4 + 8 * 100)  # the record of a hundred tokens
INCOMPLETE = cython.declare(cython.longlong, -2)  # the line is not complete
UNKNOWN = cython.declare(cython.longlong, -1)  # the page's header has not arrived
DIGITS_MAX = cython.declare(cython.Py_ssize_t, 10)  # of a length or a count
ENTRY_SIZE_MAX = cython.declare(cython.longlong, ENTRY_BYTES_MAX)
BUFFER_MAX = cython.declare(cython.longlong, ENTRY_BYTES_MAX + (1 << 28))  # an entry and its length lines


@cython.final
@cython.cclass
class ReplyPageTokenizer:
    """Makes an index of the tokens of received pages.

    For each page call begin_page(anchor), then feed() or receive(), and scan(), until scan() returns True.
    A decoder must consume the index records, or the caller skip_records(). Malformed bytes raise
    ProtocolError; an error reply is raised as CommandError.

    entry_count  the number of entries of the page, after its header was received
    anchor_lost  whether the page does not begin with the anchor
    first_id     the ID that such a page begins with; empty if it has no entry
    last_id      the ID of the last indexed entry
    """

    buffer: GrowableBuffer  # received bytes
    scanned_bytes: cython.Py_ssize_t  # how many of them are indexed
    cursor: cython.Py_ssize_t
    token_index: GrowableBuffer
    next_record: cython.Py_ssize_t  # the records before this one are consumed
    entries_left: cython.longlong  # remaining entries of the page
    entry_count: cython.longlong
    anchor: bytes
    anchor_lost: cython.bint
    first_id: bytes  # set only if the anchor is lost
    last_id: bytes

    def __init__(self) -> None:
        self.buffer = GrowableBuffer(1 << 16)
        self.token_index = GrowableBuffer(1 << 12)
        self.first_id = b""
        self.last_id = b""
        self.reset()

    @cython.ccall
    def begin_page(self, anchor: bytes) -> cython.void:
        """Begin a new page. Its first entry should be the anchor, which is omitted; b"" for no anchor."""
        self.anchor = anchor
        self.anchor_lost = False
        self.first_id = b""
        self.entries_left = UNKNOWN
        self.entry_count = 0

    @cython.ccall
    def reset(self) -> cython.void:
        """Discard all bytes and records, for a new connection."""
        self.buffer.used = 0
        self.token_index.used = 0
        self.scanned_bytes = 0
        self.next_record = 0
        self.cursor = 0
        self.begin_page(b"")

    @cython.ccall
    def feed(self, data: bytearray, n: cython.Py_ssize_t) -> cython.void:
        """Append the first n bytes of data."""
        assert 0 <= n <= len(data), "more bytes than data has"
        self._compact()
        self.buffer.put(data, 0, n)

    def receive(self, into: Callable[[memoryview], int], n: int) -> int:
        """Append bytes without a copy: call `into` with a view of n bytes; it returns how many it filled."""
        self._compact()
        used: cython.Py_ssize_t = self.buffer.used
        if used + n > self.buffer.cap:
            self.buffer.grow(n)
        with memoryview(self.buffer.buf) as whole, whole[used : used + n] as space:
            received = into(space)
        assert 0 <= received <= n, "more bytes than the buffer has space for"
        self.buffer.used = used + received
        return received

    @cython.cfunc
    def _compact(self) -> cython.void:
        """Remove the indexed bytes if all records, which point into them, are consumed."""
        buffer: GrowableBuffer = self.buffer
        if self.next_record < self.token_index.used:
            return
        if self.scanned_bytes:
            mem.move(buffer.p, 0, self.scanned_bytes, buffer.used - self.scanned_bytes)
            buffer.used -= self.scanned_bytes
            self.scanned_bytes = 0
        self.token_index.used = 0
        self.next_record = 0

    @cython.ccall
    @cython.exceptval(check=False)
    def buffered_bytes(self) -> cython.Py_ssize_t:
        """Return the size of the received bytes that are not decoded yet."""
        return self.buffer.used

    @cython.ccall
    def scan(self) -> cython.bint:
        """Index the complete entries that were received; return whether the page is complete."""
        p: cython.p_const_uchar = self.buffer.buf
        end: cython.Py_ssize_t = self.buffer.used
        size: cython.longlong
        last: cython.Py_ssize_t = -1
        if self.entries_left == UNKNOWN:
            if self.scanned_bytes < end and p[self.scanned_bytes] == DASH:
                return self._raise_error_reply()
            size = self._read_length(p, self.scanned_bytes, end, ARRAY)
            if size == INCOMPLETE:
                return False
            self.entries_left = size
            self.entry_count = size
            self.scanned_bytes = self.cursor
            self.anchor_lost = size == 0 and len(self.anchor) > 0
        while self.entries_left > 0:
            start: cython.Py_ssize_t = self.token_index.used
            if not self._index_short_entry(p, end) and not self._index_entry(p, end):
                self.token_index.used = start
                if end - self.scanned_bytes > BUFFER_MAX:
                    raise ProtocolError("an entry larger than any server stores")
                break
            last = start
            self.scanned_bytes = self.cursor
            self.entries_left -= 1
            if len(self.anchor):
                last = self._drop_anchor(p, start)
        if last >= 0:
            self.last_id = self._entry_id(p, last)
        return self.entries_left == 0

    @cython.cfunc
    def _raise_error_reply(self) -> cython.bint:
        """Raise an error reply if its line is complete."""
        text: bytes = mem.to_bytes(
            self.buffer.buf, self.scanned_bytes + 1, self.buffer.used - self.scanned_bytes - 1
        )
        if b"\r\n" in text:
            raise CommandError(text.partition(b"\r\n")[0].decode(errors="replace"))
        if len(text) > ENTRY_SIZE_MAX:
            raise ProtocolError("an error reply that is too long")
        return False

    @cython.cfunc
    def _drop_anchor(self, p: cython.p_const_uchar, record: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Remove the record of the page's first entry if it is the anchor.

        Returns the record with the last ID; -1 if the entry was removed.
        """
        anchor: bytes = self.anchor
        self.anchor = b""
        first: bytes = self._entry_id(p, record)
        if first == anchor:
            self.token_index.used = record
            return -1
        self.anchor_lost = True
        self.first_id = first
        return record

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _index_short_entry(self, p: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.bint:
        """Index an entry of fewer than 100 tokens of fewer than 100 bytes; return False for any other."""
        index: GrowableBuffer = self.token_index
        if index.used + SHORT_RECORD_BYTES > index.cap:
            index.grow(SHORT_RECORD_BYTES)
        at: cython.Py_ssize_t = self.scanned_bytes
        record: cython.Py_ssize_t = index.used + 4
        words: cython.int = 0  # remaining
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
            mem.put_u32le(index.p, record, at)
            mem.put_u32le(index.p, record + 4, size)
            record += 8
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
        mem.put_u32le(index.p, index.used, count)
        index.used = record
        self.cursor = at
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _index_entry(self, p: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.bint:
        """Index the entry at `scanned_bytes`, and move the cursor after it; False if it is incomplete."""
        start: cython.Py_ssize_t = self.token_index.used
        words: cython.longlong = self._read_length(p, self.scanned_bytes, end, ARRAY)
        if words == INCOMPLETE:
            return False
        if words != 2:
            raise ProtocolError(f"an entry of {words} parts, not an ID and its fields")
        self.token_index.put_u32(0)  # the count, which is set below
        if not self._index_token(p, end):
            return False
        words = self._read_length(p, self.cursor, end, ARRAY)
        if words == INCOMPLETE:
            return False
        if words % 2 or words > ENTRY_SIZE_MAX:
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
        """Index the bulk string at the cursor, and move the cursor after it; False if it is incomplete."""
        size: cython.longlong = self._read_length(p, self.cursor, end, BULK)
        if size == INCOMPLETE:
            return False
        if size > ENTRY_SIZE_MAX:
            raise ProtocolError(f"a word of {size} bytes")
        at: cython.Py_ssize_t = self.cursor
        if end - at < size + 2:
            return False
        self.cursor = at + size + 2
        if p[at + size] != CR or p[at + size + 1] != LF:
            raise ProtocolError("a word longer than its length says")
        index: GrowableBuffer = self.token_index
        if index.used + 8 > index.cap:
            index.grow(8)
        mem.put_u32le(index.p, index.used, at)
        mem.put_u32le(index.p, index.used + 4, size)
        index.used += 8
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _read_length(
        self, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, kind: cython.uchar
    ) -> cython.longlong:
        """Return the number of the `<kind><digits>` line at `at`, and move the cursor after it.

        INCOMPLETE if the line is incomplete.
        """
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
    def _entry_id(self, p: cython.p_const_uchar, record: cython.Py_ssize_t) -> bytes:
        """Return the ID of an indexed entry."""
        return mem.to_bytes(
            p, mem.u32le(self.token_index.p, record + 4), mem.u32le(self.token_index.p, record + 8)
        )

    @cython.ccall
    def skip_records(self) -> cython.void:
        """Mark all records as consumed, if only IDs and counts are needed."""
        self.next_record = self.token_index.used
