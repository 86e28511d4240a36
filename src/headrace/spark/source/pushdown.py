"""Push filters on streams, IDs and times down into a batch read, so that it reads fewer entries.

Spark pushes filters down only if `spark.sql.python.filterPushdown.enabled` is true. If it is false, Spark
fails on readers that have pushFilters(). So only the worker that pushes filters down gets such a reader.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from headrace.positions.entry_ids import U64_MAX, EntryId, format_id, parse_id, previous_id
from headrace.spark.source.read_bounds import MAX_ID, ReadBounds
from headrace.spark.source.reader import HeadraceReader

if TYPE_CHECKING:
    from headrace.spark.decode.schema import ColumnLayout

PUSHDOWN_WORKER_MODULE = "pyspark.sql.worker.data_source_pushdown_filters"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ONE_US = datetime.timedelta(microseconds=1)
COMPARISONS = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def is_pushdown_worker() -> bool:
    """Return whether this process is the worker of Spark that pushes filters down."""
    return PUSHDOWN_WORKER_MODULE in sys.modules


class PushdownReader(HeadraceReader):
    """The batch reader if Spark pushes filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow the read by the filters; yield those that Spark must still apply."""
        self._reader.bounds = bounds = ReadBounds()
        columns = pushable_columns(self._reader.layout)
        for each in filters:
            if not push_filter(each, columns, bounds):
                yield each


def pushable_columns(layout: ColumnLayout) -> dict[str, str]:
    """Return which columns are the stream, ID, time and sequence, by their names in the schema."""
    found = zip(layout.arrow_schema.names, layout.specs, strict=True)
    parts = ("stream", "id", "timestamp", "sequence")
    return {name: spec.kind for name, spec in found if not spec.name and spec.kind in parts}


def push_filter(condition: Filter, columns: dict[str, str], bounds: ReadBounds) -> bool:
    """Narrow the bounds by a filter. Return False if Spark must still apply it."""
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    kind = columns.get(path[0]) if len(path) == 1 else None
    if kind is None:
        return False
    if isinstance(condition, IsNotNull):
        return True
    values = list(_allowed_values(condition))
    if kind == "stream" and values:
        bounds.restrict_streams(values)
        return True
    if kind == "id" and values:
        return _push_ids(values, bounds)
    if kind == "timestamp":
        return _push_time(condition, bounds)
    return False


def _allowed_values(condition: Filter) -> Iterator[Any]:
    """Yield the values that an = or IN allows; nothing for other filters."""
    if isinstance(condition, In):
        yield from condition.value
    elif isinstance(condition, EqualTo | EqualNullSafe):
        yield condition.value


def _push_ids(values: list[Any], bounds: ReadBounds) -> bool:
    """Narrow to the range from the lowest to the highest ID. Texts that are not canonical IDs match none."""
    ids = sorted(found for found in map(_parse_canonical_id, values) if found is not None)
    if not ids:
        bounds.select_nothing()
        return True
    bounds.restrict_ids(previous_id(ids[0]), ids[-1])
    return ids[0] == ids[-1]


def _parse_canonical_id(text: Any) -> EntryId | None:
    try:
        found = parse_id(text)
    except (ValueError, AttributeError):
        return None
    return found if format_id(found) == text and found > (0, 0) else None


def _push_time(condition: Filter, bounds: ReadBounds) -> bool:
    """Narrow by a comparison of times. Entries have whole milliseconds, filters microseconds."""
    if not isinstance(condition, (*COMPARISONS, EqualTo, EqualNullSafe)):
        return False
    time = condition.value
    if not isinstance(time, datetime.datetime):
        return False
    micros = (time.replace(tzinfo=time.tzinfo or datetime.UTC) - EPOCH) // ONE_US
    floor, ceiling = micros // 1000, -(-micros // 1000)
    if isinstance(condition, EqualTo | EqualNullSafe):
        _restrict_from(ceiling, bounds)
        _restrict_up_to(floor, bounds)
    elif isinstance(condition, GreaterThan | GreaterThanOrEqual):
        _restrict_from(floor + 1 if isinstance(condition, GreaterThan) else ceiling, bounds)
    else:
        _restrict_up_to(ceiling - 1 if isinstance(condition, LessThan) else floor, bounds)
    return True


def _restrict_from(ms: int, bounds: ReadBounds) -> None:
    if ms > 0:
        bounds.restrict_ids((ms - 1, U64_MAX), MAX_ID)


def _restrict_up_to(ms: int, bounds: ReadBounds) -> None:
    if ms >= 0:
        bounds.restrict_ids((0, 0), (ms, U64_MAX))
    else:
        bounds.select_nothing()
