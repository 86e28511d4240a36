"""The file of rejected rows, in the form of the file they came from: to be corrected and loaded.

A row is written once the rows before it are in the stream. A load that is resumed gets the bad rows of the
run that broke off again, for that run may have been killed before it had written them, and writes those that
the file does not have yet.
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
from headrace.pipeline.csv_records import BadRow
from headrace.pipeline.file_readers import Table

SHOWN = 3  # how many bad rows are shown with their reasons


class RejectsFile(AbstractContextManager["RejectsFile"]):
    """Collects bad rows, and writes them to a file that is made with the first of them.

    count, written      how many there were, how many of them are in the file
    reasons             what was wrong with the first of them
    """

    def __init__(self, path: Path, table: Table, resume: bool) -> None:
        if path.exists() and table.path.exists() and path.samefile(table.path):
            raise UsageError(f"{path}: is the file to load; give another file with --rejects")
        if not resume and path.exists():
            raise UsageError(f"{path}: already exists; move it away, or give another file with --rejects")
        self.path = path
        self.count = 0
        self.written = 0
        self.reasons: list[str] = []
        self._table = table
        self._waiting: deque[tuple[int, BadRow]] = deque()
        self._file: IO[bytes] | None = None
        self._kept = self._lines_there()  # lines of an earlier run

    def __exit__(self, *failure: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, bad: BadRow, rows_before: int) -> None:
        """Take a bad row, before which so many good ones stand in the file."""
        if self._is_kept(bad):
            return
        self.count += 1
        if len(self.reasons) < SHOWN:
            self.reasons.append(str(bad))
        self._waiting.append((rows_before, bad))

    def _lines_there(self) -> Counter[bytes]:
        """Return the lines of the file. UsageError if it cannot be written, before any row is loaded."""
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
            raise self._unwritable(error) from error

    def _is_kept(self, bad: BadRow) -> bool:
        """Return whether the file has the row from an earlier run; each of its lines counts once."""
        if not self._kept:
            return False
        lines = Counter(io.BytesIO(self._written(bad)))
        if not lines <= self._kept:
            return False
        self._kept -= lines
        return True

    def _written(self, bad: BadRow) -> bytes:
        return ended(bad.text or self._text_of(bad))

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(f"{self.path}: cannot write the rejected rows: {error.strerror}")

    def settle(self, rows: int) -> None:
        """Write the bad rows before the last of so many rows, which are in the stream."""
        while self._waiting and self._waiting[0][0] < rows:
            self._write(self._waiting.popleft()[1])
        self._flush()

    def finish(self) -> None:
        """Write all that are left: the load came to its end."""
        while self._waiting:
            self._write(self._waiting.popleft()[1])
        self._flush()

    def _write(self, bad: BadRow) -> None:
        try:
            if self._file is None:
                self._file = self.path.open("ab")
                if self._table.header and not self._file.tell():
                    self._file.write(ended(self._table.header))
            self._file.write(self._written(bad))
        except OSError as error:
            raise self._unwritable(error) from error
        self.written += 1

    def _flush(self) -> None:
        try:
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def _text_of(self, bad: BadRow) -> bytes:
        if self._table.kind != "csv":
            values = {name: value for name, value in bad.values.items() if value is not None}
            return json.dumps(values, ensure_ascii=False, default=str).encode(errors="backslashreplace")
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self._table.delimiter, lineterminator="\n")
        writer.writerow("" if value is None else value for value in bad.values.values())
        return text.getvalue().encode()


def ended(text: bytes) -> bytes:
    """Return a line with an end."""
    return text if text.endswith(b"\n") else text + b"\n"
