"""Read CSV, JSON lines and Parquet files as batches of columns, a few megabytes at a time.

CSV values keep their text: `007` and `1.50` reach the stream unchanged. A row that cannot be read is yielded
in its place as a BadRow, so that the rows before and after it can be loaded.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, cast

import pyarrow as pa

from headrace.errors import UsageError
from headrace.pipeline.file_formats.csv_records import (
    BadRow,
    CsvParser,
    RecordSplitter,
    delimiter_of_sep_line,
    guess_delimiter,
    header_lines,
    header_names,
)
from headrace.pipeline.file_formats.json_rows import parse_lines_or_array
from headrace.pipeline.file_formats.parquet_rows import ParquetRows
from headrace.pipeline.file_formats.text_lines import (
    BUFFER_BYTES,
    PushedBackLines,
    buffered_reader,
    normalize_encoding,
    text_lines_and_newline,
)
from headrace.pipeline.shared.standard_input import standard_input

BLOCK_BYTES = 4 * 1024 * 1024
FORMATS_BY_SUFFIX = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json",
    ".parquet": "parquet",
}  # fmt: skip
COMPRESSIONS = (".gz", ".zip")
STDIN_PATH = Path("-")
GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"

# What the libraries raise for a file that is damaged, encrypted or of another format.
READ_ERRORS = (
    pa.ArrowException, OSError, EOFError, ValueError, OverflowError, zlib.error, zipfile.BadZipFile,
    RuntimeError, MemoryError,
)  # fmt: skip
BatchesAndBadRows = Iterator[pa.RecordBatch | BadRow]


class FileReader(AbstractContextManager["FileReader"]):
    """Reads a file, or standard input for the path `-`.

    Args:
        path: The file.
        null_values: Texts in CSV that mean no value.
        delimiter: The CSV delimiter; None to detect it: the one that a first line such as `sep=;` names,
            else a tab in .tsv files, else a semicolon, tab or | if the header has no comma, else a comma.
        encoding: The text encoding of CSV or JSON lines. UTF-16 is also recognized by its byte order mark.

    Attributes:
        name: The file's name for messages.
        format: "csv", "json" or "parquet".
        compression: ".gz", ".zip" or "".
        size: The file's size in bytes, for Parquet in rows; 0 if unknown.
        header: The first record of a CSV file, in UTF-8.
        delimiter: The CSV delimiter.
        found_delimiter: The delimiter that the first line shows, if it is not the default; else empty.

    Raises:
        UsageError: if there is no such file, its format is not known, or an option does not fit the format.
    """

    def __init__(
        self,
        path: Path,
        null_values: tuple[str, ...] = ("",),
        delimiter: str | None = None,
        encoding: str = "utf-8",
    ) -> None:
        self.path = path
        self.name = "standard input" if path == STDIN_PATH else str(path)
        self.null_values = null_values
        self.size = 0
        self.header = b""
        self.found_delimiter = ""
        self._rows_read = 0
        self._open_files: list[IO[bytes]] = []
        self._position_file: IO[bytes] | None = None
        self._stdin: io.BufferedReader | None = None
        self._encoding = normalize_encoding(encoding)
        self.format, self.compression = (
            self._detect_stdin() if path == STDIN_PATH else detect_format_and_compression(path)
        )
        if self.format != "csv" and any(null_values):
            raise UsageError(f"{self.name}: --null is for CSV, and this is {FORMAT_NAMES[self.format]}")
        if delimiter is not None and self.format != "csv":
            raise UsageError(f"{self.name}: --delimiter is for CSV, and this is {FORMAT_NAMES[self.format]}")
        if self.format == "parquet" and self._encoding != "utf-8":
            raise UsageError(f"{self.name}: --encoding is for text, and this is {FORMAT_NAMES[self.format]}")
        self._given_delimiter = "" if delimiter is None else parse_delimiter(delimiter)
        is_tsv = ".tsv" in map(str.lower, path.suffixes)
        self.delimiter = self._given_delimiter or ("\t" if is_tsv else ",")

    def __exit__(self, *failure: object) -> None:
        while self._open_files:
            self._open_files.pop().close()

    @property
    def position(self) -> int:
        """How much of `size` has been read: bytes, or rows of a Parquet file."""
        if self._position_file is None:
            return self._rows_read
        return self.size if self._position_file.closed else self._position_file.tell()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the file's order.

        Raises:
            UsageError: at the first row that cannot be read, or if the file cannot be read.
        """
        for rows in self.batches_and_bad_rows():
            if isinstance(rows, BadRow):
                raise UsageError(f"{self.name}: {rows}")
            yield rows

    def batches_and_bad_rows(self) -> BatchesAndBadRows:
        """Yield the rows in the file's order, and a BadRow for each that cannot be read.

        Raises:
            UsageError: if the file cannot be read, has no column names, or has two columns of the same name.
        """
        reader = {"csv": self._csv, "json": self._json, "parquet": self._parquet}[self.format]
        try:
            yield from reader()
        except READ_ERRORS as error:
            raise UsageError(f"{self.name}: {first_line_of_error(error)}") from error

    def _detect_stdin(self) -> tuple[str, str]:
        """Detect the format and compression of standard input by its first bytes."""
        source = standard_input()
        compression = ".gz" if source.peek(2)[:2] == GZIP_MAGIC else ""
        if compression:
            source = buffered_reader(gzip.GzipFile(fileobj=source))
        self._stdin = source
        try:
            first_bytes = source.peek(64)[:64]
        except (OSError, EOFError) as error:
            raise UsageError(f"{self.name}: {first_line_of_error(error)}") from error
        if first_bytes.startswith(PARQUET_MAGIC):
            raise UsageError("standard input holds Parquet, which cannot be read from a pipe; give a file")
        # The bytes of a byte order mark, and the null bytes of UTF-16, are left out.
        text = first_bytes.translate(None, b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n")
        is_json = text.startswith((b"{", b"[{", b"[]"))
        return "json" if is_json else "csv", compression

    def _open_bytes(self) -> io.BufferedReader:
        if self._stdin is not None:
            return self._stdin
        file = cast(io.BufferedReader, self.path.open("rb", BUFFER_BYTES))
        self._open_files.append(file)
        self.size = self.path.stat().st_size
        self._position_file = file
        if self.compression == ".gz":
            file = buffered_reader(gzip.GzipFile(fileobj=file))
        elif self.compression == ".zip":
            archive = zipfile.ZipFile(file)
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) != 1:
                raise UsageError(f"{self.path}: holds {len(members)} files, expected one")
            member = archive.open(members[0])
            self.size = members[0].file_size
            self._position_file = member
            file = buffered_reader(member)
        self._open_files.append(file)
        return file

    def _csv(self) -> BatchesAndBadRows:
        file, newline = text_lines_and_newline(self._open_bytes(), self._encoding)
        number = 1
        first = header_lines(file)
        found = self.delimiter
        if first and (named := delimiter_of_sep_line(first[0])):  # Excel's own line is not part of the table
            found, number = named, 2
            del first[0]
        elif self.delimiter == ",":
            found = guess_delimiter(b"".join(first))
        if not self._given_delimiter and found != self.delimiter:
            self.delimiter = self.found_delimiter = found
        lines = PushedBackLines(first, file)
        splitter = RecordSplitter(lines, self.delimiter.encode(), newline, number)
        header, block = splitter.first_record_and_rest(BLOCK_BYTES)
        if header.unclosed_record_indexes:
            raise UsageError(
                f"{self.name}: line {header.first_line_number}: a quoted column name is not closed"
            )
        self.header = header.records[0] if header.records else b""
        try:
            names = header_names(self.header, self.delimiter)
        except UsageError as error:
            raise UsageError(f"{self.name}: line {header.first_line_number}: {error}") from error
        checked_column_names(self.name, names, self.delimiter)
        parser = CsvParser(names, self.delimiter, self.null_values)
        while block is not None:
            yield from parser.batches_and_bad_rows(block)
            block = splitter.next_block(BLOCK_BYTES)

    def _json(self) -> BatchesAndBadRows:
        file, _ = text_lines_and_newline(self._open_bytes(), self._encoding)
        try:
            yield from parse_lines_or_array(file, BLOCK_BYTES)
        except UsageError as error:
            raise UsageError(f"{self.name}: {error}") from error

    def _parquet(self) -> BatchesAndBadRows:
        with ParquetRows(self.path) as file:
            self.size = file.num_rows
            checked_column_names(self.name, file.names)
            try:
                for batch in file.batches():
                    self._rows_read += batch.num_rows
                    yield batch
            except UsageError as error:
                raise UsageError(f"{self.name}: {error}") from error


