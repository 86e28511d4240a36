"""Choose the column that gives the IDs, and convert its values to milliseconds since 1970."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.value_texts import plain_value
from headrace.errors import UsageError
from headrace.suggestions import suggestion_suffix

# A column of bare numbers is a time only if it has one of these names.
TIME_COLUMN_NAMES = (
    "timestamp", "ts", "time", "datetime", "event_time", "timestamp_ms", "time_ms", "epoch", "epoch_ms",
    "created_at",
)  # fmt: skip

# The unit of a bare number is detected by its size: (smallest, nanoseconds of the unit, name). The ranges do
# not overlap for times between 1973 and 5138: seconds have 9 to 11 digits, milliseconds 12 to 14, and so on.
UNITS_BY_MIN_NUMBER = (
    (1e17, 1, "nanoseconds"),
    (1e14, 1_000, "microseconds"),
    (1e11, 1_000_000, "milliseconds"),
    (1e8, 1_000_000_000, "seconds"),
)
TIME_FORMS_HINT = "times are ISO 8601, or numbers since 1970"
UNIT_NAMES = {unit_ns: name for _, unit_ns, name in UNITS_BY_MIN_NUMBER}
MS_MAX = 253_402_300_799_999  # the last millisecond of the year 9999

# IDs may be this much later than the clock: a time without a zone is taken for UTC, and clocks differ.
FUTURE_MS_MAX = 24 * 3600 * 1000

# A column with a few wrong values is still a time; the rows with these values are bad rows.
VALUES_SAMPLED = 20
TIMES_FRACTION_MIN = 0.9


def latest_valid_time_ms() -> int:
    """Return the latest time in milliseconds that an ID may have: a day after now."""
    return time.time_ns() // 1_000_000 + FUTURE_MS_MAX


@dataclass(frozen=True)
class TimeColumn:
    """The column that gives each row its time.

    Attributes:
        name: The column's name.
        unit_ns: The unit of a column of numbers, in nanoseconds; None for timestamps.
        is_field: Whether the column is also a field of the entry.
        latest_valid_ms: The latest valid time, in milliseconds; MS_MAX for no limit. The reason for a limit:
            IDs that the server generates are never below the stream's last ID, even if it is in the future.
        is_guess: Whether the column was chosen because it looks like times; messages then say how to choose.
    """

    name: str
    unit_ns: int | None = None
    is_field: bool = True
    latest_valid_ms: int = field(default_factory=latest_valid_time_ms, compare=False)
    is_guess: bool = field(default=False, compare=False)

    @property
    def unit_name(self) -> str:
        """The unit of a column of bare numbers, such as `seconds`; empty for timestamps."""
        return "" if self.unit_ns is None else UNIT_NAMES[self.unit_ns]

    def milliseconds(self, batch: pa.RecordBatch) -> list[int | None]:
        """Return each row's time in milliseconds since 1970, UTC; None where the row has none.

        Raises:
            UsageError: if a value is not a time, or is before 1970 or after `latest_valid_ms`.
        """
        found, wrong = self.milliseconds_and_reasons(batch)
        for reason in wrong.values():
            raise UsageError(reason)
        return found

    def milliseconds_and_reasons(self, batch: pa.RecordBatch) -> tuple[list[int | None], dict[int, str]]:
        """Return each row's time in milliseconds, and the reasons why values are not times, by row index.

        A row with a wrong value has the time None.
        """
        if self.name not in batch.schema.names:
            return [None] * batch.num_rows, {}
        column = batch.column(self.name)
        found, wrong = self.milliseconds_in_any_range(column)
        for row in [
            row for row, ms in enumerate(found) if ms is not None and not 0 <= ms <= self.latest_valid_ms
        ]:
            wrong[row], found[row] = self.out_of_range_reason(found[row], column, row), None
        return found, wrong

    def milliseconds_in_any_range(self, column: pa.Array) -> tuple[list[int | None], dict[int, str]]:
        """Return each time in milliseconds, in any range, and by row the reasons why values are not times."""
        try:
            return self._converted(column), {}
        except UsageError:
            pass
        found: list[int | None] = []
        wrong = {}
        for row in range(len(column)):
            try:
                found += self._converted(column[row : row + 1])
            except UsageError:
                kind = f"a number of {self.unit_name}" if self.unit_name else "a time"
                wrong[row] = self._reason(column, row, f"which is not {kind}")
                found.append(None)
        return found, wrong

    def _converted(self, column: pa.Array) -> list[int | None]:
        if self.unit_ns is None:
            stamps = as_timestamps(column)
            if stamps is None:
                raise UsageError(
                    f"column {self.name!r} holds {first_non_time(column)!r}, which is not a time"
                )
            return timestamps_in_milliseconds(stamps)
        values = as_numbers(column)
        if values is None:
            raise UsageError(f"column {self.name!r} holds a value that is not a number, although others are")
        try:
            return [
                None if value is None else to_milliseconds(value, self.unit_ns)
                for value in values.to_pylist()
            ]
        except OverflowError as error:
            raise UsageError(f"column {self.name!r} holds an infinite number, which is not a time") from error

    def out_of_range_reason(self, ms: int | None, column: pa.Array, row: int) -> str:
        """Return why the time in a row of the column cannot be an ID."""
        unit = f" in {self.unit_name}" if self.unit_name else ""
        if ms is not None and self.latest_valid_ms < ms <= MS_MAX:
            future = (
                f"which{unit} is later than now, and entries that are added after it would get its time; "
                "--allow-future loads such times"
            )
            return self._reason(column, row, future)
        return self._reason(column, row, f"which{unit} is not a time from 1970 to 9999")

    def _reason(self, column: pa.Array, row: int, what: str) -> str:
        hint = "; the column was chosen for the IDs: --time-column names another, --new-ids uses none"
        return (
            f"column {self.name!r} holds {str(plain_value(column, row))!r}, {what}"
            f"{hint if self.is_guess else ''}"
        )


def timestamps_in_milliseconds(stamps: pa.Array) -> list[int | None]:
    """Return timestamps of any unit in milliseconds, rounded down; huge seconds become an invalid time."""
    values, unit = stamps.cast(pa.int64()), stamps.type.unit
    if unit == "s":
        near = pc.max_element_wise(values, -MS_MAX, skip_nulls=False)
        values = pc.multiply(pc.min_element_wise(near, MS_MAX, skip_nulls=False), 1000)
    elif unit != "ms":
        divisor = {"us": 1000, "ns": 1_000_000}[unit]
        below = pc.subtract(pc.divide(pc.add(values, 1), divisor), 1)  # division rounds towards zero
        values = pc.if_else(pc.less(values, 0), below, pc.divide(values, divisor))
    return list(values.to_pylist())


def choose_time_column(
    batch: pa.RecordBatch,
    wanted: str | None = None,
    latest_ms: int | None = None,
    on_unsuitable: Callable[[str], None] = lambda reason: None,
) -> TimeColumn | None:
    """Return the column for the IDs.

    Args:
        batch: The first rows.
        wanted: The name of the column; None for the best one of those that look like times.
        latest_ms: The latest valid time of an ID in milliseconds; None for a day after now.
        on_unsuitable: Called with the reason for each column of times that is not chosen because a time of
            the first rows cannot be an ID.

    Returns:
        The column; None if no column is wanted and none looks like a time.

    Raises:
        UsageError: if the wanted column does not exist or is not a time.
    """
    latest_ms = latest_valid_time_ms() if latest_ms is None else latest_ms
    if wanted is not None:
        if wanted not in batch.schema.names:
            known = batch.schema.names
            raise UsageError(
                f"no column {wanted!r}; the columns are {', '.join(known)}{suggestion_suffix(wanted, known)}"
            )
        found = time_column(batch, wanted, min_fraction=0.5)
        if found is None:
            raise UsageError(not_a_time_message(wanted, batch.column(wanted)))
        return replace(found, latest_valid_ms=latest_ms)
    candidates = []
    for index, name in enumerate(batch.schema.names):
        known = name.lower() in TIME_COLUMN_NAMES
        column = batch.column(index)
        if column.null_count == len(column) or (has_only_numbers(column) and not known):
            continue
        found = time_column_of(column, name, 0.5 if known else TIMES_FRACTION_MIN)
        if found is None or (found.unit_ns is not None and not (known and looks_like_unix_times(column))):
            continue
        found = replace(found, latest_valid_ms=latest_ms)
        if not known and (reason := unsuitable_reason(found, column)):
            on_unsuitable(reason)
            continue
        candidates.append((not known, has_only_dates(column), index, found))
    if not candidates:
        return None
    best = min(candidates, key=lambda candidate: candidate[:3])[3]
    return replace(best, is_guess=True)


def unsuitable_reason(times: TimeColumn, column: pa.Array) -> str:
    """Return why the times cannot be IDs: one is before 1970 or too late; "" if all can."""
    found, _ = times.milliseconds_in_any_range(column)
    for row, ms in enumerate(found):
        if ms is not None and not 0 <= ms <= times.latest_valid_ms:
            when = "before 1970" if ms < 0 else "later than now"
            return f"column {times.name!r} is not used: it holds {str(plain_value(column, row))!r}, {when}"
    return ""


def time_column(
    batch: pa.RecordBatch, name: str, min_fraction: float = TIMES_FRACTION_MIN
) -> TimeColumn | None:
    """Return the named column as a TimeColumn; None if too few of its values are times."""
    return time_column_of(batch.column(name), name, min_fraction)


def time_column_of(column: pa.Array, name: str, min_fraction: float) -> TimeColumn | None:
    """Return a column as a TimeColumn; None if too few of its values are times."""
    found = as_time_column(column, name)
    if found is not None or not is_text(column):
        return found
    sample = sample_values(column)
    singles = [sample[at : at + 1] for at in range(len(sample))]
    for unit in (None, 1_000_000):  # texts of times, or of numbers
        times = [each for each in singles if (as_numbers if unit else as_timestamps)(each) is not None]
        if times and len(times) >= min_fraction * len(sample):
            return as_time_column(pa.concat_arrays(times), name) or (None if unit else TimeColumn(name))
    return None


def sample_values(column: pa.Array) -> pa.Array:
    """Return some values of the column, evenly spread, no nulls among them."""
    values = column.drop_null()
    step = max(1, len(values) // VALUES_SAMPLED)
    return values.take(pa.array(range(0, len(values), step)[:VALUES_SAMPLED], pa.int64()))


def as_time_column(column: pa.Array, name: str) -> TimeColumn | None:
    """Return a column as a TimeColumn if all its values are times; else None."""
    if as_timestamps(column) is not None and not has_only_numbers(column):
        return TimeColumn(name)
    values = as_numbers(column)
    if values is None or values.null_count == len(values):
        return None
    sizes = pc.abs(values).drop_null()
    if math.isinf(float(pc.max(sizes).as_py())):
        return None
    units = {guess_unit_ns(size) for size in sizes.to_pylist()} - {None}
    # Numbers that are too small to tell their unit are years, or counts.
    return TimeColumn(name, units.pop()) if len(units) == 1 else None


def guess_unit_ns(size: float) -> int | None:
    """Return the likely unit of a time of this size, in nanoseconds; None if the number is too small."""
    return next((unit_ns for smallest, unit_ns, _ in UNITS_BY_MIN_NUMBER if size >= smallest), None)


def looks_like_unix_times(column: pa.Array) -> bool:
    """Return whether most of a column's numbers are large enough to count from 1970."""
    sizes = [abs(value) for value in sample_numbers(column)]
    return sum(guess_unit_ns(size) is not None for size in sizes) * 2 > len(sizes)


