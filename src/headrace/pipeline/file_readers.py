"""Read CSV, JSON lines and Parquet files as batches of columns, a few megabytes at a time.

CSV values keep their text: `007` and `1.50` reach the stream unchanged. A row that cannot be read is yielded
in its place as a BadRow, so that the rows before and after it can be loaded.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zipfile
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet

from headrace.errors import UsageError
from headrace.pipeline.csv_records import BadRow, CsvParser, LineReader, RecordSplitter, excerpt, header_names
from headrace.pipeline.standard_input import standard_input
from headrace.spark.decode.nested_json import float_text, json_text

BLOCK_BYTES = 4 * 1024 * 1024
BUFFER_BYTES = 1 << 18
FORMATS_BY_SUFFIX = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json",
    ".parquet": "parquet",
}  # fmt: skip
COMPRESSIONS = (".gz", ".zip")
STDIN = Path("-")
GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"
EXACT_FLOAT_CHARACTERS = 15  # a decimal number of at most so many characters is exact as a double
Rows = Iterator[pa.RecordBatch | BadRow]


class FileReader(AbstractContextManager["FileReader"]):
    """Reads a file, or standard input for the path `-`.

    Args:
        path: The file.
        null_values: Texts in CSV that mean no value.
        delimiter: The CSV delimiter; None for a comma, or a tab in .tsv files.
        encoding: The text encoding of CSV or JSON lines.

    Attributes:
        name: The file's name for messages.
        format: "csv", "json" or "parquet".
        compression: ".gz", ".zip" or "".
        size: The file's size in bytes, for Parquet in rows; 0 if unknown.
        header: The first record of a CSV file, in UTF-8.

    Raises:
        UsageError: if the format is not known, or an option does not fit it.
    """

    def __init__(
        self,
        path: Path,
        null_values: tuple[str, ...] = ("",),
        delimiter: str | None = None,
        encoding: str = "utf-8",
    ) -> None:
        self.path = path
        self.name = "standard input" if path == STDIN else str(path)
        self.null_values = null_values
        self.size = 0
        self.header = b""
        self._read = 0
        self._open: list[IO[bytes]] = []
        self._measure: IO[bytes] | None = None
        self._stdin: io.BufferedReader | None = None
        self._encoding = normalize_encoding(encoding)
        self.format, self.compression = self._detect_stdin() if path == STDIN else detect_format(path)
        if self.format != "csv" and any(null_values):
            raise UsageError(f"{self.name}: --null is for CSV, and this is {FORMAT_NAMES[self.format]}")
        if delimiter is not None and self.format != "csv":
            raise UsageError(f"{self.name}: --delimiter is for CSV, and this is {FORMAT_NAMES[self.format]}")
        if self.format == "parquet" and self._encoding != "utf-8":
            raise UsageError(f"{self.name}: --encoding is for text, and this is {FORMAT_NAMES[self.format]}")
        by_name = "\t" if ".tsv" in path.suffixes else ","
        self.delimiter = by_name if delimiter is None else parse_delimiter(delimiter)

    def __exit__(self, *failure: object) -> None:
        while self._open:
            self._open.pop().close()

    @property
    def position(self) -> int:
        """How much of `size` has been read: bytes, or rows of a Parquet file."""
        if self._measure is None:
            return self._read
        return self.size if self._measure.closed else self._measure.tell()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the file's order.

        Raises:
            UsageError: at the first row that cannot be read, or if the file cannot be.
        """
        for rows in self.rows():
            if isinstance(rows, BadRow):
                raise UsageError(f"{self.name}: {rows}")
            yield rows

    def rows(self) -> Rows:
        """Yield the rows in the file's order, and a BadRow for each that cannot be read.

        Raises:
            UsageError: if the file cannot be read, or its columns have no names.
        """
        reader = {"csv": self._csv, "json": self._json, "parquet": self._parquet}[self.format]
        try:
            yield from reader()
        except (pa.ArrowInvalid, OSError, EOFError, zipfile.BadZipFile, UnicodeError) as error:
            raise UsageError(f"{self.name}: {first_line(error)}") from error

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
            raise UsageError(f"{self.name}: {first_line(error)}") from error
        if first_bytes.startswith(PARQUET_MAGIC):
            raise UsageError("standard input holds Parquet, which cannot be read from a pipe; give a file")
        is_json = first_bytes.lstrip(b"\xef\xbb\xbf\x00 \t\r\n").startswith(b"{")
        return "json" if is_json else "csv", compression

    def _bytes(self) -> IO[bytes]:
        if self._stdin is not None:
            return cast(IO[bytes], self._stdin)
        file: IO[bytes] = self.path.open("rb")
        self._open.append(file)
        self.size = self.path.stat().st_size
        self._measure = file
        if self.compression == ".gz":
            file = cast(IO[bytes], buffered_reader(gzip.GzipFile(fileobj=file)))
        elif self.compression == ".zip":
            archive = zipfile.ZipFile(file)
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) != 1:
                raise UsageError(f"{self.path}: holds {len(members)} files, expected one")
            member = archive.open(members[0])
            self.size = members[0].file_size
            self._measure = member
            file = cast(IO[bytes], buffered_reader(member))
        self._open.append(file)
        return file

    def _lines(self) -> LineReader:
        """Return the file's lines in UTF-8."""
        file = self._bytes()
        return cast(LineReader, file) if self._encoding == "utf-8" else TranscodedLines(file, self._encoding)

    def _csv(self) -> Rows:
        splitter = RecordSplitter(self._lines(), self.delimiter.encode())
        header, block = splitter.first_record(BLOCK_BYTES)
        if header.unclosed:
            raise UsageError(f"{self.name}: line {header.number}: a quoted column name is not closed")
        self.header = header.records[0] if header.records else b""
        names = check_column_names(self.name, header_names(self.header, self.delimiter), self.delimiter)
        parser = CsvParser(names, self.delimiter, self.null_values)
        while block is not None:
            yield from parser.rows(block)
            block = splitter.block(BLOCK_BYTES)

    def _json(self) -> Rows:
        file = self._lines()
        number = 0
        while lines := file.readlines(BLOCK_BYTES):
            rows = []
            for line in lines:
                number += 1
                if not line.strip():
                    continue
                row = json_object(line, number)
                if not isinstance(row, BadRow):
                    rows.append(row)
                    continue
                if rows:
                    yield text_batch(rows)
                    rows = []
                yield row
            if rows:
                yield text_batch(rows)

    def _parquet(self) -> Rows:
        with pyarrow.parquet.ParquetFile(self.path) as file:
            self.size = file.metadata.num_rows
            check_column_names(self.name, file.schema_arrow.names)
            for batch in file.iter_batches():
                self._read += batch.num_rows
                yield batch


