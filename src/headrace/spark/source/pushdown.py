"""Filters that Spark hands to a batch read: which streams, from which ID to which. Fewer entries are read.

Spark does so only where `spark.sql.python.filterPushdown.enabled` is true, and fails if a reader could take
filters where it is not. So a reader that can is given out only in the worker that hands them over.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from headrace.spark.errors import brief_errors
from headrace.spark.source.offsets import START, U64_MAX, Offsets, format_id, in_order, parse_id
from headrace.spark.source.reader import HeadraceReader

if TYPE_CHECKING:
    from headrace.spark.decode.schema import Layout

WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ONE_US = datetime.timedelta(microseconds=1)
LAST = (U64_MAX, U64_MAX)
ORDERS = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)

Place = tuple[int, int]


def is_pushing() -> bool:
    """Whether this is the worker of Spark's that hands filters to a reader."""
    return WORKER in sys.modules


@dataclass
class Wanted:
    """What is left to read: these streams (None: all), and their entries after one ID and up to another."""

    streams: set[str] | None = None
    after: Place = (0, 0)
    upto: Place = LAST

    def only(self, streams: Iterable[Any]) -> None:
        """Leave these streams."""
        names = {name for name in streams if name is not None}
        self.streams = names if self.streams is None else self.streams & names

    def between(self, after: Place, upto: Place) -> None:
        """Leave what lies after one ID and up to another."""
        self.after = max(self.after, after)
        self.upto = min(self.upto, upto)

    def nothing(self) -> None:
        """Leave no entry at all."""
        self.upto = (0, 0)


@brief_errors
class PushReader(HeadraceReader):
    """The batch reader where Spark pushes filters down."""

    _wanted = Wanted()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note what narrows the read; yield what Spark has to look at itself."""
        self._wanted = Wanted()
        for each in filters:
            if not push(each, roles(self._layout), self._wanted):
                yield each

    def _partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        return super()._partitions(*narrowed(self._wanted, start, end))


def narrowed(wanted: Wanted, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
    """The offsets of a read, narrowed to what is wanted."""
    end = {s: i for s, i in end.items() if wanted.streams is None or s in wanted.streams}
    start = {s: format_id(max(parse_id(start.get(s, START)), wanted.after)) for s in end}
    return in_order(start), in_order({s: format_id(min(parse_id(i), wanted.upto)) for s, i in end.items()})


def roles(layout: Layout) -> dict[str, str]:
    """Which columns are the stream, the ID, the time and the sequence, by their names in the schema."""
    found = zip(layout.schema.names, layout.specs, strict=True)
    parts = ("stream", "id", "timestamp", "sequence")
    return {name: spec.kind for name, spec in found if not spec.name and spec.kind in parts}


def push(condition: Filter, parts: dict[str, str], wanted: Wanted) -> bool:
    """Narrow what is wanted by a filter. False if Spark must still look at the rows that are left."""
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    part = parts.get(path[0]) if len(path) == 1 else None
    if part is None:
        return False
    if isinstance(condition, IsNotNull):
        return True
    values = list(_values(condition))
    if part == "stream" and values:
        wanted.only(values)
        return True
    if part == "id" and values:
        return _push_ids(values, wanted)
    if part == "timestamp":
        return _push_time(condition, wanted)
    return False


def _values(condition: Filter) -> Iterator[Any]:
    """The values that an = or IN allows; none for any other filter."""
    if isinstance(condition, In):
        yield from condition.value
    elif isinstance(condition, EqualTo | EqualNullSafe):
        yield condition.value


def _push_ids(values: list[Any], wanted: Wanted) -> bool:
    """Read from the lowest ID to the highest. Texts that are no ID as Redis writes it equal none."""
    ids = sorted(found for found in map(_canonical, values) if found is not None)
    if not ids:
        wanted.nothing()
        return True
    wanted.between(before(ids[0]), ids[-1])
    return ids[0] == ids[-1]


def _canonical(text: Any) -> Place | None:
    try:
        found = parse_id(text)
    except (ValueError, AttributeError):
        return None
    return found if format_id(found) == text and found > (0, 0) else None


def before(entry_id: Place) -> Place:
    """The ID just before this one, which is not 0-0."""
    ms, seq = entry_id
    return (ms, seq - 1) if seq else (ms - 1, U64_MAX)


def _push_time(condition: Filter, wanted: Wanted) -> bool:
    """Times of entries are whole milliseconds; the filter's have microseconds."""
    if not isinstance(condition, (*ORDERS, EqualTo, EqualNullSafe)):
        return False
    time = condition.value
    if not isinstance(time, datetime.datetime):
        return False
    micros = (time.replace(tzinfo=time.tzinfo or datetime.UTC) - EPOCH) // ONE_US
    floor, ceiling = micros // 1000, -(-micros // 1000)
    if isinstance(condition, EqualTo | EqualNullSafe):
        _from(ceiling, wanted)
        _up_to(floor, wanted)
    elif isinstance(condition, GreaterThan | GreaterThanOrEqual):
        _from(floor + 1 if isinstance(condition, GreaterThan) else ceiling, wanted)
    else:
        _up_to(ceiling - 1 if isinstance(condition, LessThan) else floor, wanted)
    return True


def _from(ms: int, wanted: Wanted) -> None:
    if ms > 0:
        wanted.between((ms - 1, U64_MAX), LAST)


def _up_to(ms: int, wanted: Wanted) -> None:
    if ms >= 0:
        wanted.between((0, 0), (ms, U64_MAX))
    else:
        wanted.nothing()
