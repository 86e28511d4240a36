"""The progress of a load in bytes of the file whose rows are in the stream, not in bytes read ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa

from headrace.pipeline.csv_records import BadRow
from headrace.pipeline.file_readers import FileReader


class FileProgress:
    """Records the positions of a file's rows while they are read."""

    def __init__(self, reader: FileReader) -> None:
        self._reader = reader
        self._known_positions: deque[tuple[int, int]] = deque()  # (rows read, position then)
        self._reached = (0, 0)

    def track(self, rows: Iterable[pa.RecordBatch | BadRow]) -> Iterator[pa.RecordBatch | BadRow]:
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
