r"""Encode records of the log: requests, as clients send them, one after the other.

    #TS:1795205495\r\n                                          aof-timestamp-enabled: the time in seconds
    *2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n                           whenever the database changes
    *5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$3\r\n1-0\r\n$1\r\nf\r\n$1\r\nv\r\n
    #CRC:1f0c4a7e\r\n                          aof-checksum: CRC-32C of the bytes since the last #CRC line,
                                              in hexadecimal; one for each commit

`#CRC:start` stands before the bytes that the first checksum of a file covers. It is written again after a
restart: bytes that another program has appended meanwhile have no checksum.

The buffer that collects them:

    0                            used         cap
    +----------------------------+------------+
    | records, not yet written   | free       |
    +----------------------------+------------+
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.persistence import crc32c
from headrace.persistence.aof.manifest import write_all
from headrace.persistence.data_directory import File
from headrace.resp import writer

CAP_MIN = cython.declare(cython.Py_ssize_t, 4096)
CAP_KEPT_MAX = cython.declare(cython.Py_ssize_t, 4 * 1024 * 1024)  # capacity that clear() keeps
WRITE_COPY_BYTES_MAX = cython.declare(cython.Py_ssize_t, 16 * 1024)
HEADER_MAX = cython.declare(cython.Py_ssize_t, 32)  # kind, 20 digits, and both line ends of a word

DatabaseRequest = tuple[int, list[bytes]]  # database, words of a request

CHECKSUM_PREFIX = b"#CRC:"  # begins a line with a checksum
CHECKSUM_START = b"#CRC:start\r\n"
HEX_DIGITS = cython.declare(bytes, b"0123456789abcdef")
CHECKSUM_LINE_BYTES = cython.declare(cython.Py_ssize_t, 15)  # of a line with a checksum
CRLF = cython.declare(cython.uint, 0x0A0D)  # as a little-endian number
BULK = cython.declare(cython.uchar, 36)  # $
ARRAY = cython.declare(cython.uchar, 42)  # *


@cython.final
@cython.cclass
class LogBuffer:
    """Collects records for one file. Call forget_database() before it writes to another one."""

    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    used: cython.Py_ssize_t
    database: cython.Py_ssize_t  # of the last record; -1: the next one needs a SELECT
    timestamp_s: cython.longlong  # of the last #TS line
    checksummed: cython.bint  # all bytes of the file since the last #CRC line are of this buffer
    commit_start: cython.Py_ssize_t  # index at which the commit begins that is being collected

    def __init__(self) -> None:
        self.buf = bytearray()
        self.p = self.buf
        self.cap = 0
        self.used = 0
        self.database = -1
        self.timestamp_s = -1
        self.checksummed = False
        self.commit_start = 0

    @cython.ccall
    def put(self, database: cython.Py_ssize_t, words: list[bytes]) -> cython.void:
        """Append one record, after a SELECT if the last record is in another database."""
        self.select(database)
        self._record(words)

    @cython.ccall
    def put_all(self, items: list[DatabaseRequest]) -> cython.void:
        """Append a record for each (database, words)."""
        database: cython.Py_ssize_t
        words: list[bytes]
        for number, words in items:
            database = number
            if database != self.database:
                self.select(database)
            self._record(words)

    @cython.ccall
    def put_encoded(
        self, source: LogBuffer, start: cython.Py_ssize_t, database: cython.Py_ssize_t
    ) -> cython.void:
        """Append the bytes of another buffer from index `start` on.

        Args:
            database: the database of the first record in these bytes.
        """
        self.select(database)
        n: cython.Py_ssize_t = source.used - start
        if self.used + n > self.cap:
            self._grow(n)
        mem.copy(self.p, self.used, source.p, start, n)
        self.used += n
        self.database = source.database

    @cython.ccall
    def select(self, database: cython.Py_ssize_t) -> cython.void:
        """Append a SELECT, unless the last record is in this database."""
        if database != self.database:
            self._record([b"SELECT", b"%d" % database])
            self.database = database

    @cython.ccall
    def put_timestamp(self, now_ms: cython.longlong) -> cython.void:
        """Append a line with the time, if the second has changed."""
        timestamp_s: cython.longlong = now_ms // 1000
        if timestamp_s != self.timestamp_s:
            self.timestamp_s = timestamp_s
            self._raw(b"#TS:%d\r\n" % timestamp_s)

    @cython.ccall
    def begin_commit(self, checksum: cython.bint) -> cython.void:
        """Begin a commit, which end_commit() ends, with a checksum or without."""
        if checksum and not self.checksummed:
            self._raw(CHECKSUM_START)
        self.checksummed = checksum
        self.commit_start = self.used

    @cython.ccall
    def end_commit(self) -> cython.void:
        """Append the line with the checksum of the commit, unless the commit is empty or has no checksum."""
        start: cython.Py_ssize_t = self.commit_start
        if not self.checksummed or self.used == start:
            return
        crc: cython.uint = crc32c.update(0, self.p, start, self.used - start)
        prefix: bytes = CHECKSUM_PREFIX
        digits: cython.p_const_uchar = HEX_DIGITS
        if self.used + CHECKSUM_LINE_BYTES > self.cap:
            self._grow(CHECKSUM_LINE_BYTES)
        p: cython.p_uchar = self.p
        at: cython.Py_ssize_t = self.used + len(prefix)
        mem.copy(p, self.used, prefix, 0, len(prefix))
        shift: cython.int
        for shift in range(28, -1, -4):
            p[at] = digits[crc >> shift & 15]
            at += 1
        mem.put_u16le(p, at, CRLF)
        self.used += CHECKSUM_LINE_BYTES

    @cython.ccall
    def put_comment(self, line: bytes) -> cython.void:
        """Append a line that begins with # and ends with \\r\\n; readers skip it."""
        self._raw(line)

    @cython.ccall
    def forget_database(self) -> cython.void:
        """Prepare for a new file: put a SELECT, the time and a checksum's start before the next record."""
        self.database = -1
        self.timestamp_s = -1
        self.checksummed = False

    @cython.ccall
    def size(self) -> cython.Py_ssize_t:
        """Return the number of buffered bytes."""
        return self.used

    @cython.ccall
    def view(self) -> memoryview:
        """Return the buffered bytes without a copy. Release the view before the buffer changes."""
        return memoryview(self.buf)[: self.used]

    @cython.ccall
    def write_to(self, file: File) -> cython.Py_ssize_t:
        """Write the buffered bytes; return their number. After an OSError a part of them may be written.

        Up to 16 KiB are written from a copy: a view is three objects and costs more (1,500 instructions).
        """
        n: cython.Py_ssize_t = self.used
        if n <= WRITE_COPY_BYTES_MAX:
            data = mem.to_bytes(self.p, 0, n)
            taken: cython.Py_ssize_t = file.write(data)
            if taken < n:
                write_all(file, data[taken:])
        else:
            with self.view() as view:
                write_all(file, view)
        return n

    @cython.ccall
    def truncate(self, size: cython.Py_ssize_t) -> cython.void:
        """Keep only the first `size` bytes: an interrupted call has written the others."""
        self.used = size
        self.forget_database()

    @cython.ccall
    def clear(self) -> cython.void:
        """Drop the buffered bytes, which are written. Frees the memory of a large commit."""
        self.used = 0
        if self.cap > CAP_KEPT_MAX:
            self._resize(0)

    @cython.cfunc
    def _record(self, words: list[bytes]) -> cython.void:
        """Append `*<count>` and each word. Reserves the space first, so that it is all or nothing."""
        n: cython.Py_ssize_t
        need: cython.Py_ssize_t = HEADER_MAX
        word: bytes
        for word in words:
            need += len(word) + HEADER_MAX
        if self.used + need > self.cap:
            self._grow(need)
        p: cython.p_uchar = self.p
        source: cython.p_const_uchar
        at: cython.Py_ssize_t = writer.put_header(p, self.used, ARRAY, len(words))
        for word in words:
            n = len(word)
            source = word
            at = writer.put_header(p, at, BULK, n)
            mem.copy_short(p, at, source, 0, n)
            mem.put_u16le(p, at + n, CRLF)
            at += n + 2
        self.used = at

    @cython.cfunc
    def _raw(self, text: bytes) -> cython.void:
        n: cython.Py_ssize_t = len(text)
        if self.used + n > self.cap:
            self._grow(n)
        mem.copy(self.p, self.used, text, 0, n)
        self.used += n

    @cython.cfunc
    def _grow(self, n: cython.Py_ssize_t) -> cython.void:
        """Make n bytes free after `used`, by doubling."""
        cap: cython.Py_ssize_t = max(self.cap, CAP_MIN)
        while cap < self.used + n:
            cap *= 2
        self._resize(cap)

    @cython.cfunc
    def _resize(self, cap: cython.Py_ssize_t) -> cython.void:
        self.cap = 0  # if this is interrupted, the next record resizes again
        mem.resize(self.buf, cap)
        self.p = self.buf
        self.cap = cap
