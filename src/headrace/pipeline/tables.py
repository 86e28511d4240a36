"""Files as batches of columns: CSV, JSON lines and Parquet, a few megabytes at a time.

CSV and JSON lines keep their own words: a column of a CSV file is text, so `007` and `1.50` reach the
stream as they stand in the file.
"""

from __future__ import annotations

import csv
import gzip
import json
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from headrace.errors import UsageError

BLOCK_BYTES = 4 * 1024 * 1024
KINDS = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet"}
PACKED = (".gz", ".zip")


class Table(AbstractContextManager["Table"]):
    """A file that is being read. `position` of `size` says how far, in whatever unit the file is measured."""

    def __init__(self, path: Path, null_values: tuple[str, ...] = ("",)) -> None:
        self.path = path
        self.null_values = list(null_values)
        self.size = 0
        self.kind, self.packing = kind_of(path)
        self._read = 0
        self._open: list[IO[bytes]] = []
        self._measure: IO[bytes] | None = None

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
        """The rows in the file's order. UsageError if the file is not what its name says."""
        reader = {"csv": self._csv, "json": self._json, "parquet": self._parquet}[self.kind]
        try:
            yield from reader()
        except (pa.ArrowInvalid, OSError, EOFError, zipfile.BadZipFile, UnicodeDecodeError) as error:
            raise UsageError(f"{self.path}: {one_line(error)}") from error

    def _bytes(self) -> IO[bytes]:
        file: IO[bytes] = self.path.open("rb")
        self._open.append(file)
        self.size = self.path.stat().st_size
        self._measure = file
        if self.packing == ".gz":
            file = cast(IO[bytes], gzip.GzipFile(fileobj=file))
        elif self.packing == ".zip":
            archive = zipfile.ZipFile(file)
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) != 1:
                raise UsageError(f"{self.path}: holds {len(members)} files, expected one")
            file = archive.open(members[0])
            self.size = members[0].file_size
            self._measure = file
        self._open.append(file)
        return file

    def _csv(self) -> Iterator[pa.RecordBatch]:
        file = self._bytes()
        names = header_of(self.path, file.readline())
        file.seek(0)
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=self.null_values,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        read = pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False)
        parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
        yield from pyarrow.csv.open_csv(file, read_options=read, parse_options=parse, convert_options=convert)

    def _json(self) -> Iterator[pa.RecordBatch]:
        file = self._bytes()
        number = 0
        while lines := file.readlines(BLOCK_BYTES):
            rows = []
            for line in lines:
                number += 1
                if line.strip():
                    rows.append(self._object(line, number))
            if rows:
                yield batch_of(rows)

    def _object(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self.path}: line {number} is not JSON: {one_line(error)}") from error
        if not isinstance(row, dict):
            raise UsageError(f"{self.path}: line {number} is not a JSON object, expected one object a line")
        return row

    def _parquet(self) -> Iterator[pa.RecordBatch]:
        with pyarrow.parquet.ParquetFile(self.path) as file:
            self.size = file.metadata.num_rows
            for batch in file.iter_batches():
                self._read += batch.num_rows
                yield batch


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
            f"{path}: cannot tell what it holds; expected .csv, .jsonl (also .gz, .zip) or .parquet"
        )
    return kind, packing


def header_of(path: Path, line: bytes) -> list[str]:
    """The column names in the first line of a CSV file."""
    names = next(csv.reader([line.decode("utf-8-sig").rstrip("\r\n")]), [])
    if not names:
        raise UsageError(f"{path}: is empty, expected a line of column names")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{path}: has two columns named {twice[0]!r}")
    return names


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """JSON objects as columns of text, in the order in which their keys first appear."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [pa.array([json_text(row.get(name)) for row in rows], pa.string()) for name in names]
    return pa.RecordBatch.from_arrays(columns, names)


def json_text(value: object) -> str | None:
    """A JSON value as a field's text: strings as they are, the rest as JSON, null left out."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def one_line(error: Exception) -> str:
    """The first line of an error's text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
