r"""The log, read: record by record into a callable, and what is wrong with the file said to the byte.

    REDIS0010...........            a snapshot, if the file begins with one: see rdb/reader.py
    #TS:1795205495\r\n              a note; any line that begins with # is stepped over
    *2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n                   a record
    *5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$3\r\n1-1\r\n...     another
    *1\r\n$5\r\nMULTI\r\n           what follows is one transaction: carried out when its EXEC has
    ...                             been read, or not at all
    *1\r\n$4\r\nEXEC\r\n

A log may end anywhere: the power failed, and the tail is missing. That is no damage, as long as what is
there is the beginning of what could have been written; `cut` says so and `valid` is where the file may go on.
The grammar is taken by its letter (every \r\n is looked at), so that a wrong byte in the middle of a file
shows where it stands and does not pass for a tail that was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cython

from headrace import mem
from headrace.errors import CommandError
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import Source
from headrace.resp.read_buffer import ReadBuffer

# Bytes read at once: large enough that a read costs nothing beside its records, small enough for the cache.
CHUNK = 256 * 1024
# A note is a time or a few words for a person; without an end this long it is garbage.
NOTE_MAX = cython.declare(cython.Py_ssize_t, 64 * 1024)
DIGITS_MAX = cython.declare(cython.Py_ssize_t, 18)  # no file is longer than 18 digits can say

CR = cython.declare(cython.uchar, 13)
LF = cython.declare(cython.uchar, 10)
ARRAY = cython.declare(cython.uchar, 42)  # *
BULK = cython.declare(cython.uchar, 36)  # $
NOTE = cython.declare(cython.uchar, 35)  # #
NONE = cython.declare(cython.longlong, -1)

SNAPSHOT_HEADS = (b"REDIS", b"VALKEY")
ADVICE = "`headrace check FILE` shows what is left, and `--fix` cuts the file there and keeps a copy"

Execute = Callable[[list[bytes]], "bytes | None"]
Snapshot = Callable[[Source], int]


class Replayed(NamedTuple):
    """What a log held."""

    records: int  # whole records, MULTI and EXEC too
    commands: int  # those given to execute
    failed: int  # of these, refused
    first_failed: int  # the offset of the first such record; -1 when there is none
    first_error: bytes  # its error
    valid: int  # the offset behind the last record that counts: what follows may be cut off
    size: int  # of the file
    cut: str  # "" when the file ends where it should, "record" or "transaction" when in the middle of one


def replay(
    source: Source,
    name: str,
    execute: Execute,
    *,
    snapshot: Snapshot | None = None,
    progress: Callable[[int], None] | None = None,
) -> Replayed:
    """Give every command of a log to execute, in order; see LogReader."""
    return LogReader(source, name, execute, progress).run(snapshot)


class RewindableSource:
    """A Source whose last piece can be given back, for a reader that has taken more than it needed."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.size = source.size
        self.taken = 0
        self.last = b""
        self.again = b""

    def read(self, n: int) -> bytes:
        """The next n bytes; fewer only at the end, and then b""."""
        piece = self.again[:n]
        self.again = self.again[n:]
        if len(piece) < n:
            piece += self.source.read(n - len(piece))
        self.taken += len(piece)
        self.last = piece
        return piece

    def rewind_to(self, offset: int) -> None:
        """Go on at offset, which must lie in the piece read last."""
        surplus = self.taken - offset
        if not 0 <= surplus <= len(self.last):
            raise ValueError(f"{offset} is not in the last {len(self.last)} of {self.taken} bytes")
        self.again = self.last[len(self.last) - surplus :] + self.again
        self.last = b""
        self.taken = offset

    def close(self) -> None:
        """Give the file back."""
        self.source.close()


