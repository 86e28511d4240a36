"""Format Arrow values as the texts of fields: one documented text for each type (docs/pipeline.md, Values).

    date, time, timestamp   ISO 8601; a year outside 0000 to 9999 has a sign: +40000-01-01, -0044-03-15
    duration, interval      ISO 8601: P1DT2H3M4.5S, P14M3D
    decimal                 plain digits, never an exponent
    half, float             the fewest digits that identify the number
    UUID                    36 characters
    list, map, struct       JSON

Arrow's own casts to text are used only in the ranges in which they are right, because they write some values
as another one, or as the message `<value out of range: …>`.
"""

from __future__ import annotations

import struct
import uuid
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.json_text import float_text
from headrace.columns.nested_to_json import OPAQUE_TYPE_NAMES, nested_texts
from headrace.columns.time_formats import EXACT_MS_FORMAT, SLASHED_DATE_FORMAT, IsoStyle, parse_style
from headrace.errors import UsageError

# Units per second: of Arrow types, and of written times.
UNITS_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
EPOCH_UNITS_PER_SECOND = {"epoch_ms": 1000, "epoch_s": 1, "auto": 1000, EXACT_MS_FORMAT: 1000}
FRACTION_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
UNITS_BY_FRACTION_DIGITS = {digits: unit for unit, digits in FRACTION_DIGITS.items()}
TEMPORAL_UNITS = {"s": "second", "ms": "millisecond", "us": "microsecond"}  # names of floor_temporal()
DAY_SECONDS = 86400

