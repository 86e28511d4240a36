r"""Read a log: pass each record to a function, and report damage by its byte offset.

    REDIS0010...........            a snapshot, if the file begins with one: see rdb/reader.py
    #TS:1795205495\r\n              a comment; lines that begin with # are skipped
    #CRC:start\r\n                  the bytes from here on have checksums: see log_buffer.py
    *2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n                   a record
    *5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$3\r\n1-1\r\n...     another
    *1\r\n$5\r\nMULTI\r\n           a transaction, executed when its EXEC has been read,
    ...                             or not at all
    *1\r\n$4\r\nEXEC\r\n
    #CRC:1f0c4a7e\r\n               the checksum of the bytes since the last #CRC line

After a power cut a log may end anywhere. That is not damage if the rest could be the beginning of a valid
record: `cut_within` names what is incomplete, and the file may continue at `valid_end`. The grammar is
checked strictly, every \r\n included, so that a wrong byte in the middle of a file is not mistaken for a
missing tail. A wrong length can look like a missing tail. So the rest counts as damage if it contains a
commit with a correct checksum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cython

from headrace import mem
from headrace.errors import CommandError, ForeignCommand
from headrace.persistence import crc32c
from headrace.persistence.aof.log_buffer import CHECKSUM_PREFIX, CHECKSUM_START
from headrace.persistence.damage import Damaged, ForeignDataError
from headrace.persistence.data_directory import Source
from headrace.resp.read_buffer import ReadBuffer

# Bytes per read: large enough that reads cost little beside the records, small enough for the CPU cache.
READ_BYTES = 256 * 1024
# A comment is a time or a few words; a line this long without an end is damage.
COMMENT_MAX = cython.declare(cython.Py_ssize_t, 64 * 1024)
DIGITS_MAX = cython.declare(cython.Py_ssize_t, 18)  # no file needs more digits for a length

CR = cython.declare(cython.uchar, 13)
LF = cython.declare(cython.uchar, 10)
ARRAY = cython.declare(cython.uchar, 42)  # *
BULK = cython.declare(cython.uchar, 36)  # $
COMMENT = cython.declare(cython.uchar, 35)  # #
NO_OFFSET = cython.declare(cython.longlong, -1)

SNAPSHOT_HEADS = (b"REDIS", b"VALKEY")
ADVICE = "`headrace check FILE` shows what can be read; `--fix` truncates the file there and keeps a copy"

UNCHECKED_ADVICE = "a start with aof-checksum no loads the records as they are; " + ADVICE
INTACT_SEARCH_MAX = 64 << 20  # bytes after an incomplete record that are searched for a commit

Execute = Callable[[list[bytes]], "bytes | None"]
LoadSnapshot = Callable[[Source], int]


class ReplayResult(NamedTuple):
    """The result of reading a log."""

    record_count: int  # complete ones, including MULTI and EXEC
    command_count: int  # passed to execute
    failed_command_count: int  # of these, those that returned an error
    first_failed_offset: int  # the offset of the first of these; -1 if there is none
    first_error: bytes  # its error reply
    valid_end: int  # the offset after the last complete record: the rest may be cut off
    size: int  # of the file, in bytes
    cut_within: str  # "record" or "transaction" if the file ends in the middle of one, else ""
    last_comment: bytes  # the line that ends at `valid_end` if it is a comment, else b""


class RewindableSource:
    """A Source that can go back within the last piece read, for a reader that has read too much."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.size = source.size
        self.bytes_read = 0
        self.last_piece = b""
        self.pushed_back = b""

    def read(self, n: int) -> bytes:
        """Return the next n bytes; fewer only at the end of the file, then b""."""
        piece = self.pushed_back[:n]
        self.pushed_back = self.pushed_back[n:]
        if len(piece) < n:
            piece += self.source.read(n - len(piece))
        self.bytes_read += len(piece)
        self.last_piece = piece
        return piece

    def rewind_to(self, offset: int) -> None:
        """Continue at offset, which must be in the last piece read."""
        surplus = self.bytes_read - offset
        if not 0 <= surplus <= len(self.last_piece):
            raise ValueError(f"{offset} is not in the last {len(self.last_piece)} of {self.bytes_read} bytes")
        self.pushed_back = self.last_piece[len(self.last_piece) - surplus :] + self.pushed_back
        self.last_piece = b""
        self.bytes_read = offset

    def close(self) -> None:
        """Close the file."""
        self.source.close()