FORMAT_NAMES = {"csv": "CSV", "json": "JSON lines", "parquet": "Parquet"}


class FileProgress:
    """Tracks which position of a file is loaded; the reader itself is ahead of it."""

    def __init__(self, reader: FileReader) -> None:
        self._reader = reader
        self._known_positions: deque[tuple[int, int]] = deque()  # (rows read, position then)
        self._reached = (0, 0)

    def track(self, rows: Rows) -> Rows:
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


class TranscodedLines:
    """Reads the lines of a file in another encoding as UTF-8.

    Bytes that are not valid in the encoding are passed through; they make their row a bad row.
    """

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        self._text = io.TextIOWrapper(file, encoding, errors="surrogateescape", newline="")

    def readlines(self, hint: int, /) -> list[bytes]:
        """Return whole lines of about `hint` characters."""
        return [line.encode(errors="surrogateescape") for line in self._text.readlines(hint)]

    def readline(self) -> bytes:
        """Return one line; empty at the end."""
        return self._text.readline().encode(errors="surrogateescape")


def buffered_reader(file: object) -> io.BufferedReader:
    """Return a compressed file with a buffer, which makes reading its lines several times faster."""
    return io.BufferedReader(cast(io.RawIOBase, file), BUFFER_BYTES)


def normalize_encoding(name: str) -> str:
    """Return Python's name of a text encoding. UsageError if it is unknown."""
    try:
        found = codecs.lookup(name)
        "".encode(name)  # a codec from bytes to bytes, such as base64, cannot do this
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"--encoding {name}: unknown encoding; expected a name such as utf-8, latin-1 or cp1252"
        ) from error
    return found.name


def parse_delimiter(text: str) -> str:
    """Return the character that separates values. UsageError if it is not one ASCII character."""
    found = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(found) != 1 or not found.isascii() or found in '"\r\n\0':
        raise UsageError(f"--delimiter {text!r}: expected one ASCII character, such as ';', '|' or tab")
    return found


def detect_format(path: Path) -> tuple[str, str]:
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


def check_column_names(file: str, names: list[str], delimiter: str = "") -> list[str]:
    """Return the column names. UsageError if there is none, or one occurs twice."""
    if not names:
        raise UsageError(f"{file}: is empty, expected a line of column names")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        hint = f" (the delimiter is {delimiter!r})" if delimiter not in ("", ",") else ""
        raise UsageError(f"{file}: has two columns named {twice[0]!r}{hint}")
    return names


def json_object(line: bytes, number: int) -> dict[str, Any] | BadRow:
    """Return the object on a line, or a BadRow with the reason why there is none."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        row = json.loads(text, parse_float=exact_float, object_pairs_hook=unique_key_object)
    except UnicodeDecodeError:
        return BadRow(number, f"not UTF-8 (--encoding names another encoding): {excerpt(line)}", line)
    except (ValueError, RecursionError) as error:
        return BadRow(number, f"not JSON: {first_line(error)}", line)
    if not isinstance(row, dict):
        return BadRow(number, f"not a JSON object, expected one object a line: {excerpt(line)}", line)
    try:
        return {name: field_text(value) for name, value in row.items()}
    except UnicodeEncodeError:
        return BadRow(
            number, f"contains half a surrogate pair, which is not a character: {excerpt(line)}", line
        )
    except RecursionError as error:
        return BadRow(number, f"nested too deeply: {first_line(error)}", line)


def unique_key_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. ValueError if a key occurs twice, because one value would be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} occurs twice")
    return found


def exact_float(text: str) -> float | Decimal:
    """Return a JSON number as a double; as a decimal if a double would change it."""
    value = float(text)
    if len(text) <= EXACT_FLOAT_CHARACTERS and "e" not in text and "E" not in text:
        return value
    exact = Decimal(text)
    return value if exact == Decimal(repr(value)) else exact


def text_batch(rows: list[dict[str, str | None]]) -> pa.RecordBatch:
    """Return JSON objects as columns of text, in the order in which their keys first appear."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [pa.array([row.get(name) for row in rows], pa.string()) for name in names]
    return pa.RecordBatch.from_arrays(columns, names)


def field_text(value: object) -> str | None:
    """Return a JSON value as a field's text: strings as they are, the rest as JSON, null left out."""
    if value is None:
        return None
    if isinstance(value, float):
        return float_text(value)
    text = value if isinstance(value, str) else json_text(value)
    text.encode()  # UnicodeEncodeError for half a surrogate pair
    return text


def first_line(error: Exception) -> str:
    """Return the first line of an error message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