# Types whose values the encoder reads in place.
DIRECT_TYPE_IDS = frozenset(
    kind.id
    for kind in (
        pa.null(), pa.bool_(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(),
        pa.binary(1), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
        pa.uint64(),
    )
)  # fmt: skip

# The days, since 1970, of the years 1 to 9999, for which Arrow formats dates and times right.
FIRST_DAY_NUMBER = -719_162
LAST_DAY_NUMBER = 2_932_896


def to_encodable(column: pa.Array, timestamp_format: str) -> pa.Array:
    """Convert a column to a type that the encoder reads: with the same values, or their texts.

    Args:
        column: A column of any type.
        timestamp_format: How timestamps are written: a value of the option timestampFormat, or
            EXACT_MS_FORMAT. For a column of dates, SLASHED_DATE_FORMAT writes them with slashes.

    Raises:
        UsageError: if a value has no text; the message describes the value. Its row is found by
            texts_and_reasons().
    """
    types = pa.types
    kind = column.type
    if kind.id in DIRECT_TYPE_IDS:
        return column
    if isinstance(kind, pa.BaseExtensionType):
        return _extension_texts(column, timestamp_format)
    if types.is_dictionary(kind):
        return to_encodable(column.dictionary_decode(), timestamp_format)
    if types.is_run_end_encoded(kind):
        return to_encodable(pc.run_end_decode(column), timestamp_format)
    if types.is_union(kind):
        return _union_texts(column)
    if types.is_nested(kind):
        return pa.array(nested_texts(column, lambda leaf: to_encodable(leaf, "iso8601")), pa.string())
    if types.is_timestamp(kind):
        return convert_time_column(column, timestamp_format)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if types.is_float16(kind):
        return pa.array([_half_text(value) for value in column.to_pylist()], pa.string())
    if types.is_floating(kind):
        # The shortest decimal of the narrow number, then formatted like all doubles.
        return column.cast(pa.string()).cast(pa.float64())
    if types.is_date(kind) and timestamp_format == SLASHED_DATE_FORMAT:
        return pc.replace_substring(_date_texts(column), "-", "/")
    for is_kind, texts in FORMATTERS:
        if is_kind(kind):
            return texts(column)
    raise UsageError(f"a value of the type {kind}, which has no text: convert it in the source")


def texts_and_reasons(column: pa.Array, timestamp_format: str) -> tuple[pa.Array, dict[int, str]]:
    """Convert a column like to_encodable().

    Returns:
        The column, with null for each value that has no text, and the reasons for these by row.
    """
    pieces: list[pa.Array | None] = []
    wrong: dict[int, str] = {}

    def convert(start: int, stop: int) -> None:
        try:
            pieces.append(to_encodable(column.slice(start, stop - start), timestamp_format))
        except UsageError as error:
            if start + 1 >= stop:
                pieces.append(None)
                wrong[start] = str(error)
                return
            middle = (start + stop) // 2
            convert(start, middle)
            convert(middle, stop)

    convert(0, len(column))
    if not wrong:
        [whole] = pieces
        return whole, wrong
    kind = next((piece.type for piece in pieces if piece is not None), pa.string())
    return pa.concat_arrays([pa.nulls(1, kind) if piece is None else piece for piece in pieces]), wrong


def plain_value(column: pa.Array, row: int) -> bool | int | float | str | None:
    """Return one value for a message or a file of rejected rows; what has no text is described."""
    single = column.slice(row, 1)
    with suppress(UsageError):
        single = to_encodable(single, "iso8601")
    if pa.types.is_string(single.type) or pa.types.is_large_string(single.type):
        single = single.view(pa.binary() if pa.types.is_string(single.type) else pa.large_binary())
    try:
        value = single[0].as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        return f"a value of the type {single.type}"
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def convert_time_column(column: pa.Array, timestamp_format: str) -> pa.Array:
    """Convert times to a unit that is at least as fine as the written one, or to ISO 8601 texts.

    Raises:
        UsageError: if a time is outside the range of the format, or EXACT_MS_FORMAT would cut its
            microseconds.
    """
    kind = column.type
    style = parse_style(timestamp_format)
    if style is not None:
        return _styled_texts(column, style)
    if timestamp_format != "iso8601":
        return _to_milliseconds(column) if kind.unit == "s" or timestamp_format == EXACT_MS_FORMAT else column
    return _iso_texts(column, "T", FRACTION_DIGITS[kind.unit], "" if kind.tz is None else "Z")


def time_texts(column: pa.Array, timestamp_format: str) -> pa.Array:
    """Return times as the texts of fields, in this format."""
    if timestamp_format in EPOCH_UNITS_PER_SECOND:
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        return pc.divide(micros, 1_000_000 // EPOCH_UNITS_PER_SECOND[timestamp_format]).cast(pa.string())
    return convert_time_column(column, timestamp_format)


def _extension_texts(column: pa.Array, timestamp_format: str) -> pa.Array:
    name = column.type.extension_name
    if name == "arrow.uuid":
        values = column.storage.to_pylist()
        return pa.array([None if v is None else str(uuid.UUID(bytes=v)) for v in values], pa.string())
    if name == "arrow.bool8":
        return column.storage.cast(pa.bool_())
    if name in OPAQUE_TYPE_NAMES:
        raise UsageError(f"a value of the type {column.type}, which has no text: convert it in the source")
    return to_encodable(column.storage, timestamp_format)


def _union_texts(column: pa.Array) -> pa.Array:
    """Return the text of the value of each row, whatever its type is."""
    texts: list[bytes | None] = []
    for row in range(len(column)):
        value = column[row].value
        if value is None or not value.is_valid:
            texts.append(None)
            continue
        single = to_encodable(pa.repeat(value, 1), "iso8601")
        if pa.types.is_float64(single.type):
            texts.append(float_text(single[0].as_py()).encode())
        else:
            texts.append(single.cast(pa.string()).cast(pa.binary())[0].as_py())
    return pa.array(texts, pa.binary())


def _half_text(value: Any) -> str | None:
    """Return the shortest decimal that reads back as the same half-precision number."""
    if value is None:
        return None
    number = float(value)
    for digits in range(1, 6):
        short = float(f"{number:.{digits}g}")
        try:
            if struct.pack("e", short) == struct.pack("e", number):
                return repr(short)
        except OverflowError:  # rounded up to a number that is too large
            continue
    return repr(number)


def _decimal_texts(column: pa.Array) -> pa.Array:
    """Return all digits of decimals. Arrow writes an exponent if there are many zeros: 0E-10."""
    texts = column.cast(pa.string())
    with_exponent = pc.match_substring(texts, "E")
    if not pc.any(with_exponent).as_py():
        return texts
    odd = [format(Decimal(text), "f") for text in texts.filter(with_exponent).to_pylist()]
    return pc.replace_with_mask(texts, with_exponent, pa.array(odd, pa.string()))


def _date_texts(column: pa.Array) -> pa.Array:
    if pa.types.is_date64(column.type):
        ms = column.cast(pa.int64()).to_pylist()
        if any(value is not None and value % (DAY_SECONDS * 1000) for value in ms):
            raise UsageError("a date that has a time of day")
        return pa.array(
            [None if v is None else date_text(v // (DAY_SECONDS * 1000)) for v in ms], pa.string()
        )
    days = column.cast(pa.int32()).cast(pa.int64())
    return _texts_by_range(
        days,
        (FIRST_DAY_NUMBER, LAST_DAY_NUMBER),
        lambda part: part.cast(pa.int32()).cast(pa.date32()).cast(pa.string()),
        date_text,
    )


def _texts_by_range(
    numbers: pa.Array, limits: tuple[int, int], format_with_arrow: Any, format_with_python: Any
) -> pa.Array:
    """Return the texts of numbers: those within the limits formatted as a column, the others one by one."""
    extremes = pc.min_max(numbers)
    smallest, largest = extremes["min"].as_py(), extremes["max"].as_py()
    if smallest is None or (limits[0] <= smallest and largest <= limits[1]):
        return format_with_arrow(numbers)
    is_outside = pc.or_(pc.less(numbers, limits[0]), pc.greater(numbers, limits[1]))
    texts = format_with_arrow(pc.if_else(is_outside, pa.scalar(None, numbers.type), numbers))
    rest = [format_with_python(number) for number in numbers.filter(is_outside).to_pylist()]
    return pc.replace_with_mask(texts, is_outside, pa.array(rest, pa.string()))


def date_text(days: int) -> str:
    """Return days since 1970 in ISO 8601, for any year of the Gregorian calendar."""
    # Eras of 400 years, which begin on 1 March, so that a leap day is the last day of its year.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1460 + day // 36524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year += 400 * era + (month <= 2)
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{shown}-{month:02d}-{day:02d}"


def _clock_text(ticks: int, per_second: int, digits: int) -> str:
    """Return a time of day, with `digits` digits of the second's fraction."""
    seconds, rest = divmod(ticks, per_second)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    fraction = f"{rest:0{len(str(per_second)) - 1}d}"[:digits] if digits else ""
    return f"{text}.{fraction}" if fraction else text


def _iso_texts(column: pa.Array, between: str, digits: int, zone: str, shift_seconds: int = 0) -> pa.Array:
    """Return times in ISO 8601, with the clock of a zone that is ahead of UTC."""
    unit = column.type.unit
    per_second = UNITS_PER_SECOND[unit]
    numbers = column.cast(pa.int64())
    written = UNITS_BY_FRACTION_DIGITS[digits]
    finer = max(1, UNITS_PER_SECOND[written] // per_second)

    def format_with_arrow(part: pa.Array) -> pa.Array:
        times = part.cast(pa.timestamp(unit))
        if shift_seconds:
            times = pc.add(times, pa.scalar(shift_seconds * per_second, pa.duration(unit)))
        if UNITS_PER_SECOND[written] < per_second:
            # A cast of a time before 1970 would round it up.
            times = pc.floor_temporal(times, unit=TEMPORAL_UNITS[written])
        return pc.strftime(times.cast(pa.timestamp(written)), f"%Y-%m-%d{between}%H:%M:%S{zone}")

    def format_with_python(number: int) -> str:
        days, ticks = divmod(number + shift_seconds * per_second, DAY_SECONDS * per_second)
        clock = _clock_text(ticks * finer, per_second * finer, digits)
        return f"{date_text(days)}{between}{clock}{zone}"

    day = DAY_SECONDS * per_second  # a day of distance from the limits leaves space for the zone
    limits = ((FIRST_DAY_NUMBER + 1) * day, LAST_DAY_NUMBER * day - 1)
    return _texts_by_range(numbers, limits, format_with_arrow, format_with_python)


def _styled_texts(column: pa.Array, style: IsoStyle) -> pa.Array:
    digits = FRACTION_DIGITS[style.unit]
    between = style.strftime_format[len("%Y-%m-%d")]
    return _iso_texts(column, between, digits, style.zone, int(style.utc_offset.total_seconds()))


def _to_milliseconds(column: pa.Array) -> pa.Array:
    kind = column.type
    try:
        return column.cast(pa.timestamp("ms", kind.tz))
    except pa.ArrowInvalid:
        if kind.unit == "s":
            raise UsageError("a time that is too far from 1970 to count its milliseconds") from None
    cut = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(kind)
    example = _iso_texts(column.filter(pc.not_equal(column, cut))[:1], "T", FRACTION_DIGITS[kind.unit], "")[0]
    raise UsageError(
        f"the time {example}, which milliseconds since 1970 would cut: set the option timestampFormat to "
        "iso8601, which keeps all digits, or to epoch_ms, which cuts them"
    )


def _time_texts_of_day(column: pa.Array) -> pa.Array:
    """Return times of day; the end of a day is 24:00:00."""
    unit = column.type.unit
    per_second, digits = UNITS_PER_SECOND[unit], FRACTION_DIGITS[unit]
    day = DAY_SECONDS * per_second
    numbers = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).cast(pa.int64())
    storage = pa.int32() if column.type.bit_width == 32 else pa.int64()

    def format_with_python(number: int) -> str:
        if number != day:
            raise UsageError(f"a time of day of {number} {unit}, which is not within a day")
        return _clock_text(number, per_second, digits)

    return _texts_by_range(
        numbers,
        (0, day - 1),
        lambda part: part.cast(storage).cast(column.type).cast(pa.string()),
        format_with_python,
    )


def _duration_texts(column: pa.Array) -> pa.Array:
    scale = UNITS_PER_SECOND["ns"] // UNITS_PER_SECOND[column.type.unit]
    values = column.cast(pa.int64()).to_pylist()
    return pa.array([None if v is None else duration_text(0, 0, v * scale) for v in values], pa.string())


def _interval_texts(column: pa.Array) -> pa.Array:
    return pa.array([None if v is None else duration_text(*v) for v in column.to_pylist()], pa.string())


def duration_text(months: int, days: int, nanoseconds: int) -> str:
    """Return a duration in ISO 8601. Without months and days, whole days of the nanoseconds become days."""
    parts = (months, days, nanoseconds)
    if all(part <= 0 for part in parts) and any(parts):
        return "-" + duration_text(-months, -days, -nanoseconds)
    if not months and not days:
        days, nanoseconds = divmod(nanoseconds, DAY_SECONDS * UNITS_PER_SECOND["ns"])
    sign = "-" if nanoseconds < 0 else ""
    seconds, fraction = divmod(abs(nanoseconds), UNITS_PER_SECOND["ns"])
    date = "".join(f"{n}{unit}" for n, unit in ((months, "M"), (days, "D")) if n)
    clock = "".join(
        f"{sign}{n}{unit}" for n, unit in ((seconds // 3600, "H"), (seconds // 60 % 60, "M")) if n
    )
    if seconds % 60 or fraction or not (date or clock):
        decimals = f".{fraction:09d}".rstrip("0") if fraction else ""
        clock += f"{sign}{seconds % 60}{decimals}S"
    return f"P{date}" + (f"T{clock}" if clock else "")


FORMATTERS = (
    (pa.types.is_decimal, _decimal_texts),
    (pa.types.is_date, _date_texts),
    (pa.types.is_time, _time_texts_of_day),
    (pa.types.is_duration, _duration_texts),
    (pa.types.is_interval, _interval_texts),
)
