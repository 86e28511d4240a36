"""How far a load is: bytes of the file whose rows are in the stream, not bytes that were read ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa

from headrace.pipeline.csv_records import BadRow
from headrace.pipeline.file_readers import Table


class FileProgress:
    """Notes where a file's rows end while they are read."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._marks: deque[tuple[int, int]] = deque()  # (rows read, position then)
        self._reached = (0, 0)

    def watch(self, rows: Iterable[pa.RecordBatch | BadRow]) -> Iterator[pa.RecordBatch | BadRow]:
        """Yield the same rows."""
        read = 0
        for each in rows:
            read += 1 if isinstance(each, BadRow) else each.num_rows
            self._marks.append((read, self._table.position))
            yield each

    def position(self, rows: int) -> int:
        """Return up to where in the file its first `rows` rows lie, in the unit of Table.size.

        Between two places that are known it is estimated.
        """
        while self._marks and self._marks[0][0] <= rows:
            self._reached = self._marks.popleft()
        start_rows, start = self._reached
        if not self._marks:
            return start
        end_rows, end = self._marks[0]
        return start + (end - start) * max(0, rows - start_rows) // (end_rows - start_rows)
