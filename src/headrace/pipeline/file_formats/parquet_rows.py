"""Read Parquet files, with the values that pyarrow alone would change:

INT96 times      also those outside 1677 to 2262, which wrap around in nanoseconds. Spark, Hive and Impala
                 write INT96. They are read in microseconds; one with nanoseconds becomes a text
UUID             as UUIDs in every version of pyarrow, not as 16 bytes
INTERVAL         months, days and milliseconds, not 12 bytes
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.columns.value_texts import to_encodable
from headrace.errors import UsageError

INTERVAL_STRUCT = struct.Struct("<III")  # months, days, milliseconds
# In a printed schema.
VARIANT_COLUMN_PATTERN = re.compile(r"^ +\w+ group field_id=-?\d+ (.+) \(Variant", re.MULTILINE)


class ParquetRows(AbstractContextManager["ParquetRows"]):
    """The rows of a Parquet file.

    Attributes:
        num_rows: How many rows it has.
        names: The names of its columns.

    Raises:
        UsageError: if a column has a type that cannot be converted to text.
    """

    def __init__(self, path: Path) -> None:
        self._open = ExitStack()
        self._file = self._open.enter_context(open_parquet(path))
        self._path = path
        self.num_rows: int = self._file.metadata.num_rows
        self.names: list[str] = self._file.schema_arrow.names
        leaves = [self._file.schema.column(at) for at in range(len(self._file.schema.names))]
        self._uuids, self._intervals, self._int96 = (
            {
                leaf.path
                for leaf in leaves
                if kind in (leaf.logical_type.type, leaf.converted_type, leaf.physical_type)
            }
            for kind in ("UUID", "INTERVAL", "INT96")
        )
        without_text = dict.fromkeys(VARIANT_COLUMN_PATTERN.findall(str(self._file.schema)), "VARIANT")
        without_text |= dict.fromkeys(self._intervals - set(self.names), "INTERVAL within another type")
        for name, kind in without_text.items():
            raise UsageError(
                f"column {name!r} has the type {kind}, which has no text: convert it in the source"
            )

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
            UsageError: if they cannot be read. The message names the column.
        """
        int96 = [name for name in self.names if name in self._int96]
        rows = 0
        try:
            nanoseconds = NanosecondColumns(self._path, int96) if int96 else None
            for batch in self._file.iter_batches():
                columns = [
                    self._column(name, column, nanoseconds)
                    for name, column in zip(batch.schema.names, batch.columns, strict=True)
                ]
                rows += batch.num_rows
                yield pa.RecordBatch.from_arrays(columns, self.names)
        except (pa.ArrowException, OSError) as error:
            raise UsageError(f"after row {rows}: {self._unreadable_column_message(error)}") from error

    def _column(self, name: str, column: pa.Array, nanoseconds: NanosecondColumns | None) -> pa.Array:
        if name in self._uuids and pa.types.is_fixed_size_binary(column.type):
            return pa.ExtensionArray.from_storage(pa.uuid(), column)
        if name in self._intervals and pa.types.is_fixed_size_binary(column.type):
            return interval_column(column)
        if nanoseconds is not None and name in self._int96 and pa.types.is_timestamp(column.type):
            return with_nanoseconds(column, nanoseconds.take(name, len(column)))
        return column

    def _unreadable_column_message(self, error: Exception) -> str:
        """Return the error message, with the name of the first column that cannot be read."""
        for name in self.names:
            try:
                for _ in self._file.iter_batches(columns=[name]):
                    pass
            except (pa.ArrowException, OSError) as failure:
                return f"column {name!r} cannot be read: {str(failure).splitlines()[0]}"
        return str(error).splitlines()[0]


def open_parquet(path: Path, unit: str = "us") -> pq.ParquetFile:
    """Open a Parquet file, with its INT96 times in this unit."""
    return pq.ParquetFile(path, coerce_int96_timestamp_unit=unit)


class NanosecondColumns:
    """Reads the INT96 columns of a file a second time, in nanoseconds modulo 2**64."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self._batches = open_parquet(path, "ns").iter_batches(columns=names)
        self._waiting: dict[str, list[pa.Array]] = {name: [] for name in names}

    def take(self, name: str, count: int) -> pa.Array:
        """Return the next `count` values of a column."""
        waiting = self._waiting[name]
        while sum(map(len, waiting)) < count:
            batch = next(self._batches)
            for each in self._waiting:
                self._waiting[each].append(batch.column(each))
        values = pa.concat_arrays(waiting)
        self._waiting[name] = [values.slice(count)]
        return values.slice(0, count)


def with_nanoseconds(micros: pa.Array, nanos: pa.Array) -> pa.Array:
    """Return times in microseconds; the whole column as text if a time has a fraction of a microsecond.

    `micros` are the times in microseconds, `nanos` the same times in nanoseconds modulo 2**64. The
    subtraction `nanos - 1000 * micros` wraps around, too, so its result is 0 to 999 for all times.
    """
    rest = pc.subtract(nanos.cast(pa.int64()), pc.multiply(micros.cast(pa.int64()), 1000))
    has_rest = pc.not_equal(rest, 0)
    if not pc.any(has_rest).as_py():
        return micros
    texts = to_encodable(micros, "iso8601")
    digits = pc.utf8_lpad(rest.cast(pa.string()), 3, "0")
    return pc.if_else(has_rest, pc.binary_join_element_wise(texts, digits, ""), texts)


def interval_column(column: pa.Array) -> pa.Array:
    """Convert Parquet intervals (12 bytes: months, days, milliseconds) to Arrow intervals."""
    parts = [None if value is None else INTERVAL_STRUCT.unpack(value) for value in column.to_pylist()]
    values = [None if part is None else (part[0], part[1], part[2] * 1_000_000) for part in parts]
    return pa.array(values, pa.month_day_nano_interval())
