"""Files as batches of columns: CSV, JSON lines and Parquet, a few megabytes at a time.

CSV values keep their text: `007` and `1.50` reach the stream as they stand in the file. A row that cannot be
read is yielded as a BadRow in its place, so that the rows before it can be loaded, and the rows after it too.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet

from headrace.errors import UsageError
from headrace.pipeline.csv_records import BadRow, CsvParser, Lines, RecordCutter, excerpt, header_names
from headrace.pipeline.standard_input import standard_input
from headrace.spark.decode.nested_json import float_text, json_text

BLOCK_BYTES = 4 * 1024 * 1024
BUFFER_BYTES = 1 << 18
KINDS = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json",
    ".parquet": "parquet",
}  # fmt: skip
PACKED = (".gz", ".zip")
STDIN = Path("-")
GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"
SHORT_FLOAT = 15  # characters: a decimal of so few digits is one double, and no other
Rows = Iterator[pa.RecordBatch | BadRow]


class Table(AbstractContextManager["Table"]):
    """A file that is being read, or standard input for the path `-`.

    `position` of `size` says how far, in bytes of the file, or rows of Parquet; `size` is 0 if it is unknown.
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
        self.header = b""  # the first record of a CSV file, in UTF-8
        self._read = 0
        self._open: list[IO[bytes]] = []
        self._measure: IO[bytes] | None = None
        self._stdin: io.BufferedReader | None = None
        self._encoding = encoding_name(encoding)
        self.kind, self.packing = self._peek() if path == STDIN else kind_of(path)
        if self.kind != "csv" and any(null_values):
            raise UsageError(f"{self.name}: --null is for CSV, and this is {KIND_NAMES[self.kind]}")
        if delimiter is not None and self.kind != "csv":
            raise UsageError(f"{self.name}: --delimiter is for CSV, and this is {KIND_NAMES[self.kind]}")
        if self.kind == "parquet" and self._encoding != "utf-8":
            raise UsageError(f"{self.name}: --encoding is for text, and this is {KIND_NAMES[self.kind]}")
        by_name = "\t" if ".tsv" in path.suffixes else ","
        self.delimiter = by_name if delimiter is None else delimiter_of(delimiter)

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
        reader = {"csv": self._csv, "json": self._json, "parquet": self._parquet}[self.kind]
        try:
            yield from reader()
        except (pa.ArrowInvalid, OSError, EOFError, zipfile.BadZipFile, UnicodeError) as error:
            raise UsageError(f"{self.name}: {one_line(error)}") from error

    def _peek(self) -> tuple[str, str]:
        """Return what standard input holds, by its first bytes, and how it is packed."""
        source = standard_input()
        packing = ".gz" if source.peek(2)[:2] == GZIP_MAGIC else ""
        if packing:
            source = buffered(gzip.GzipFile(fileobj=source))
        self._stdin = source
        try:
            begin = source.peek(64)[:64]
        except (OSError, EOFError) as error:
            raise UsageError(f"{self.name}: {one_line(error)}") from error
        if begin.startswith(PARQUET_MAGIC):
            raise UsageError("standard input holds Parquet, which is read from its end: give a file")
        return ("json" if begin.lstrip(b"\xef\xbb\xbf\x00 \t\r\n").startswith(b"{") else "csv"), packing

    def _bytes(self) -> IO[bytes]:
        if self._stdin is not None:
            return cast(IO[bytes], self._stdin)
        file: IO[bytes] = self.path.open("rb")
        self._open.append(file)
        self.size = self.path.stat().st_size
        self._measure = file
        if self.packing == ".gz":
            file = cast(IO[bytes], buffered(gzip.GzipFile(fileobj=file)))
        elif self.packing == ".zip":
            archive = zipfile.ZipFile(file)
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) != 1:
                raise UsageError(f"{self.path}: holds {len(members)} files, expected one")
            member = archive.open(members[0])
            self.size = members[0].file_size
            self._measure = member
            file = cast(IO[bytes], buffered(member))
        self._open.append(file)
        return file

    def _lines(self) -> Lines:
        """Return the file's lines in UTF-8."""
        file = self._bytes()
        return cast(Lines, file) if self._encoding == "utf-8" else Utf8Lines(file, self._encoding)

    def _csv(self) -> Rows:
        cutter = RecordCutter(self._lines(), self.delimiter.encode())
        header, block = cutter.first_record(BLOCK_BYTES)
        if header.unclosed:
            raise UsageError(f"{self.name}: line {header.number}: a quoted column name is not closed")
        self.header = header.records[0] if header.records else b""
        names = checked_names(self.name, header_names(self.header, self.delimiter), self.delimiter)
        parser = CsvParser(names, self.delimiter, self.null_values)
        while block is not None:
            yield from parser.rows(block)
            block = cutter.block(BLOCK_BYTES)

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
                    yield batch_of(rows)
                    rows = []
                yield row
            if rows:
                yield batch_of(rows)

    def _parquet(self) -> Rows:
        with pyarrow.parquet.ParquetFile(self.path) as file:
            self.size = file.metadata.num_rows
            checked_names(self.name, file.schema_arrow.names)
            for batch in file.iter_batches():
                self._read += batch.num_rows
                yield batch


