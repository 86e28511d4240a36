"""Which column is the time, and what it says in milliseconds since 1970."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UsageError

# Columns of bare numbers are taken for times only under these names.
WELL_KNOWN = (
    "timestamp", "ts", "time", "datetime", "event_time", "timestamp_ms", "time_ms", "epoch", "epoch_ms",
    "created_at",
)  # fmt: skip

# A bare number below this is in units of so many nanoseconds: seconds until the year 5138, and so on.
UNITS = ((1e11, 1_000_000_000), (1e14, 1_000_000), (1e17, 1_000))


@dataclass(frozen=True)
class TimeColumn:
    """The column that gives each row its time: timestamps, or numbers in a unit of so many nanoseconds.

    One that is not a field gives the ID only, and does not appear in the entry.
    """

    name: str
    unit_ns: int | None = None
    is_field: bool = True

    def milliseconds(self, batch: pa.RecordBatch) -> list[int | None]:
        """Each row's time in milliseconds since 1970, UTC; None where the row has none."""
        if self.name not in batch.schema.names:
            return [None] * batch.num_rows
        column = batch.column(self.name)
        if self.unit_ns is None:
            stamps = timestamps(column)
            if stamps is None:
                raise UsageError(f"column {self.name!r} holds {odd_one_out(column)!r}, which is not a time")
            return list(
                pc.floor_temporal(stamps, unit="millisecond").cast("timestamp[ms]").cast("int64").to_pylist()
            )
        values = numbers(column)
        if values is None:
            raise UsageError(f"column {self.name!r} holds a value that is not a number, though others are")
        try:
            return [
                None if value is None else milliseconds(value, self.unit_ns) for value in values.to_pylist()
            ]
        except OverflowError as error:
            raise UsageError(f"column {self.name!r} holds an infinite number, which is not a time") from error


def choose_time_column(batch: pa.RecordBatch, wanted: str | None = None) -> TimeColumn:
    """The column for the ids: the one wanted, or the best of those that look like times in these rows."""
    if wanted is not None:
        if wanted not in batch.schema.names:
            raise UsageError(f"no column {wanted!r}; the columns are {', '.join(batch.schema.names)}")
        found = time_column(batch, wanted)
        if found is None:
            raise UsageError(f"column {wanted!r} is not a time: {odd_one_out(batch.column(wanted))!r}")
        return found
    candidates = []
    for place, name in enumerate(batch.schema.names):
        known = name.lower() in WELL_KNOWN
        column = batch.column(name)
        if column.null_count == len(column) or (is_number(column) and not known):
            continue
        if found := time_column(batch, name):
            candidates.append((not known, is_date(column), place, found))
    if not candidates:
        columns = ", ".join(batch.schema.names)
        raise UsageError(f"no column looks like a time; name one with --time-column ({columns})")
    return min(candidates, key=lambda candidate: candidate[:3])[3]


def time_column(batch: pa.RecordBatch, name: str) -> TimeColumn | None:
    """The named column as a time, or None if it cannot be one."""
    column = batch.column(name)
    if timestamps(column) is not None and not is_number(column):
        return TimeColumn(name)
    values = numbers(column)
    if values is None or values.null_count == len(values):
        return None
    largest = float(pc.max(pc.abs(values)).as_py())
    if math.isinf(largest):
        return None
    for below, unit_ns in UNITS:
        if largest < below:
            return TimeColumn(name, unit_ns)
    return TimeColumn(name, 1)


def milliseconds(value: float, unit_ns: int) -> int:
    """A number of units as whole milliseconds, rounded down; whole numbers exactly."""
    if isinstance(value, int):
        return value * unit_ns // 1_000_000
    # To the microsecond first: 0.123 seconds may be a little less than 123 milliseconds in binary.
    return math.floor(round(value * (unit_ns / 1_000_000), 3))


def timestamps(column: pa.Array) -> pa.Array | None:
    """The column as timestamps, UTC where no zone is given; None if some value is not a time."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp(column.type.unit))
    if pa.types.is_date(column.type):
        return column.cast(pa.timestamp("ms"))
    if not is_text(column):
        return None
    for kind in (
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns"),
        pa.timestamp("ns", "UTC"),
    ):
        try:
            return column.cast(kind).cast(pa.timestamp(kind.unit))
        except pa.ArrowInvalid:
            continue
    return None


def numbers(column: pa.Array) -> pa.Array | None:
    """The column as numbers, NaN as null, or None if some value is not one."""
    if not (is_text(column) or is_number(column)):
        return None
    for kind in (pa.int64(), pa.float64()):
        try:
            found = column.cast(kind)
            return pc.if_else(pc.is_nan(found), pa.scalar(None, kind), found)
        except pa.ArrowInvalid:
            continue
    return None


def is_text(column: pa.Array) -> bool:
    """Whether the column is text of either width."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def is_number(column: pa.Array) -> bool:
    """Whether the column is made of numbers, written or typed."""
    if is_text(column):
        return numbers(column) is not None
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def is_date(column: pa.Array) -> bool:
    """Whether the column's times are whole days."""
    if pa.types.is_date(column.type):
        return True
    return is_text(column) and (pc.max(pc.binary_length(column)).as_py() or 0) <= len("2013-01-01")


def odd_one_out(column: pa.Array) -> str:
    """A value of the column that is not a time, for an error's text."""
    for place in range(len(column)):
        if timestamps(column[place : place + 1]) is None:
            return str(column[place])
    return str(column.type)