@cython.final
@cython.cclass
class LogReader(ReadBuffer):
    """Reads one file of a log, once. execute must stand at database 0.

    execute(words) returns None, or the error the command was refused with: that is counted and no more.
    It raises CommandError for what no log can hold: a command that does not exist, for one.
    The reader raises Damaged for that and for bytes that are no record; result() tells what was good.
    """

    source: Any
    name: str
    execute: Any
    progress: Any
    size: cython.longlong  # of the file
    fed: cython.longlong  # bytes of the file read so far: the offset of the inbox's end
    valid: cython.longlong  # the offset behind the last record that counts
    begin: cython.longlong  # where the record being read begins
    words: list[bytes] | None  # of that record, those read
    left: cython.longlong  # its words still to come; 0 between records
    past_end: cython.bint  # its next word is longer than the rest of the file
    multi_at: cython.longlong  # where the transaction being read begins; NONE outside of one
    held: list[tuple[int, list[bytes]]]  # its records, with their offsets
    records: cython.longlong
    commands: cython.longlong
    failed: cython.longlong
    first_failed: cython.longlong
    first_error: bytes

    def __init__(
        self, source: Source, name: str, execute: Execute, progress: Callable[[int], None] | None = None
    ) -> None:
        super().__init__()
        self.source = RewindableSource(source)
        self.name = name
        self.execute = execute
        self.progress = progress
        self.size = source.size
        self.fed = 0
        self.valid = 0
        self.begin = 0
        self.words = None
        self.left = 0
        self.past_end = False
        self.multi_at = NONE
        self.held = []
        self.records = 0
        self.commands = 0
        self.failed = 0
        self.first_failed = NONE
        self.first_error = b""

    def run(self, snapshot: Snapshot | None = None) -> Replayed:
        """Read the file to its end. snapshot loads what it may begin with and returns where that ends."""
        words: list[bytes] | None
        self._load_head(snapshot)
        while not self.past_end and self._read_more():
            words = self._record()
            while words is not None:
                self._accept(words)
                words = self._record()
        self.size = max(self.size, self.fed)
        return self.result()

    def result(self) -> Replayed:
        """What was read so far, also when Damaged has ended it."""
        cut = "transaction" if self.multi_at != NONE else "record" if self.valid < self.size else ""
        return Replayed(
            self.records,
            self.commands,
            self.failed,
            self.first_failed,
            self.first_error,
            self.valid,
            self.size,
            cut,
        )

    def _load_head(self, snapshot: Snapshot | None) -> None:
        head = self.source.read(max(map(len, SNAPSHOT_HEADS)))
        self.source.rewind_to(0)
        if not head.startswith(SNAPSHOT_HEADS):
            return
        if snapshot is None:
            raise Damaged(0, "a snapshot stands where records are expected", self.name)
        end = snapshot(self.source)
        self.source.rewind_to(end)
        self.fed = end
        self.valid = end

    @cython.cfunc
    def _read_more(self) -> cython.bint:
        """Take the next piece of the file; whether there was one."""
        piece: bytes = self.source.read(CHUNK)
        if len(piece) == 0:
            return False
        self.feed(piece)
        self.fed += len(piece)
        if self.progress is not None:
            self.progress(self.fed)
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _here(self) -> cython.longlong:
        """The offset of the next byte."""
        return self.fed - (self.filled - self.at)

    @cython.cfunc
    def _record(self) -> list[bytes] | None:
        """The next record; None when its end has not been read."""
        word: bytes | None
        if self.left == 0 and not self._begin_record():
            return None
        words: list[bytes] | None = self.words
        assert words is not None
        while self.left > 0:
            word = self._word()
            if word is None:
                return None
            words.append(word)
            self.left -= 1
        self.words = None
        return words

    @cython.cfunc
    def _begin_record(self) -> cython.bint:
        """Step over notes and the `*<count>\\r\\n` behind them; whether it was there."""
        p: cython.p_uchar = self.p
        end: cython.Py_ssize_t
        while self.at < self.filled:
            self.begin = self._here()
            if p[self.at] == NOTE:
                end = mem.find(p, self.at, self.filled, LF)
                if (end if end >= 0 else self.filled) - self.at > NOTE_MAX:
                    raise self._damaged("a line that begins with # and does not end")
                if end < 0:
                    return False
                self.at = end + 1
                if self.multi_at == NONE:
                    self.valid = self._here()
            elif p[self.at] == ARRAY:
                count: cython.longlong = self._number()
                if count == 0:
                    raise self._damaged("a record of no words")
                self.words = []
                self.left = max(count, 0)
                return count != NONE
            else:
                raise self._damaged(f"a record begins with '*', here stands {self._found()}")
        return False

    @cython.cfunc
    def _word(self) -> bytes | None:
        """The next word of the record; None when its end has not been read."""
        p: cython.p_uchar = self.p
        start: cython.Py_ssize_t = self.at
        if start >= self.filled:
            return None
        if p[start] != BULK:
            raise self._damaged(f"a word of a record begins with '$', here stands {self._found()}")
        n: cython.longlong = self._number()
        if n == NONE:
            return None
        at: cython.Py_ssize_t = self.at
        if n + 2 > self.filled - at:
            self.past_end = n + 2 > max(self.size, self.fed) - self._here()
            self.at = start
            return None
        word: bytes = mem.to_bytes(p, at, n)
        self.at = at + n
        if p[at + n] != CR or p[at + n + 1] != LF:
            raise self._damaged(f"a word of {n} bytes ends with \\r\\n, here stands {self._found()}")
        self.at += 2
        return word

    @cython.cfunc
    def _number(self) -> cython.longlong:
        """Step over `<any byte><digits>\\r\\n`; NONE when it is cut."""
        p: cython.p_uchar = self.p
        at: cython.Py_ssize_t = self.at + 1
        first: cython.Py_ssize_t = at
        number: cython.longlong = 0
        digit: cython.uint
        while at < self.filled:
            digit = p[at]
            if 48 <= digit <= 57 and at - first < DIGITS_MAX:
                number = number * 10 + (digit - 48)
                at += 1
                continue
            if digit != CR or at == first or (at + 1 < self.filled and p[at + 1] != LF):
                self.at = at
                raise self._damaged(f"a length is digits and \\r\\n, here stands {self._found()}")
            if at + 1 == self.filled:
                break
            self.at = at + 2
            return number
        return NONE

    @cython.cfunc
    def _accept(self, words: list[bytes]) -> cython.void:
        """A whole record was read: carry it out, or keep it until the EXEC has come."""
        name: bytes = words[0]
        self.records += 1
        if len(words) == 1:
            name = name.upper()
            if name == b"MULTI":
                self._begin_transaction()
                return
            if name == b"EXEC":
                self._end_transaction()
                return
        if self.multi_at != NONE:
            self.held.append((self.begin, words))
            return
        self._play(self.begin, words)
        self.valid = self._here()

    @cython.cfunc
    def _begin_transaction(self) -> cython.void:
        if self.multi_at != NONE:
            raise Damaged(
                self.begin, f"a MULTI inside the transaction begun at byte {self.multi_at}", self.name, ADVICE
            )
        self.multi_at = self.begin

    @cython.cfunc
    def _end_transaction(self) -> cython.void:
        if self.multi_at == NONE:
            raise Damaged(self.begin, "an EXEC where no MULTI has begun a transaction", self.name, ADVICE)
        for offset, words in self.held:
            self._play(offset, words)
        self.held = []
        self.multi_at = NONE
        self.valid = self._here()

    @cython.cfunc
    def _play(self, offset: cython.longlong, words: list[bytes]) -> cython.void:
        try:
            refusal = self.execute(words)
        except CommandError as impossible:
            raise Damaged(offset, str(impossible), self.name, ADVICE) from None
        self.commands += 1
        if refusal is not None:
            if self.failed == 0:
                self.first_failed = offset
                self.first_error = refusal
            self.failed += 1

    @cython.cfunc
    def _damaged(self, what: str) -> Damaged:
        """The exception for the byte at `at`, to be raised."""
        return Damaged(self._here(), what, self.name, ADVICE)

    @cython.cfunc
    def _found(self) -> str:
        """What stands at `at`, for a person; a power cut can leave a long run of zeros."""
        zeros: cython.Py_ssize_t = 0
        p: cython.p_uchar = self.p
        while self.at + zeros < self.filled and p[self.at + zeros] == 0:
            zeros += 1
        if zeros > 1:
            last = self.at + zeros == self.filled and self.fed >= self.size
            return f"{zeros} zero bytes" + (", up to the end of the file" if last else "")
        return repr(mem.to_bytes(p, self.at, min(self.filled - self.at, 16)))[1:]