def sample_numbers(column: pa.Array) -> list[float]:
    """Return a sample of the column's values that are numbers."""
    sample = sample_values(column)
    found: list[float] = []
    for at in range(len(sample)):
        value = as_numbers(sample[at : at + 1])
        if value is not None and value.null_count == 0 and math.isfinite(value[0].as_py()):
            found.append(value[0].as_py())
    return found


def to_milliseconds(value: float, unit_ns: int) -> int:
    """Return a number of units in milliseconds, rounded down; integers are converted exactly."""
    if isinstance(value, int):
        return value * unit_ns // 1_000_000
    # To the microsecond first: 0.123 seconds may be a little less than 123 milliseconds in binary.
    return math.floor(round(value * (unit_ns / 1_000_000), 3))


def as_timestamps(column: pa.Array) -> pa.Array | None:
    """Return the column as timestamps (UTC if without zone); None if a value is not a time."""
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


def as_numbers(column: pa.Array) -> pa.Array | None:
    """Return the column as numbers, NaN as null; None if a value is not a number."""
    if not (is_text(column) or has_only_numbers(column)):
        return None
    for kind in (pa.int64(), pa.float64()):
        try:
            found = column.cast(kind)
            return pc.if_else(pc.is_nan(found), pa.scalar(None, kind), found)
        except pa.ArrowInvalid:
            continue
    return None


