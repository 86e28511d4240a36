r"""Records of the log: requests, as a client would send them, one behind the other.

    #TS:1795205495\r\n                                          when asked: the second they were made in
    *2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n                           whenever the database changes
    *5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$3\r\n1-0\r\n$1\r\nf\r\n$1\r\nv\r\n

The buffer they are gathered in:

    0                            used         cap
    +----------------------------+------------+
    | gathered, not yet written  | free       |
    +----------------------------+------------+
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.persistence.aof.manifest import write_all
from headrace.persistence.data_directory import File
from headrace.resp import writer

CAP_MIN = cython.declare(cython.Py_ssize_t, 4096)
CAP_KEPT_MAX = cython.declare(cython.Py_ssize_t, 4 * 1024 * 1024)  # an emptied recorder keeps no more
COPIED_MAX = cython.declare(cython.Py_ssize_t, 16 * 1024)
HEADER_MAX = cython.declare(cython.Py_ssize_t, 32)  # kind, 20 digits, both line ends of a word

Item = tuple[int, list[bytes]]  # a database, and the words of what was done there

CRLF = cython.declare(cython.uint, 0x0A0D)  # as a little-endian number
BULK = cython.declare(cython.uchar, 36)  # $
ARRAY = cython.declare(cython.uchar, 42)  # *


@cython.final
@cython.cclass
class LogBuffer:
    """Gathers records for one file. Call forget_database() before writing them to another one."""

    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    used: cython.Py_ssize_t
    database: cython.Py_ssize_t  # that the file is at; -1 when a SELECT must come first
    timestamp_s: cython.longlong  # of the last #TS line

    def __init__(self) -> None:
        self.buf = bytearray()
        self.p = self.buf
        self.cap = 0
        self.used = 0
        self.database = -1
        self.timestamp_s = -1

    @cython.ccall
    def put(self, database: cython.Py_ssize_t, words: list[bytes]) -> cython.void:
        """Add one record: the words, done in that database."""
        if database != self.database:
            self._select(database)
        self._record(words)

    @cython.ccall
    def put_all(self, items: list[Item]) -> cython.void:
        """Add a record for each (database, words)."""
        database: cython.Py_ssize_t
        words: list[bytes]
        for number, words in items:
            database = number
            if database != self.database:
                self._select(database)
            self._record(words)

    @cython.ccall
    def stamp(self, now_ms: cython.longlong) -> cython.void:
        """Say the time, if it is another second than said before."""
        timestamp_s: cython.longlong = now_ms // 1000
        if timestamp_s != self.timestamp_s:
            self.timestamp_s = timestamp_s
            self._raw(b"#TS:%d\r\n" % timestamp_s)

    @cython.ccall
    def forget_database(self) -> cython.void:
        """What comes next begins a file: it needs a SELECT and, when asked, the time."""
        self.database = -1
        self.timestamp_s = -1

    @cython.ccall
    def size(self) -> cython.Py_ssize_t:
        """The bytes gathered."""
        return self.used

    @cython.ccall
    def view(self) -> memoryview:
        """The bytes gathered, without a copy. Release it before anything is added or cleared."""
        return memoryview(self.buf)[: self.used]

    @cython.ccall
    def write_to(self, file: File) -> cython.Py_ssize_t:
        """Write the bytes gathered; how many they were. OSError after a part of them or none.

        Few are written from a copy: that costs less than a view, which is three objects (1,500 instructions).
        """
        n: cython.Py_ssize_t = self.used
        if n <= COPIED_MAX:
            data = mem.to_bytes(self.p, 0, n)
            taken: cython.Py_ssize_t = file.write(data)
            if taken < n:
                write_all(file, data[taken:])
        else:
            with self.view() as view:
                write_all(file, view)
        return n

    @cython.ccall
    def cut(self, size: cython.Py_ssize_t) -> cython.void:
        """Keep the first `size` bytes: what came after them was broken off."""
        self.used = size
        self.forget_database()

    @cython.ccall
    def clear(self) -> cython.void:
        """Forget the bytes gathered: they are written. After a big commit its memory is given back."""
        self.used = 0
        if self.cap > CAP_KEPT_MAX:
            self._resize(0)

    @cython.cfunc
    def _select(self, database: cython.Py_ssize_t) -> cython.void:
        self._record([b"SELECT", b"%d" % database])
        self.database = database

    @cython.cfunc
    def _record(self, words: list[bytes]) -> cython.void:
        """Add `*<words>` and each word; room is made before anything of it is written."""
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
        """Make n bytes free behind `used`, by doubling."""
        cap: cython.Py_ssize_t = max(self.cap, CAP_MIN)
        while cap < self.used + n:
            cap *= 2
        self._resize(cap)

    @cython.cfunc
    def _resize(self, cap: cython.Py_ssize_t) -> cython.void:
        self.cap = 0  # if this is broken off, it is done again before the next record
        mem.resize(self.buf, cap)
        self.p = self.buf
        self.cap = cap