@cython.final
@cython.cclass
class LogReader(ReadBuffer):
    """Reads one file of a log, once: run() passes each command to execute().

    execute(words) runs a command, and must begin in database 0. It returns None, or the command's error
    reply, which is only counted. It raises CommandError for a command that no log can contain, such as an
    unknown one, and ForeignCommand for a command of a type that Headrace does not hold. The reader turns the
    first into Damaged and the second into ForeignDataError. Bytes that are not a record raise Damaged, too.
    After such an error result() still describes the good part.
    """

    source: Any
    name: str
    execute: Any
    progress: Any
    size: cython.longlong  # of the file
    bytes_read: cython.longlong  # bytes of the file read so far: the offset of the end of the buffer
    valid_end: cython.longlong  # the offset after the last complete record
    record_offset: cython.longlong  # the offset of the record being read
    words: list[bytes] | None  # of that record, those read so far
    words_left: cython.longlong  # words of it yet to be read; 0 between records
    word_exceeds_file: cython.bint  # its next word is longer than the rest of the file
    transaction_offset: cython.longlong  # the offset of the transaction being read; NO_OFFSET: there is none
    transaction_records: list[tuple[int, list[bytes]]]  # its records, with their offsets
    last_comment: bytes  # the last comment, and the offset of its end
    comment_end: cython.longlong
    record_count: cython.longlong
    command_count: cython.longlong
    failed_command_count: cython.longlong
    first_failed_offset: cython.longlong
    first_error: bytes
    verify_checksums: cython.bint
    is_checksummed: cython.bint  # the bytes since verified_end have a checksum, or will have one
    verified_end: cython.longlong  # the offset after the last #CRC line
    crc: cython.uint  # of the bytes from there up to crc_end
    crc_end: cython.longlong

    def __init__(
        self,
        source: Source,
        name: str,
        execute: Execute,
        progress: Callable[[int], None] | None = None,
        verify_checksums: bool = True,
    ) -> None:
        super().__init__()
        self.source = RewindableSource(source)
        self.name = name
        self.execute = execute
        self.progress = progress
        self.size = source.size
        self.bytes_read = 0
        self.valid_end = 0
        self.record_offset = 0
        self.words = None
        self.words_left = 0
        self.word_exceeds_file = False
        self.transaction_offset = NO_OFFSET
        self.transaction_records = []
        self.last_comment = b""
        self.comment_end = NO_OFFSET
        self.record_count = 0
        self.command_count = 0
        self.failed_command_count = 0
        self.first_failed_offset = NO_OFFSET
        self.first_error = b""
        self.verify_checksums = verify_checksums
        self.is_checksummed = False
        self.verified_end = 0
        self.crc = 0
        self.crc_end = 0

    def run(self, snapshot: LoadSnapshot | None = None) -> ReplayResult:
        """Read the file to its end. Raises Damaged, ForeignDataError.

        snapshot: loads a snapshot with which the file begins, and returns the offset of its end. None: the
            file must not begin with one.
        """
        words: list[bytes] | None
        self._load_head(snapshot)
        while not self.word_exceeds_file and self._read_more():
            words = self._next_record()
            while words is not None:
                self._execute_or_queue(words)
                words = self._next_record()
        self.size = max(self.size, self.bytes_read)
        if self.is_checksummed and self.valid_end < self.size:
            self._expect_torn_end()
        return self.result()

    def result(self) -> ReplayResult:
        """Return the result so far; also after Damaged was raised."""
        cut = (
            "transaction"
            if self.transaction_offset != NO_OFFSET
            else "record"
            if self.valid_end < self.size
            else ""
        )
        return ReplayResult(
            self.record_count,
            self.command_count,
            self.failed_command_count,
            self.first_failed_offset,
            self.first_error,
            self.valid_end,
            self.size,
            cut,
            self.last_comment if self.comment_end == self.valid_end else b"",
        )

    def _load_head(self, snapshot: LoadSnapshot | None) -> None:
        head = self.source.read(max(map(len, SNAPSHOT_HEADS)))
        self.source.rewind_to(0)
        if not head.startswith(SNAPSHOT_HEADS):
            return
        if snapshot is None:
            raise Damaged(0, "a snapshot where records are expected", self.name)
        end = snapshot(self.source)
        self.source.rewind_to(end)
        self.bytes_read = end
        self.valid_end = end

    @cython.cfunc
    def _read_more(self) -> cython.bint:
        """Read the next piece of the file; return False at its end."""
        piece: bytes = self.source.read(READ_BYTES)
        if len(piece) == 0:
            return False
        self._update_crc()  # before the buffer drops what is parsed
        self.feed(piece)
        self.bytes_read += len(piece)
        if self.progress is not None:
            self.progress(self.bytes_read)
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _offset(self) -> cython.longlong:
        """Return the offset of the next byte."""
        return self.bytes_read - (self.filled - self.at)

    @cython.cfunc
    def _next_record(self) -> list[bytes] | None:
        """Return the next record; None if its end is not in the buffer yet."""
        word: bytes | None
        if self.words_left == 0 and not self._begin_record():
            return None
        words: list[bytes] | None = self.words
        assert words is not None
        while self.words_left > 0:
            word = self._next_word()
            if word is None:
                return None
            words.append(word)
            self.words_left -= 1
        self.words = None
        return words

    @cython.cfunc
    def _begin_record(self) -> cython.bint:
        """Skip comments and read `*<count>\\r\\n`; return False if its end is not in the buffer yet."""
        p: cython.p_uchar = self.p
        end: cython.Py_ssize_t
        while self.at < self.filled:
            self.record_offset = self._offset()
            if p[self.at] == COMMENT:
                end = mem.find(p, self.at, self.filled, LF)
                if (end if end >= 0 else self.filled) - self.at > COMMENT_MAX:
                    raise self._damaged("a line that begins with # and does not end")
                if end < 0:
                    return False
                self.last_comment = mem.to_bytes(p, self.at, end + 1 - self.at)
                if self.verify_checksums and self.last_comment.startswith(CHECKSUM_PREFIX):
                    self._verify(self.last_comment)
                self.at = end + 1
                self.comment_end = self._offset()
                if self.transaction_offset == NO_OFFSET:
                    self.valid_end = self._offset()
            elif p[self.at] == ARRAY:
                count: cython.longlong = self._number()
                if count == 0:
                    raise self._damaged("a record without words")
                self.words = []
                self.words_left = max(count, 0)
                return count != NO_OFFSET
            else:
                raise self._damaged(
                    f"expected '*' and the length of a record, found {self._describe_next_bytes()}"
                )
        return False

    @cython.cfunc
    def _next_word(self) -> bytes | None:
        """Return the next word of the record; None if its end is not in the buffer yet."""
        p: cython.p_uchar = self.p
        start: cython.Py_ssize_t = self.at
        if start >= self.filled:
            return None
        if p[start] != BULK:
            raise self._damaged(f"expected '$' and the length of a word, found {self._describe_next_bytes()}")
        n: cython.longlong = self._number()
        if n == NO_OFFSET:
            return None
        at: cython.Py_ssize_t = self.at
        if n + 2 > self.filled - at:
            self.word_exceeds_file = n + 2 > max(self.size, self.bytes_read) - self._offset()
            self.at = start
            return None
        word: bytes = mem.to_bytes(p, at, n)
        self.at = at + n
        if p[at + n] != CR or p[at + n + 1] != LF:
            raise self._damaged(
                f"expected \\r\\n after a word of {n} bytes, found {self._describe_next_bytes()}"
            )
        self.at += 2
        return word

    @cython.cfunc
    def _number(self) -> cython.longlong:
        """Read `<any byte><digits>\\r\\n`; return NO_OFFSET if its end is not in the buffer yet."""
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
                raise self._damaged(f"expected digits and \\r\\n, found {self._describe_next_bytes()}")
            if at + 1 == self.filled:
                break
            self.at = at + 2
            return number
        return NO_OFFSET

    @cython.cfunc
    def _execute_or_queue(self, words: list[bytes]) -> cython.void:
        """Execute a record, or keep it until its transaction is complete."""
        name: bytes = words[0]
        self.record_count += 1
        if len(words) == 1:
            name = name.upper()
            if name == b"MULTI":
                self._begin_transaction()
                return
            if name == b"EXEC":
                self._end_transaction()
                return
        if self.transaction_offset != NO_OFFSET:
            self.transaction_records.append((self.record_offset, words))
            return
        self._execute(self.record_offset, words)
        self.valid_end = self._offset()

    @cython.cfunc
    def _begin_transaction(self) -> cython.void:
        if self.transaction_offset != NO_OFFSET:
            raise Damaged(
                self.record_offset,
                f"a MULTI inside the transaction that began at byte {self.transaction_offset}",
                self.name,
                ADVICE,
            )
        self.transaction_offset = self.record_offset

    @cython.cfunc
    def _end_transaction(self) -> cython.void:
        if self.transaction_offset == NO_OFFSET:
            raise Damaged(self.record_offset, "an EXEC without a MULTI", self.name, ADVICE)
        for offset, words in self.transaction_records:
            self._execute(offset, words)
        self.transaction_records = []
        self.transaction_offset = NO_OFFSET
        self.valid_end = self._offset()

    @cython.cfunc
    def _execute(self, offset: cython.longlong, words: list[bytes]) -> cython.void:
        try:
            error = self.execute(words)
        except ForeignCommand as foreign:
            raise ForeignDataError(offset, str(foreign), self.name) from None
        except CommandError as impossible:
            raise Damaged(offset, str(impossible), self.name, ADVICE) from None
        self.command_count += 1
        if error is not None:
            if self.failed_command_count == 0:
                self.first_failed_offset = offset
                self.first_error = error
            self.failed_command_count += 1

    # Checksums.

    @cython.cfunc
    @cython.exceptval(check=False)
    def _update_crc(self) -> cython.void:
        """Continue the CRC up to `at`."""
        n: cython.Py_ssize_t
        if self.is_checksummed:
            n = self._offset() - self.crc_end
            self.crc = crc32c.update(self.crc, self.p, self.at - n, n)
            self.crc_end += n

    @cython.cfunc
    def _verify(self, line: bytes) -> cython.void:
        """Compare a #CRC line, which begins at `at`, with the bytes since the last one."""
        self._update_crc()
        if (
            line != CHECKSUM_START and not self.is_checksummed
        ):  # a wrong byte in the start: the rest has no checksum
            raise Damaged(
                self.record_offset,
                "a checksum of records whose beginning is unknown",
                self.name,
                UNCHECKED_ADVICE,
            )
        if line != CHECKSUM_START and line != checksum_line(self.crc):
            self.valid_end = self.verified_end
            what = f"the records up to byte {self.record_offset} do not have the checksum that follows them"
            raise Damaged(self.verified_end, what, self.name, UNCHECKED_ADVICE)
        self.is_checksummed = True
        self.crc = 0
        self.crc_end = self.verified_end = self.record_offset + len(line)

    def _expect_torn_end(self) -> None:
        """Raise Damaged if a commit with a correct checksum follows the incomplete record."""
        rest: bytes = mem.to_bytes(self.p, self.at, self.filled - self.at)
        rest += self.source.read(INTACT_SEARCH_MAX)
        at: cython.Py_ssize_t = rest.find(CHECKSUM_PREFIX)
        following: cython.Py_ssize_t
        while at >= 0:
            at = rest.find(b"\n", at) + 1
            following = rest.find(CHECKSUM_PREFIX, at)
            if at == 0 or following < 0:
                return
            if rest.startswith(checksum_line(crc32c.crc32c(rest[at:following])), following):
                what = f"{self._describe_next_bytes()} is not the beginning of a record: whole commits follow"
                raise Damaged(self.valid_end, what, self.name, ADVICE)
            at = following

    @cython.cfunc
    def _damaged(self, what: str) -> Damaged:
        """Return the exception for the byte at `at`."""
        return Damaged(self._offset(), what, self.name, ADVICE)

    @cython.cfunc
    def _describe_next_bytes(self) -> str:
        """Describe the bytes at `at`; a power cut can leave a long run of zeros."""
        zeros: cython.Py_ssize_t = 0
        p: cython.p_uchar = self.p
        while self.at + zeros < self.filled and p[self.at + zeros] == 0:
            zeros += 1
        if zeros > 1:
            last = self.at + zeros == self.filled and self.bytes_read >= self.size
            return f"{zeros} zero bytes" + (", up to the end of the file" if last else "")
        return repr(mem.to_bytes(p, self.at, min(self.filled - self.at, 16)))[1:]


def checksum_line(crc: int) -> bytes:
    """Return the line that follows the bytes of a commit."""
    return CHECKSUM_PREFIX + b"%08x\r\n" % crc