def is_text(column: pa.Array) -> bool:
    """Return whether the column is of type string or large_string."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def has_only_numbers(column: pa.Array) -> bool:
    """Return whether the column has a numeric type, or is text that is all numbers."""
    if is_text(column):
        return as_numbers(column) is not None
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def has_only_dates(column: pa.Array) -> bool:
    """Return whether the column's times are whole days."""
    if pa.types.is_date(column.type):
        return True
    return is_text(column) and (pc.max(pc.binary_length(column)).as_py() or 0) <= len("2013-01-01")


def not_a_time_message(name: str, column: pa.Array) -> str:
    """Return why a column cannot give the IDs."""
    units = list(dict.fromkeys(guess_unit_ns(abs(value)) for value in sample_numbers(column)))
    names = [UNIT_NAMES[unit] for unit in units if unit is not None]
    if len(names) > 1:
        return f"column {name!r} holds numbers of {' and of '.join(names)}: give all its times in one unit"
    if units and not names:
        return (
            f"column {name!r} holds {str(plain_value(column.drop_null(), 0))!r}, which is too small a number "
            "to be a time since 1970 (from 100,000,000 seconds on)"
        )
    return f"column {name!r} is not a time: {first_non_time(column)!r}; {TIME_FORMS_HINT}"


def first_non_time(column: pa.Array) -> str:
    """Return the first value that is not a time, or else the column's type, for an error message."""
    for row in range(len(column)):
        if as_timestamps(column[row : row + 1]) is None:
            return str(plain_value(column, row))
    return str(column.type)
