"""Entries that are archived, trimmed and replayed keep every byte."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from headrace.archive.creation import create_or_open
from headrace.archive.location import archive_location
from headrace.archive.merging import merge_small_files
from headrace.columns.declarations import parse_schema
from headrace.pipeline.archiving.archive_streams import archive_streams
from headrace.pipeline.archiving.column_inference import infer_columns_sql, sample_entries
from headrace.pipeline.querying.spark_query import register_views, run_query
from headrace.pipeline.replaying.replay_entries import replay_entries
from headrace.pipeline.replaying.source import ReplaySource
from headrace.pipeline.spark_session.local_spark import local_spark
from headrace.pipeline.trimming.horizon import RetentionPolicy
from headrace.pipeline.trimming.trim_streams import trim_streams
from headrace.spark.decode.misfits import DIRECTORY_VARIABLE, read_misfit_counts, set_misfits_directory

pytestmark = pytest.mark.whole

HOUR = 3_600_000
FIELDS = (
    "a BIGINT, b DOUBLE, c STRING, d DATE, e TIMESTAMP, f BOOLEAN, g DECIMAL(9, 2), h ARRAY<BIGINT>, "
    "i FLOAT, j STRUCT<t: TIMESTAMP, n: INT>, k BINARY, l SMALLINT, m TIMESTAMP COMMENT 'iso8601:T3Z', "
    "n TIMESTAMP COMMENT 'epoch_s'"
)
USUAL = [b"7"]
USUAL += [b"007", b"+1", b"-0", b"1e3", b"1.50", b"1.5", b"2.0", b"-1", b"True", b"true", b"false", b"no"]
USUAL += [b"[1, 2]", b"[1,2]", b"2026-03-01", b"20260301", b"1700000000000", b"-62135596800000", b"nan"]
USUAL += [b'{"t": "2026-03-01 12:00:00+00:00", "n": 1}', b'{"t": "2026-03-01 12:00:00", "n": 1}', b"inf"]
USUAL += [b"2026-03-01T12:00:00.250Z", b"2026-03-01T12:00:00Z", b"0001-01-01T00:00:00.000Z"]
USUAL += [b"1e-7", b"1e-07", b"NaN"]
USUAL += [b"9223372036854775807", b"99999999999999999999", b"", b"\xff", b"\\xff", b"\x00", "grü".encode()]

LETTERS = [bytes([c]) for c in b"abcdefghijklmn"]
names = st.one_of(st.sampled_from(LETTERS), st.binary(max_size=6))
values = st.one_of(st.sampled_from(USUAL), st.binary(max_size=30), st.integers().map(lambda n: b"%d" % n))
fields = st.lists(st.tuples(names, values), min_size=1, max_size=20)
alike = st.dictionaries(st.sampled_from(LETTERS), values, min_size=1, max_size=6).map(
    lambda found: sorted(found.items())
)
entries_of = st.lists(st.one_of(fields, alike), min_size=1, max_size=80)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    counts = tmp_path_factory.mktemp("counts")
    with (
        set_misfits_directory(counts),
        local_spark("test", tmp_path_factory.mktemp("spark") / "log") as spark,
    ):
        yield spark


def add(client: redis.Redis, stream: str, entries: list[list[tuple[bytes, bytes]]], first: int = 1) -> None:
    with client.pipeline(transaction=False) as pipe:
        for n, pairs in enumerate(entries, first):
            words = [word for pair in pairs for word in pair]
            pipe.execute_command("XADD", stream, f"{n * HOUR // 4}-{n}", *words)
        pipe.execute()


def read(client: redis.Redis, stream: str) -> list[Any]:
    """Return the entries by XRANGE, with repeated names."""
    words: list[Any] = client.execute_command("XRANGE", stream, "-", "+")
    return words


@pytest.fixture
def raw(server_url: str) -> Iterator[redis.Redis]:
    """Return a client whose XRANGE returns lists of bytes instead of dictionaries of text."""
    with redis.Redis.from_url(server_url) as client:
        client.flushall()
        client.set_response_callback("XRANGE", lambda reply, **options: reply)
        yield client


@pytest.mark.parametrize("how", ["map", "typed", "infer"])
def test_any_bytes_survive_archive_trim_and_replay(
    tmp_path: Path, spark: SparkSession, server_url: str, raw: redis.Redis, how: str
) -> None:
    @settings(
        max_examples=1,
        deadline=None,
        phases=[
            Phase.explicit,
            Phase.generate,
        ],  # shrinking would take an hour
        suppress_health_check=list(HealthCheck),
    )
    @given(entries_of, entries_of)
    @example([[(name, value)] for name in LETTERS for value in USUAL], [])
    def survive(some: list[list[tuple[bytes, bytes]]], more: list[list[tuple[bytes, bytes]]]) -> None:
        raw.flushall()
        directory = tmp_path / uuid.uuid4().hex
        add(raw, "s", some)
        add(raw, "s", [[(b"a", b"1")]], len(some) + 1)  # so that there is a field to infer
        columns = {
            "map": None,
            "typed": FIELDS,
            "infer": infer_columns_sql(sample_entries(server_url, ["s"])),
        }[how]
        schema = None if columns is None else parse_schema(columns)
        written = archive_streams(spark, server_url, "s", directory, fields=schema, entries_per_batch=200)
        add(raw, "s", more, len(some) + 2)
        written += archive_streams(spark, server_url, "s", directory, fields=schema, entries_per_batch=200)
        whole = read(raw, "s")
        assert written == len(whole) == len(some) + len(more) + 1
        trim_streams(server_url, ["s"], retention=RetentionPolicy(allow_no_groups=True))
        assert len(read(raw, "s")) == 1
        merge_small_files(create_or_open(archive_location(directory), schema, "UTC"))
        replay_entries(ReplaySource("s", None, directory), server_url, "t", name="x")
        assert read(raw, "t") == whole

    survive()


ODD: list[list[tuple[bytes, bytes]]] = [
    [(b"n", b"1"), (b"t", b"x")],
    [(b"n", b"01"), (b"t", b"x")],
    [(b"n", b"many"), (b"t", b"x")],
    [(b"n", b"2"), (b"t", b"\xff")],
    [(b"n", b"3"), (b"t", b"x"), (b"\xff", b"")],
    [(b"t", b"x"), (b"n", b"4")],
    [(b"n", b"5"), (b"n", b"5")],
    [(b"n", b"6")],
]
SHOWN = [
    {"n": "1", "t": "x"}, {"n": "01", "t": "x"}, {"n": "many", "t": "x"}, {"n": "2", "t": "\\xff"},
    {"n": "3", "t": "x", "\\xff": ""}, {"t": "x", "n": "4"}, {"n": "5"}, {"n": "6"},
]  # fmt: skip


def words_of(pairs: list[Row] | None) -> list[tuple[bytes, bytes]] | None:
    """Return the fields in the column `_exact` of a row."""
    return None if pairs is None else [(bytes(pair.name), bytes(pair.value)) for pair in pairs]


def test_entries_that_columns_cannot_represent_are_kept_exactly_and_counted(
    tmp_path: Path, spark: SparkSession, server_url: str, raw: redis.Redis
) -> None:
    counts = Path(os.environ[DIRECTORY_VARIABLE])
    for left in counts.iterdir():
        left.unlink()
    add(raw, "s", ODD)
    kept: list[int] = []
    schema = parse_schema("n INT, t STRING")
    assert (
        archive_streams(spark, server_url, "s", tmp_path / "typed", fields=schema, on_exact=kept.append) == 8
    )
    assert archive_streams(spark, server_url, "s", tmp_path / "map", on_exact=kept.append) == 8
    assert kept == [6, 3]
    assert read_misfit_counts(counts) == {("s", "n"): 1, ("s", "t"): 1, ("s", "_fields"): 2}
    rows = spark.read.parquet(str(tmp_path / "typed")).orderBy("sequence").collect()
    assert [(row.n, row.t) for row in rows] == [
        (1, "x"), (1, "x"), (None, "x"), (2, None), (3, "x"), (4, "x"), (5, None), (6, None),
    ]  # fmt: skip
    assert [words_of(row._exact) for row in rows] == [None, *ODD[1:7], None]
    rows = spark.read.parquet(str(tmp_path / "map")).orderBy("sequence").collect()
    assert [row.fields for row in rows] == SHOWN
    assert [words_of(row._exact) for row in rows] == [None] * 3 + ODD[3:5] + [None, ODD[6], None]


def test_rows_of_an_archive_equal_those_of_its_stream(
    tmp_path: Path, spark: SparkSession, server_url: str, raw: redis.Redis
) -> None:
    add(raw, "s", ODD)
    archive_streams(spark, server_url, "s", tmp_path / "typed", fields=parse_schema("n INT, t STRING"))
    archive_streams(spark, server_url, "s", tmp_path / "map")

    def rows(archived: str | None, schema: str | None, **options: str) -> list[Row]:
        reader = spark.read.format("headrace").option("url", server_url).option("subscribe", "s")
        reader = reader.options(**options)
        reader = reader if archived is None else reader.option("archive", str(tmp_path / archived))
        reader = reader if schema is None else reader.schema(schema)
        return sorted(reader.load().collect(), key=lambda row: int(row[0 if schema else 3]))

    maps = [(None, {}), (None, {"fieldsType": "binary"}), ("_sequence LONG, _fields MAP<BINARY,BINARY>", {})]
    for schema, options in maps:
        assert rows("map", schema, **options) == rows(None, schema, **options)
    assert [row.fields for row in rows(None, None)] == SHOWN
    [row] = [row for row in rows(None, None, fieldsType="binary") if row.sequence == 4]
    assert row.fields == {"n": b"2", "t": b"\xff"}
    typed = "_sequence LONG, n INT, t STRING, _corrupt_record STRING"
    assert rows("typed", typed) == rows("map", typed) == rows(None, typed)
    strings = "_sequence LONG, n STRING, t BINARY"
    assert rows("typed", strings) == rows(None, strings)
    with pytest.raises(PySparkException, match="is not UTF-8"):
        rows(None, None, mode="FAILFAST")


def test_a_column_that_is_not_null_keeps_entries_without_it(
    tmp_path: Path, spark: SparkSession, server_url: str, raw: redis.Redis
) -> None:
    add(raw, "s", [[(b"n", b"1")], [(b"n", b"many")], [(b"t", b"x")]])
    schema = parse_schema("n INT NOT NULL")
    assert archive_streams(spark, server_url, "s", tmp_path / "a", fields=schema) == 3
    replay_entries(ReplaySource("s", None, tmp_path / "a"), server_url, "t", name="x")
    assert read(raw, "t") == read(raw, "s")


def test_a_query_reads_times_in_the_format_of_the_archive(
    tmp_path: Path, spark: SparkSession, server_url: str, raw: redis.Redis
) -> None:
    add(raw, "s", [[(b"at", b"1700000000")], [(b"at", b"01700000000")]])
    schema = parse_schema("at TIMESTAMP COMMENT 'epoch_s'")
    archive_streams(spark, server_url, "s", tmp_path / "a", fields=schema)
    add(raw, "s", [[(b"at", b"1700000000")]], 3)
    sql = "SELECT unix_seconds(at) AS at FROM s"
    tables = register_views(spark, sql, server_url, archive=tmp_path / "a")
    assert run_query(spark, sql, tables).collect() == [Row(at=1_700_000_000)] * 3
