"""Split a CSV file into records, so that a bad record can be reported and skipped.

A record is a line, or several lines if a quoted value has line breaks. Arrow parses whole blocks of records.
Only a block that Arrow rejects is bisected to find its bad records.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.csv

from headrace.errors import UsageError
from headrace.pipeline.file_formats.text_lines import LineReader
from headrace.plurals import plural

QUOTE = b'"'
RECORD_BYTES_MAX = 16 * 1024 * 1024
HEADER_BYTES_MAX = 1024 * 1024  # in which the header ends; otherwise a quoted name is not closed
EXCERPT_CHARACTERS = 80
SEP_LINE_PATTERN = re.compile(rb'(?:\xef\xbb\xbf)?"?sep=([!-~\t])"?[\r\n]*', re.IGNORECASE)
QUOTED_TEXT_PATTERN = re.compile(rb'"[^"]*(?:"|\Z)')
OTHER_DELIMITERS = (";", "\t", "|")  # in files of spreadsheets and databases


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be loaded, and the reason.

    Attributes:
        line_number: The number of its first line, from 1; 0 if `row_number` is given instead.
        reason: What is wrong with it.
        text: Its bytes; empty if `values` is given instead.
        row_number: The number of the row, from 1; 0 if `line_number` is given instead.
        values: Its values by column; empty if `text` is given instead.
    """

    line_number: int
    reason: str
    text: bytes = b""
    row_number: int = 0
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f"line {self.line_number}" if self.line_number else f"row {self.row_number}"
        return f"{where}: {self.reason}"


@dataclass(frozen=True)
class RecordBlock:
    """Consecutive records.

    Attributes:
        first_line_number: The line number of the first one.
        records: Their bytes with line ends; blank lines are included.
        unclosed_record_indexes: Indexes of the records with an opening quote that is never closed.
        newline: The character that ends lines.
    """

    first_line_number: int
    records: list[bytes]
    unclosed_record_indexes: frozenset[int] = frozenset()
    newline: bytes = b"\n"


class RecordSplitter:
    """Reads blocks of whole records from a file.

    Args:
        file: The lines.
        delimiter: The delimiter.
        newline: The character that ends lines.
        number: The number of the first line.
    """

    def __init__(self, file: LineReader, delimiter: bytes, newline: bytes = b"\n", number: int = 1) -> None:
        self._file = file
        self._newline = newline
        d = re.escape(delimiter)
        value = rb'(?:"(?:[^"]++|"")*+"[^%b]*+|[^"%b][^%b]*+|)' % (d, d, d)
        self._whole_record_pattern = re.compile(rb"%b(?:%b%b)*+" % (value, d, value), re.DOTALL)
        self._opening_quote_pattern = re.compile(rb'(?:\A|%b)"' % d)
        self._closing_quote_pattern = re.compile(rb'(?:[^"]++|"")*+"')
        self._next_line_number = number

    def first_record_and_rest(self, size: int) -> tuple[RecordBlock, RecordBlock | None]:
        """Return the first record that is not blank, and the rest of its block.

        Return an empty block and None if there is no such record.
        """
        block = self.next_block(size)
        while block is not None:
            for at, record in enumerate(block.records):
                if record.strip(b"\r\n"):
                    head = self._part(block, at, at + 1)
                    return head, self._part(block, at + 1, len(block.records))
            block = self.next_block(size)
        return RecordBlock(1, []), None

    @staticmethod
    def _part(block: RecordBlock, start: int, stop: int) -> RecordBlock:
        number = block.first_line_number + sum(
            record.count(block.newline) for record in block.records[:start]
        )
        unclosed = frozenset(at - start for at in block.unclosed_record_indexes if start <= at < stop)
        return RecordBlock(number, block.records[start:stop], unclosed, block.newline)

    def next_block(self, size: int) -> RecordBlock | None:
        """Return the next block; None at the end."""
        lines = self._file.readlines(size)
        if not lines:
            return None
        number = self._next_line_number
        records, unclosed = self._records(lines)
        self._next_line_number += sum(record.count(self._newline) for record in records)
        return RecordBlock(number, records, unclosed, self._newline)

    def _records(self, lines: list[bytes]) -> tuple[list[bytes], frozenset[int]]:
        if QUOTE not in b"".join(lines):
            return lines, frozenset()
        records: list[bytes] = []
        unclosed = set()
        at = 0
        while at < len(lines):
            if QUOTE not in lines[at] or self._whole_record_pattern.fullmatch(lines[at]):
                records.append(lines[at])
                at += 1
                continue
            stop = self._record_end(lines, at)
            if stop is None:
                unclosed.add(len(records))
                stop = at + 1
            records.append(b"".join(lines[at:stop]))
            at = stop
        return records, frozenset(unclosed)

    def _record_end(self, lines: list[bytes], at: int) -> int | None:
        """Return the index after the record that begins at lines[at]; None if its quote is not closed.

        Lines that are read to find the end are added to `lines`.
        """
        inside, size = self._ends_inside_quotes(lines[at], False), len(lines[at])
        while inside:
            at += 1
            if at == len(lines):
                more = self._file.readline()
                if not more:
                    return None
                lines.append(more)
            size += len(lines[at])
            if size > RECORD_BYTES_MAX:
                return None
            inside = self._ends_inside_quotes(lines[at], True)
        return at + 1

    def _ends_inside_quotes(self, line: bytes, inside: bool) -> bool:
        """Return whether a line ends within a quoted value; inside: whether it begins within one."""
        at = 0
        while True:
            match = (
                self._closing_quote_pattern.match(line, at)
                if inside
                else self._opening_quote_pattern.search(line, at)
            )
            if match is None:
                return inside
            at, inside = match.end(), not inside