KIND_NAMES = {"csv": "CSV", "json": "JSON lines", "parquet": "Parquet"}


class Utf8Lines:
    """The lines of a file in another encoding, as UTF-8. Bytes that are not in the encoding stay as they are,
    and make their row a bad one."""

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        self._text = io.TextIOWrapper(file, encoding, errors="surrogateescape", newline="")

    def readlines(self, hint: int, /) -> list[bytes]:
        """Return whole lines of about `hint` characters."""
        return [line.encode(errors="surrogateescape") for line in self._text.readlines(hint)]

    def readline(self) -> bytes:
        """Return one line; empty at the end."""
        return self._text.readline().encode(errors="surrogateescape")


def buffered(file: object) -> io.BufferedReader:
    """Return a packed file with a buffer, which makes reading its lines several times faster."""
    return io.BufferedReader(cast(io.RawIOBase, file), BUFFER_BYTES)


def encoding_name(name: str) -> str:
    """Return Python's name of a text encoding. UsageError if there is no such encoding."""
    try:
        found = codecs.lookup(name)
        "".encode(name)  # a codec from bytes to bytes, such as base64, cannot do this
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"--encoding {name}: unknown encoding; expected a name such as utf-8, latin-1 or cp1252"
        ) from error
    return found.name


def delimiter_of(text: str) -> str:
    """Return the character that separates values. UsageError if it is not one ASCII character."""
    found = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(found) != 1 or not found.isascii() or found in '"\r\n\0':
        raise UsageError(f"--delimiter {text!r}: expected one ASCII character, such as ';', '|' or tab")
    return found


def kind_of(path: Path) -> tuple[str, str]:
    """What a file holds and how it is packed, by its name. UsageError if it cannot be loaded."""
    if not path.exists():
        raise UsageError(f"{path}: no such file")
    if path.is_dir():
        raise UsageError(f"{path}: is a directory, expected a file")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packing = suffixes.pop() if suffixes and suffixes[-1] in PACKED else ""
    kind = KINDS.get(suffixes[-1] if suffixes else "", "")
    if not kind or (kind == "parquet" and packing):
        raise UsageError(
            f"{path}: cannot tell what it holds; expected .csv, .tsv, .jsonl (also .gz, .zip) or .parquet; "
            "pipe CSV or JSON lines of another name into `headrace load -`"
        )
    return kind, packing


def checked_names(file: str, names: list[str], delimiter: str = "") -> list[str]:
    """Return the column names. UsageError if there is none, or one of them twice."""
    if not names:
        raise UsageError(f"{file}: is empty, expected a line of column names")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        hint = f" (the delimiter is {delimiter!r})" if delimiter not in ("", ",") else ""
        raise UsageError(f"{file}: has two columns named {twice[0]!r}{hint}")
    return names


def json_object(line: bytes, number: int) -> dict[str, Any] | BadRow:
    """Return the object on a line, or why there is none."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        row = json.loads(text, parse_float=exact_float, object_pairs_hook=object_of)
    except UnicodeDecodeError:
        return BadRow(number, f"not UTF-8 (--encoding names another encoding): {excerpt(line)}", line)
    except (ValueError, RecursionError) as error:
        return BadRow(number, f"not JSON: {one_line(error)}", line)
    if not isinstance(row, dict):
        return BadRow(number, f"not a JSON object, expected one object a line: {excerpt(line)}", line)
    try:
        return {name: field_text(value) for name, value in row.items()}
    except UnicodeEncodeError:
        return BadRow(number, f"holds half a surrogate pair, which is no character: {excerpt(line)}", line)
    except RecursionError as error:
        return BadRow(number, f"nested too deep: {one_line(error)}", line)


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. ValueError if a key stands there twice, of which one value would be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands there twice")
    return found


def exact_float(text: str) -> float | Decimal:
    """Return a JSON number as a double; as a decimal if a double would change it."""
    value = float(text)
    if len(text) <= SHORT_FLOAT and "e" not in text and "E" not in text:
        return value
    exact = Decimal(text)
    return value if exact == Decimal(repr(value)) else exact


def batch_of(rows: list[dict[str, str | None]]) -> pa.RecordBatch:
    """JSON objects as columns of text, in the order in which their keys first appear."""
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


def one_line(error: Exception) -> str:
    """The first line of an error's text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
