"""The demo's streaming query: departure delays by carrier and hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.spark_session.query_progress import BatchProgress, follow_batches

# The types of the 19 fields, which are the columns of the archive.
FLIGHT_FIELD_TYPES = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
    sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING,
    dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour STRING
"""

# The query declares only the fields it needs, so that no others are decoded.
QUERY_COLUMNS = "_timestamp TIMESTAMP, carrier STRING, dep_delay INT"

Key = TypeVar("Key", bound=Hashable)

WATERMARK = "2 hours"
LATE_MINUTES = 15

# Hours with fewer departures are left out of the worst ones.
DEPARTURES_MIN = 20


@dataclass(frozen=True)
class Delays:
    """Sums over flights: all, those departed, those over LATE_MINUTES late, and minutes of delay."""

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
    def cancelled_count(self) -> int:
        """The number of cancelled flights, which have no delay."""
        return self.flights - self.departed

    @property
    def mean_minutes(self) -> float:
        """The mean delay of departed flights in minutes; early departures count as negative."""
        return self.minutes / self.departed if self.departed else 0.0

    @property
    def late_fraction(self) -> float:
        """The share of departed flights that were late, 0 to 1."""
        return self.late / self.departed if self.departed else 0.0

    @property
    def cancelled_fraction(self) -> float:
        """The share of all flights that were cancelled, 0 to 1."""
        return self.cancelled_count / self.flights if self.flights else 0.0


@dataclass(frozen=True)
class Window:
    """An hour of one carrier in local time: its start as text, and the hour of the day."""

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
    """Run the query over the stream in micro-batches and return the final value of every window.

    In update mode each batch returns the windows that changed. The watermark lets Spark drop windows that
    cannot change any more, so that its state is a few hours, not the year.
    """
    windows: dict[Window, Delays] = {}

    def store_windows(changed: DataFrame, number: int) -> None:
        for row in changed.collect():
            windows[Window(row.start, row.hour, row.carrier)] = Delays(
                row.flights, row.departed, row.late, row.minutes or 0
            )

    source = spark.readStream.format("headrace").option("url", url).option("subscribe", stream)
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", entries_per_batch)
    source = source.option("reconnectTimeout", "0s")  # the demo's server does not come back
    query = (
        source.schema(QUERY_COLUMNS)
        .load()
        .withWatermark("_timestamp", WATERMARK)
        .groupBy(F.window("_timestamp", "1 hour"), "carrier")
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
        .foreachBatch(store_windows)
        .trigger(availableNow=True)
        .start()
    )
    for batch in follow_batches(query):
        on_batch(batch)
    return windows


def sum_by_carrier(windows: dict[Window, Delays]) -> dict[str, Delays]:
    """Return the sums of each carrier, the longest mean delay first."""
    totals = sum_by_key((window.carrier, delays) for window, delays in windows.items())
    return dict(sorted(totals.items(), key=lambda each: -each[1].mean_minutes))


def sum_by_carrier_hour(windows: dict[Window, Delays]) -> dict[tuple[str, int], Delays]:
    """Return the sums of each carrier and hour of the day."""
    return sum_by_key(((window.carrier, window.hour), delays) for window, delays in windows.items())


def worst_hours(windows: dict[Window, Delays], count: int) -> list[tuple[str, Delays]]:
    """Return the hours of the year with the longest mean delay of all carriers together."""
    hours = sum_by_key((window.start, delays) for window, delays in windows.items())
    busy = [(start, delays) for start, delays in hours.items() if delays.departed >= DEPARTURES_MIN]
    return sorted(busy, key=lambda each: -each[1].mean_minutes)[:count]


def sum_by_key(parts: Iterable[tuple[Key, Delays]]) -> dict[Key, Delays]:
    """Return the sums of the values with equal keys."""
    sums: dict[Key, Delays] = defaultdict(Delays)
    for key, delays in parts:
        sums[key] += delays
    return dict(sums)
