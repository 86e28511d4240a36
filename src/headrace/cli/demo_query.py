"""The demo's query: departure delays by carrier and hour, as the flights come in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.archive import entries, parse_schema
from headrace.pipeline.query_progress import BatchProgress, follow_batches

# What each of the 19 fields is; the archive's columns.
FIELDS = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
    sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING,
    dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour STRING
"""

# The query names the two fields it needs, so nothing else is decoded.
QUERY_FIELDS = "carrier STRING, dep_delay INT"

Key = TypeVar("Key", bound=Hashable)

WATERMARK = "2 hours"
LATE_MINUTES = 15

# An hour with fewer departures says little.
DEPARTURES_MIN = 20


@dataclass(frozen=True)
class Delays:
    """Some flights: `departed` did leave, `late` by over LATE_MINUTES; `minutes` is the sum of delays."""

    flights: int = 0
    departed: int = 0
    late: int = 0
    minutes: int = 0

    def __add__(self, other: Delays) -> Delays:
        return Delays(
            self.flights + other.flights,
            self.departed + other.departed,
            self.late + other.late,
            self.minutes + other.minutes,
        )

    @property
    def cancelled(self) -> int:
        """Flights that never left: they have no delay."""
        return self.flights - self.departed

    @property
    def mean(self) -> float:
        """Minutes of delay of a flight that left; early departures count as negative."""
        return self.minutes / self.departed if self.departed else 0.0

    @property
    def share_late(self) -> float:
        """Which part of those that left was late, 0 to 1."""
        return self.late / self.departed if self.departed else 0.0

    @property
    def share_cancelled(self) -> float:
        """Which part of all flights never left, 0 to 1."""
        return self.cancelled / self.flights if self.flights else 0.0


@dataclass(frozen=True)
class Window:
    """An hour of one carrier, local time: `start` as text, `hour` of the day."""

    start: str
    hour: int
    carrier: str


def delays_by_hour(
    spark: SparkSession,
    url: str,
    stream: str,
    entries_per_batch: int,
    on_batch: Callable[[BatchProgress], None],
) -> dict[Window, Delays]:
    """Runs the query over what is in the stream, in micro-batches, and returns the last word on every window.

    In update mode each batch gives out the windows that changed; the watermark lets Spark forget those that
    can change no more, so its memory holds hours, not the year.
    """
    windows: dict[Window, Delays] = {}

    def keep(changed: DataFrame, number: int) -> None:
        for row in changed.collect():
            windows[Window(row.start, row.hour, row.carrier)] = Delays(
                row.flights, row.departed, row.late, row.minutes or 0
            )

    flights = entries(spark, url, stream, parse_schema(QUERY_FIELDS), maxOffsetsPerTrigger=entries_per_batch)
    query = (
        flights.withWatermark("timestamp", WATERMARK)
        .groupBy(F.window("timestamp", "1 hour"), "carrier")
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.count_if(F.col("dep_delay") > LATE_MINUTES).alias("late"),
            F.sum("dep_delay").alias("minutes"),
        )
        .withColumn("start", F.date_format("window.start", "yyyy-MM-dd HH:mm"))
        .withColumn("hour", F.hour("window.start"))
        .drop("window")
        .writeStream.outputMode("update")
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )
    for batch in follow_batches(query):
        on_batch(batch)
    return windows


def by_carrier(windows: dict[Window, Delays]) -> dict[str, Delays]:
    """Each carrier's year, the latest carrier first."""
    totals = total((window.carrier, delays) for window, delays in windows.items())
    return dict(sorted(totals.items(), key=lambda each: -each[1].mean))


def by_carrier_and_hour(windows: dict[Window, Delays]) -> dict[tuple[str, int], Delays]:
    """Each carrier's hours of the day."""
    return total(((window.carrier, window.hour), delays) for window, delays in windows.items())


def worst_hours(windows: dict[Window, Delays], count: int) -> list[tuple[str, Delays]]:
    """The hours of the year with the longest mean delay, all carriers together."""
    hours = total((window.start, delays) for window, delays in windows.items())
    busy = [(start, delays) for start, delays in hours.items() if delays.departed >= DEPARTURES_MIN]
    return sorted(busy, key=lambda each: -each[1].mean)[:count]


def total(parts: Iterable[tuple[Key, Delays]]) -> dict[Key, Delays]:
    """The sums by key."""
    sums: dict[Key, Delays] = defaultdict(Delays)
    for key, delays in parts:
        sums[key] += delays
    return dict(sums)
