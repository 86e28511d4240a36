"""The file of rejected rows, in the format of the loaded file, so that it can be corrected and loaded.

A row is written once the rows before it are in the stream. A resumed load gets the bad rows of the
interrupted run again, because that run may have been killed before it wrote them. It writes those that the
file does not have yet.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, deque
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from headrace.errors import UsageError
from headrace.pipeline.file_formats.csv_records import BadRow
from headrace.pipeline.file_formats.file_readers import FileReader

REASONS_SHOWN = 3  # how many bad rows are printed with their reasons


class RejectsFile(AbstractContextManager["RejectsFile"]):
    """Collects bad rows and writes them to a file, which is created for the first one.

    Attributes:
        count: Bad rows so far.
        written_count: Bad rows that are in the file.
        reasons: The first REASONS_SHOWN errors.

    Raises:
        UsageError: if it is the file to load, if it already exists and the load is not resumed, or if it
            cannot be written.
    """

    def __init__(self, path: Path, reader: FileReader, resume: bool) -> None:
        if path.exists() and reader.path.exists() and path.samefile(reader.path):
            raise UsageError(f"{path}: is the file to load; give another file with --rejects")
        if not resume and path.exists():
            raise UsageError(f"{path}: already exists; move it away, or give another file with --rejects")
        self.path = path
        self.count = 0
        self.written_count = 0
        self.reasons: list[str] = []
        self._reader = reader
        self._waiting: deque[tuple[int, BadRow]] = deque()
        self._file: IO[bytes] | None = None
        self._earlier_lines = self._read_lines()  # lines of an earlier run

    def __exit__(self, *failure: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, bad: BadRow, rows_before: int) -> None:
        """Add a bad row that comes after `rows_before` valid rows of the file."""
        if self._is_written(bad):
            return
        self.count += 1
        if len(self.reasons) < REASONS_SHOWN:
            self.reasons.append(str(bad))
        self._waiting.append((rows_before, bad))

    def _read_lines(self) -> Counter[bytes]:
        """Return the lines of the file and how often each occurs. UsageError if it cannot be written."""
        if not self.path.exists():
            if not self.path.parent.is_dir():
                raise UsageError(
                    f"{self.path}: cannot write the rejected rows: no directory {self.path.parent}"
                )
            return Counter()
        try:
            with self.path.open("r+b") as file:
                return Counter(file)
        except OSError as error:
            raise self._unwritable_error(error) from error

    def _is_written(self, bad: BadRow) -> bool:
        """Return whether an earlier run has written the row; each line of the file counts once."""
        if not self._earlier_lines:
            return False
        lines = Counter(io.BytesIO(self._line(bad)))
        if not lines <= self._earlier_lines:
            return False
        self._earlier_lines -= lines
        return True

    def _line(self, bad: BadRow) -> bytes:
        return with_newline(bad.text or self._format(bad))

    def _unwritable_error(self, error: OSError) -> UsageError:
        """Return the error for a file of rejected rows that cannot be written."""
        return UsageError(f"{self.path}: cannot write the rejected rows: {error.strerror}")

    def write_up_to(self, rows: int) -> None:
        """Write the bad rows that come before the last loaded row; `rows` valid rows are loaded."""
        while self._waiting and self._waiting[0][0] < rows:
            self._write(self._waiting.popleft()[1])
        self._flush()

    def finish(self) -> None:
        """Write all remaining bad rows at the end of the load."""
        while self._waiting:
            self._write(self._waiting.popleft()[1])
        self._flush()

    def _write(self, bad: BadRow) -> None:
        try:
            if self._file is None:
                self._file = self.path.open("ab")
                if self._reader.header and not self._file.tell():
                    self._file.write(with_newline(self._reader.header))
            self._file.write(self._line(bad))
        except OSError as error:
            raise self._unwritable_error(error) from error
        self.written_count += 1

    def _flush(self) -> None:
        try:
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            raise self._unwritable_error(error) from error

    def _format(self, bad: BadRow) -> bytes:
        if self._reader.format != "csv":
            values = {name: value for name, value in bad.values.items() if value is not None}
            return json.dumps(values, ensure_ascii=False, default=str).encode(errors="backslashreplace")
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self._reader.delimiter, lineterminator="\n")
        writer.writerow("" if value is None else value for value in bad.values.values())
        return text.getvalue().encode()


def with_newline(text: bytes) -> bytes:
    """Return the line with a newline at its end."""
    return text if text.endswith(b"\n") else text + b"\n"