class CsvParser:
    """Parses blocks of records as columns of text."""

    def __init__(self, names: Sequence[str], delimiter: str, null_values: Sequence[str]) -> None:
        self._names = list(names)
        self._parse_options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        self._convert_options = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=list(null_values),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def batches_and_bad_rows(self, block: RecordBlock) -> Iterator[pa.RecordBatch | BadRow]:
        """Yield the valid rows of a block and, in their places, the bad ones."""
        if not block.unclosed_record_indexes:
            try:
                yield from self._batches(b"".join(block.records))
                return
            except pa.ArrowInvalid:
                pass
        yield from self._bisected(block, 0, len(block.records), self._line_numbers(block))

    @staticmethod
    def _line_numbers(block: RecordBlock) -> list[int]:
        """Return the number of the first line of each record of a block."""
        numbers, number = [], block.first_line_number
        for record in block.records:
            numbers.append(number)
            number += record.count(block.newline)
        return numbers

    def _bisected(
        self, block: RecordBlock, start: int, stop: int, numbers: list[int]
    ) -> Iterator[pa.RecordBatch | BadRow]:
        """Yield the rows of some records: all of them, or those of one half and then of the other."""
        if start == stop:
            return
        if start + 1 == stop and start in block.unclosed_record_indexes:
            yield BadRow(numbers[start], "a quoted value is not closed", block.records[start])
            return
        if block.unclosed_record_indexes.isdisjoint(range(start, stop)):
            try:
                yield from self._batches(b"".join(block.records[start:stop]))
                return
            except pa.ArrowInvalid as error:
                if start + 1 == stop:
                    yield BadRow(
                        numbers[start], self._reason(block.records[start], error), block.records[start]
                    )
                    return
        middle = (start + stop) // 2
        yield from self._bisected(block, start, middle, numbers)
        yield from self._bisected(block, middle, stop, numbers)

    def _batches(self, data: bytes) -> list[pa.RecordBatch]:
        if not data:
            return []
        read = pyarrow.csv.ReadOptions(column_names=self._names, block_size=len(data) + 1, use_threads=False)
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=read,
            parse_options=self._parse_options,
            convert_options=self._convert_options,
        )
        return [batch for batch in table.to_batches() if batch.num_rows]

    def _reason(self, record: bytes, error: Exception) -> str:
        message = str(error)
        if "columns, got" in message:
            found = message.partition("columns, got ")[2].partition(":")[0]
            return f"expected {plural(len(self._names), 'column')}, found {found}: {excerpt(record)}"
        if "UTF8" in message:
            return f"not UTF-8 (--encoding names another encoding): {excerpt(record)}"
        return f"{message.splitlines()[0]}: {excerpt(record)}"


def excerpt(text: bytes) -> str:
    """Return the beginning of a row for a message, with control characters escaped."""
    shown = text.rstrip(b"\r\n").decode(errors="backslashreplace")
    return repr(shown[:EXCERPT_CHARACTERS]) + ("…" if len(shown) > EXCERPT_CHARACTERS else "")


def header_names(record: bytes, delimiter: str) -> list[str]:
    """Return the column names of a CSV file's first record.

    Raises:
        UsageError: if they are not UTF-8, or contain null characters.
    """
    try:
        text = record.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"the column names are not UTF-8 (--encoding names another encoding): {excerpt(record)}"
        ) from error
    if "\0" in text:
        raise UsageError(
            f"the column names have null characters, as in UTF-16 without a byte order mark (--encoding "
            f"utf-16-le names it): {excerpt(record)}"
        )
    return next(csv.reader(text.splitlines(keepends=True), delimiter=delimiter), [])


def delimiter_of_sep_line(line: bytes) -> str:
    """Return the delimiter that Excel's first line names, such as `sep=;`; empty if the line is not one."""
    match = SEP_LINE_PATTERN.fullmatch(line)
    return match[1].decode() if match else ""


def header_lines(file: LineReader) -> list[bytes]:
    """Return the first lines of a file up to the end of the header: a name may have line breaks."""
    lines: list[bytes] = []
    quotes = size = 0
    while (not any(line.strip() for line in lines) or quotes % 2) and size < HEADER_BYTES_MAX:
        line = file.readline()
        if not line:
            break
        lines.append(line)
        quotes += line.count(QUOTE)
        size += len(line)
    return lines


def guess_delimiter(header: bytes) -> str:
    """Return the delimiter of a header: a semicolon, tab or | if it has no comma; else a comma."""
    names = QUOTED_TEXT_PATTERN.sub(b"", header)
    if b"," in names:
        return ","
    return next((d for d in OTHER_DELIMITERS if d.encode() in names), ",")
