"""The file of the rows that a load left out, in the form of the file they came from: to be mended and loaded.

A row is written once the rows before it are in the stream. So a load that is resumed writes no row twice, and
misses none.
"""

from __future__ import annotations

import csv
import io
import json
from collections import deque
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from headrace.errors import UsageError
from headrace.pipeline.csv_records import BadRow
from headrace.pipeline.tables import Table

SHOWN = 3  # how many bad rows are shown with their reasons


class RejectsFile(AbstractContextManager["RejectsFile"]):
    """Collects bad rows, and writes them to a file that is made with the first of them.

    count, written      how many there were, how many of them are in the file
    reasons             what was wrong with the first of them
    """

    def __init__(self, path: Path, table: Table, resume: bool) -> None:
        if not resume and path.exists():
            raise UsageError(f"{path}: already exists; move it away, or give another file with --rejects")
        self.path = path
        self.count = 0
        self.written = 0
        self.reasons: list[str] = []
        self._table = table
        self._waiting: deque[tuple[int, BadRow]] = deque()
        self._file: IO[bytes] | None = None

    def __exit__(self, *failure: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, bad: BadRow, rows_before: int) -> None:
        """Take a bad row, before which so many good ones stand in the file."""
        self.count += 1
        if len(self.reasons) < SHOWN:
            self.reasons.append(str(bad))
        self._waiting.append((rows_before, bad))

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
            self._file.write(ended(bad.text or self._text_of(bad)))
        except OSError as error:
            raise UsageError(f"{self.path}: cannot write the rejected rows: {error.strerror}") from error
        self.written += 1

    def _flush(self) -> None:
        if self._file is not None:
            self._file.flush()

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