FORMAT_NAMES = {"csv": "CSV", "json": "JSON lines", "parquet": "Parquet"}


class FileProgress:
    """Tracks up to which position a file is loaded; the reader has read further."""

    def __init__(self, reader: FileReader) -> None:
        self._reader = reader
        self._known_positions: deque[tuple[int, int]] = deque()  # (rows read, position then)
        self._reached = (0, 0)

    def track(self, rows: BatchesAndBadRows) -> BatchesAndBadRows:
        """Yield the same rows, and record their positions."""
        read = 0
        for each in rows:
            read += 1 if isinstance(each, BadRow) else each.num_rows
            self._known_positions.append((read, self._reader.position))
            yield each

    def position_after(self, rows: int) -> int:
        """Return the position in the file after its first `rows` rows, in the unit of FileReader.size.

        It is interpolated between two recorded positions.
        """
        while self._known_positions and self._known_positions[0][0] <= rows:
            self._reached = self._known_positions.popleft()
        start_rows, start = self._reached
        if not self._known_positions:
            return start
        end_rows, end = self._known_positions[0]
        return start + (end - start) * max(0, rows - start_rows) // (end_rows - start_rows)


def parse_delimiter(text: str) -> str:
    """Return the character that separates values. UsageError if it is not one ASCII character."""
    found = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(found) != 1 or not found.isascii() or found in '"\r\n\0':
        raise UsageError(f"--delimiter {text!r}: expected one ASCII character, such as ';', '|' or tab")
    return found


def detect_format_and_compression(path: Path) -> tuple[str, str]:
    """Return the format and compression of a file by its name. UsageError if it cannot be loaded."""
    if not path.exists():
        raise UsageError(f"{path}: no such file")
    if path.is_dir():
        raise UsageError(f"{path}: is a directory, expected a file")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    kind = FORMATS_BY_SUFFIX.get(suffixes[-1] if suffixes else "", "")
    if not kind or (kind == "parquet" and compression):
        raise UsageError(
            f"{path}: unknown file type; expected .csv, .tsv, .jsonl (also .gz, .zip) or .parquet; "
            "pipe CSV or JSON lines of another name into `headrace load -`"
        )
    return kind, compression


def checked_column_names(file: str, names: list[str], delimiter: str = "") -> list[str]:
    """Return the column names. UsageError if there is none, or one occurs twice."""
    if not names:
        raise UsageError(f"{file}: is empty, expected a line of column names")
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        hint = f" (the delimiter is {delimiter!r})" if delimiter not in ("", ",") else ""
        raise UsageError(f"{file}: has two columns named {twice[0]!r}{hint}")
    return names


def first_line_of_error(error: Exception) -> str:
    """Return the first line of an error message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
