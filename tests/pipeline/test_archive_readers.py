"""deltalake, pandas, DuckDB and Polars find the right rows in an archive, with filters of every type."""

from __future__ import annotations

import datetime
import decimal
import math
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder

from headrace.archive.creation import STATISTICS_PROPERTY, create_or_open
from headrace.archive.files import read_archive
from headrace.archive.ordered_reader import entries_in_order
from headrace.archive.verification import check_files
from headrace.archive.writer import write_days
from support.archives import ArchiveMaker

HOUR = 3_600_000
DAY = 24 * HOUR
START = 1_700_000_000_000
LATE = 253_402_300_800_000  # the year 10000
UTC = datetime.UTC
FIELDS = pa.schema(
    [
        ("flag", pa.bool_()),
        ("number", pa.int32()),
        ("ratio", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("moment", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 2)),
        ("pair", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("many", pa.list_(pa.int32())),
        ("missing", pa.int32()),
    ]
)
ROWS = 90


def fields_of(n: int) -> dict[str, object]:
    """Return the fields of an entry; with nulls, NaN and infinity, and long texts with a common beginning."""
    if n % 7 == 0:
        return {"number": n}
    return {
        "flag": n % 2 == 0,
        "number": None if n % 30 < 10 else n,  # some files have no value of it
        "ratio": {1: math.nan, 2: math.inf, 3: -math.inf}.get(n % 11, n / 4),
        "text": "\U0001f30a" * 40 + f"text {n}",
        "raw": b"\xff%d" % n,
        "moment": datetime.datetime(2020, 1, 1, n % 24, tzinfo=UTC),
        "day": datetime.date(2020, 1, 1) + datetime.timedelta(n),
        "price": decimal.Decimal(n) / 4,
        "pair": {"x": n, "y": str(n)},
        "many": [n],
    }


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    maker = ArchiveMaker(tmp_path_factory.mktemp("readers") / "archive", FIELDS)
    for first in range(0, ROWS, 10):
        maker.add_written("s", [(f"{START + n * HOUR}-1", fields_of(n)) for n in range(first, first + 10)])
    maker.add_written("late", [(f"{LATE + n}-1", fields_of(n)) for n in range(3)])
    return maker.directory


CONDITIONS = [
    "flag", "NOT flag", "flag IS NULL", "number = 15", "number >= 0", "number <> 15", "number IS NULL",
    "number IS NOT NULL", "number IN (15, 47, 89)", "ratio > 3", "ratio < 0", "ratio = 2.5", "ratio IS NULL",
    "text > 't'", "text IS NULL", "text LIKE '%text 17'", "text IS NOT NULL",
    "moment >= to_timestamp(1577880000)", "moment IS NULL", "day = DATE '2020-01-18'",
    "day < DATE '2020-02-01'",
    "price > 10", "price = 4.25", "missing IS NULL", "missing = 1",
    f"\"timestamp\" >= to_timestamp({(START + 40 * HOUR) // 1000})",
    f"\"timestamp\" < to_timestamp({(START + 40 * HOUR) // 1000})", "sequence = 1", "sequence > 1",
    "stream = 's'", "stream = 'late'", "date >= DATE '2023-11-16'", "date IS NULL",
    "number = 15 OR missing = 1",
]  # fmt: skip


def all_rows(directory: Path) -> pa.Table:
    """Return the rows without a filter: those of the files, with the partitions from the log."""
    return DeltaTable(directory).to_pyarrow_table()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_in_sql_find_the_rows_that_the_table_has(directory: Path, condition: str) -> None:
    table = DeltaTable(directory)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        expected = connection.from_arrow(all_rows(directory)).filter(condition).project("id").fetchall()
        found = connection.from_arrow(table.to_pyarrow_dataset()).filter(condition).project("id").fetchall()
    assert sorted(found) == sorted(expected)
    if "ratio" in condition or "text >" in condition:
        return  # engines order NaN differently
    query = QueryBuilder().register("lake", table).execute(f"SELECT id FROM lake WHERE {condition}")
    assert sorted(query.read_all().column(0).to_pylist()) == sorted(id_ for (id_,) in expected)


FILTERS: list[tuple[str, str, Any]] = [
    ("flag", "=", True),
    ("number", "=", 15),
    ("number", ">=", 0),
    ("number", "!=", 15),
    ("number", "in", [15, 47, 89]),
    ("ratio", ">", 3.0),
    ("ratio", "<", 0.0),
    ("text", ">", "t"),
    ("raw", ">", b"\xff5"),
    ("moment", ">=", datetime.datetime(2020, 1, 1, 12, tzinfo=UTC)),
    ("day", "<", datetime.date(2020, 2, 1)),
    ("price", ">", decimal.Decimal(10)),
    ("missing", "=", 1),
    ("timestamp", "<", datetime.datetime.fromtimestamp(START / 1000 + 40 * 3600, UTC)),
    ("sequence", "=", 1),
    ("stream", "=", "s"),
]
OPERATORS = {"=": pc.equal, "!=": pc.not_equal, ">": pc.greater, ">=": pc.greater_equal, "<": pc.less}


@pytest.mark.parametrize("given", FILTERS, ids=str)
def test_filters_of_deltalake_pandas_and_polars_find_the_rows(
    directory: Path, given: tuple[str, str, Any]
) -> None:
    name, operator, value = given
    everything = all_rows(directory)
    column = everything.column(name)
    if operator == "in":
        mask = pc.is_in(column, pa.array(value, column.type))
        condition = pl.col(name).is_in(value)
    else:
        mask = OPERATORS[operator](column, pa.scalar(value, column.type))
        expressions = {
            "=": pl.col(name) == value, "!=": pl.col(name) != value, ">": pl.col(name) > value,
            ">=": pl.col(name) >= value, "<": pl.col(name) < value,
        }  # fmt: skip
        condition = expressions[operator]
    expected = sorted(everything.filter(mask).column("id").to_pylist())
    table = DeltaTable(directory)
    assert sorted(table.to_pyarrow_table(filters=[given]).column("id").to_pylist()) == expected
    assert sorted(table.to_pandas(filters=[given])["id"]) == expected
    if name == "ratio":  # for Polars NaN is greater than all numbers
        expected = sorted(pl.DataFrame(everything).filter(condition)["id"].to_list())
    found = pl.scan_delta(str(directory)).filter(condition).collect()
    assert sorted(found["id"].to_list()) == expected


def test_filters_of_an_older_archive_are_right_after_the_next_run(tmp_path: Path) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add_written("s", [(f"{START}-{n}", {"n": n}) for n in range(10)])
    DeltaTable(maker.directory).alter.set_table_properties({STATISTICS_PROPERTY: "timestamp,sequence"})
    assert DeltaTable(maker.directory).to_pyarrow_table(filters=[("sequence", "=", 5)]).num_rows == 0
    create_or_open(maker.location, None, "UTC")
    assert DeltaTable(maker.directory).to_pyarrow_table(filters=[("sequence", "=", 5)]).num_rows == 1
    version = DeltaTable(maker.directory).version()
    create_or_open(maker.location, None, "UTC")
    assert DeltaTable(maker.directory).version() == version


LAST_MS = 9_223_372_036_854_775  # of a timestamp in microseconds


@pytest.mark.parametrize(("zone", "hours"), [("UTC", 0), ("America/New_York", -5), ("Asia/Tokyo", 9)])
def test_days_up_to_the_end_of_the_year_9999_have_a_date(tmp_path: Path, zone: str, hours: int) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    last_day = LATE - DAY - hours * HOUR
    times = [last_day - 1, last_day, last_day + DAY - 1, last_day + DAY, LATE + DAY, LAST_MS - DAY, LAST_MS]
    entries = [(f"{ms}-{n}", {"n": f"{n:03}"}) for n, ms in enumerate(times)]
    exact_times = pa.array([1000 * ms for ms in times], pa.timestamp("us", "UTC"))
    rows = maker.rows(entries).set_column(1, "timestamp", exact_times).combine_chunks()
    maker.table.commit(write_days(rows.to_batches(), "s", maker.location, zone), {})
    archive = read_archive(maker.location)
    assert [(file.date, file.rows) for file in archive.files] == [
        (datetime.date(9999, 12, 30), 1),
        (datetime.date.max, 2),
        (None, 4),
    ]
    assert archive.archived_through == {"s": entries[-1][0]}
    for after, upto, expected in ((-1, 6, entries), (0, 2, entries[1:3]), (2, 4, entries[3:5])):
        start = "0-0" if after < 0 else entries[after][0]
        batches = list(entries_in_order(archive.files, archive.columns, start, entries[upto][0]))
        read = pa.Table.from_batches(batches)
        fields = map(dict, read["fields"].to_pylist())
        assert list(zip(read["id"].to_pylist(), fields, strict=True)) == expected
    assert [check.damage for _, check in check_files(archive.files)] == [None] * 3
    query = QueryBuilder().register("lake", DeltaTable(maker.directory))
    for condition, count in (
        ("date = DATE '9999-12-31'", 2),
        ("date IS NULL", 4),
        ("date > '2000-01-01'", 3),
    ):
        assert query.execute(f"SELECT id FROM lake WHERE {condition}").read_all().num_rows == count


NAMES = [
    "plain", "orders:eu", "orders_eu", "a b", "100%", "a/b", "\u00e9", "a%41b", "q?x", "h#y", "a=b", "a\\b",
    "[x]*", "'\"`$", "\t", "a\nb", "..", ".", "\u65e5\u672c", "null", "007", "", "trail ", " lead", "~",
    "a+b", "\x01\x7f", "a\0b", "A", "a", "\u00e9" * 40, "date=2020-01-01",
]  # fmt: skip
UNREADABLE_NAMES = ["__HIVE_DEFAULT_PARTITION__", "\u00e9" * 60, "z" * 3000]


def test_every_reader_takes_the_true_names_of_streams_and_days(tmp_path: Path) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    for number, stream in enumerate(NAMES):
        maker.add_written(stream, [(f"{START}-{number}", {}), (f"{LATE}-{number}", {})])
    expected = sorted(
        (number, stream or None, day)
        for number, stream in enumerate(NAMES)
        for day in (datetime.date(2023, 11, 14), datetime.date.max)
    )
    table = DeltaTable(maker.directory)
    names = ["sequence", "stream", "date"]
    read = {
        "deltalake": table.to_pyarrow_table(columns=names).select(names).to_pylist(),
        "DuckDB": duckdb.from_arrow(table.to_pyarrow_dataset()).project(", ".join(names)).fetchall(),
        "Polars": pl.scan_delta(str(maker.directory)).select(names).collect().rows(),
        "a glob": duckdb.sql(
            f"SELECT {', '.join(names)} FROM read_parquet('{maker.directory}/**/*.parquet', "
            "hive_partitioning = true, hive_types = {'stream': VARCHAR, 'date': DATE})"
        ).fetchall(),
    }  # fmt: skip
    for reader, rows in read.items():
        values = [tuple(row.values()) if isinstance(row, dict) else row for row in rows]
        found = sorted((number, stream, day or datetime.date.max) for number, stream, day in values)
        assert found == expected, reader
    for number, stream in enumerate(NAMES):
        condition = pl.col("stream") == stream if stream else pl.col("stream").is_null()
        found = pl.scan_delta(str(maker.directory)).filter(condition).collect()
        assert found["sequence"].to_list() == [number] * 2


def test_streams_whose_names_are_no_names_of_folders_are_not_merged_with_others(tmp_path: Path) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    streams = [*UNREADABLE_NAMES, "z" * 240, "\u00e9" * 40, ""]
    for number, stream in enumerate(streams):
        maker.add_written(stream, [(f"{START}-{number}", {})])
    found = pl.scan_delta(str(maker.directory)).select("stream").collect()["stream"].to_list()
    assert len(set(found)) == len(streams) and {None, *streams[3:5]} < set(found)
    rows = DeltaTable(maker.directory).to_pyarrow_table(columns=["stream"]).column("stream").to_pylist()
    assert {stream or "" for stream in rows} == set(streams)
