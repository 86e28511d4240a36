"""An archive and its live streams as one table, read without Spark by its reader."""

from __future__ import annotations

import pathlib
import random
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from headrace.archive.files import archived_through, read_archive
from headrace.archive.location import archive_location
from headrace.client.servers import Servers
from headrace.errors import HeadraceError, UsageError
from headrace.positions.entry_ids import parse_id
from headrace.positions.stream_state import stream_states
from headrace.spark.archive_reader import ArchiveReader
from headrace.spark.decode.schema import DEFAULT_SCHEMAS, ColumnLayout
from headrace.spark.options import parse_options
from headrace.spark.source.data_loss import DataLoss
from headrace.spark.source.data_source import HeadraceSource
from support.archives import ArchiveMaker, Entry, counted_entries, files_in
from support.stream_server import StreamServer

FIRST = 1_577_836_800_000  # 2020-01-01
HOUR = 3_600_000


TYPES: dict[str, T.DataType] = {
    "STRING": T.StringType(),
    "INT": T.IntegerType(),
    "LONG": T.LongType(),
    "DOUBLE": T.DoubleType(),
    "TIMESTAMP": T.TimestampType(),
    "MAP<STRING,STRING>": T.MapType(T.StringType(), T.StringType()),
    "MAP<BINARY,BINARY>": T.MapType(T.BinaryType(), T.BinaryType()),
}


def struct(columns: str) -> T.StructType:
    """Columns as SQL declares them; Spark itself would need a JVM for that."""
    pairs = (column.split(" ") for column in columns.replace("STRING, STRING>", "STRING,STRING>").split(", "))
    return T.StructType([T.StructField(name, TYPES[kind]) for name, kind in pairs])


def entries(count: int, step: int = HOUR) -> list[Entry]:
    return [(f"{FIRST + n // 3 * step}-{n % 3}", {"n": n, "t": f"text {n}"}) for n in range(count)]


def reader(server: StreamServer, archive: pathlib.Path, schema: str, **options: str) -> ArchiveReader:
    return reader_of({"url": server.url, "archive": str(archive), **options}, struct(schema))


def reader_of(raw: dict[str, str], schema: T.StructType) -> ArchiveReader:
    options = parse_options(raw, "batch")
    return ArchiveReader(options, ColumnLayout(schema, options.timestamp_format))


def rows(made: ArchiveReader) -> list[dict[str, Any]]:
    """All rows, task by task."""
    return read_all(made, made.partitions())


def read_all(made: ArchiveReader, parts: Sequence[Any]) -> list[dict[str, Any]]:
    return [row for part in parts for batch in made.read(part) for row in batch.to_pylist()]


def ids(server: StreamServer, archive: pathlib.Path, **options: str) -> list[str]:
    """The IDs that are read, each stream's in order of its tasks."""
    return [row["_id"] for row in rows(reader(server, archive, "_id STRING", **options))]


def by_id(some: Sequence[Entry]) -> list[str]:
    return [entry_id for entry_id, _ in some]


@pytest.fixture
def maker(tmp_path: pathlib.Path) -> ArchiveMaker:
    return ArchiveMaker(tmp_path / "archive")


# The files that count


def test_only_committed_files_are_read(maker: ArchiveMaker) -> None:
    some = entries(300)
    maker.add("s", some[:100])
    maker.add("s", some[100:200], committed=False)
    maker.add("s", some[200:250])
    assert set(counted_entries(maker.directory)) == {("s", i) for i in by_id(some[:100] + some[200:250])}
    assert archived_through(maker.location) == {"s": some[249][0]}
    [first, *_] = files_in(maker.directory)
    assert (first.first_ms, first.rows) == (FIRST, 72)


def test_an_archive_can_be_moved_and_streams_can_have_any_name(maker: ArchiveMaker) -> None:
    some = entries(50)
    names = ("a:b/c d=e%", "naïve", "date=2020-01-01", "", "a\0b", "\\xff", "'\"`$", "x" * 5000)
    for stream in names:
        maker.add(stream, some)
    moved = maker.directory.parent / "stream=elsewhere"
    shutil.move(maker.directory, moved)
    assert {file.stream for file in files_in(moved)} == set(names)
    assert archived_through(archive_location(moved)) == dict.fromkeys(names, some[-1][0])


def test_what_is_not_an_archive_is_reported(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "old" / "_spark_metadata").mkdir(parents=True)
    DeltaTable.create(str(tmp_path / "other"), pa.schema([("n", pa.int64())]))
    for name, message in {
        "missing": "there is no archive",
        "empty": "there is no archive",
        "old": "an archive of an earlier version, which is no Delta table",
        "other": "a Delta table, but not an archive",
    }.items():
        with pytest.raises(UsageError, match=message):
            read_archive(archive_location(tmp_path / name))


@pytest.mark.parametrize("seed", range(5))
def test_the_archive_ends_at_the_highest_id_compared_as_numbers(tmp_path: pathlib.Path, seed: int) -> None:
    dice = random.Random(seed)
    made = ArchiveMaker(tmp_path / "archive")
    highest: dict[str, tuple[int, int]] = {}
    for _ in range(30):
        stream = dice.choice("abc")
        some = [
            (f"{10 ** dice.randrange(13) + dice.randrange(9)}-{dice.randrange(12)}", {"n": 1})
            for _ in range(dice.randrange(1, 9))
        ]
        made.add(stream, some, shift_hours=dice.choice([0, -12, 14]), group_rows=3)
        highest[stream] = max([highest.get(stream, (0, 0)), *(parse_id(i) for i, _ in some)])
    assert {s: parse_id(i) for s, i in archived_through(made.location).items()} == highest


def test_the_newest_commit_with_positions_says_where_the_archive_ends(maker: ArchiveMaker) -> None:
    some = entries(300)
    maker.add("s", some[:150], reached={"s": some[150][0]})  # the entry that the batch ended with was deleted
    maker.add("old", some[:10])  # of a stream whose position the log does not have
    for _ in range(30):  # commits of other programs
        maker.table._table.alter.set_table_properties({"delta.appendOnly": "false"})
    assert read_archive(maker.location).archived_through == {"s": some[150][0], "old": some[9][0]}


def test_a_table_that_was_set_back_ends_where_its_files_end(maker: ArchiveMaker) -> None:
    some = entries(300)
    maker.add("s", some[:100], reached={"s": f"{some[99][0]}:100"})
    maker.add("s", some[100:200], reached={"s": f"{some[199][0]}:200"})
    DeltaTable(maker.location.uri).restore(1)
    found = read_archive(maker.location)
    assert (found.archived_through, found.positions) == ({"s": some[99][0]}, {})


# Where the archive ends and the live stream continues


@pytest.mark.parametrize("trimmed", [0, 100, 250, 299, 300, 301, 350])
def test_no_entry_is_missing_or_read_twice_after_trims(
    stream_server: StreamServer, maker: ArchiveMaker, trimmed: int, caplog: pytest.LogCaptureFixture
) -> None:
    some = entries(400)
    maker.add("s", some[:200])
    maker.add("s", some[200:300])
    stream_server.add("s", some)
    stream_server.client.xtrim("s", minid=some[trimmed][0], approximate=False)
    there = some[:300] + some[max(trimmed, 300) :]
    assert ids(stream_server, maker.directory) == by_id(there)
    assert ids(stream_server, maker.directory, subscribe="s", minPartitions="5") == by_id(there)
    warning = f"ends at {some[299][0]}, and the first entry on the server after that is {some[trimmed][0]}"
    assert (warning in caplog.text) == (trimmed >= 300) == ("ends at" in caplog.text)


def test_streams_can_be_only_archived_or_only_live(stream_server: StreamServer, maker: ArchiveMaker) -> None:
    some = entries(60)
    maker.add("archived", some[:40])
    maker.add("both", some[:30])
    stream_server.add("both", some[20:])
    stream_server.add("live", some[5:50])
    assert ids(stream_server, maker.directory) == by_id(some[:40] + some[:30] + some[30:])
    assert ids(stream_server, maker.directory, subscribe="live,archived") == by_id(some[:40] + some[5:50])
    found = rows(
        reader(stream_server, maker.directory, DEFAULT_SCHEMAS["string"], subscribePattern="a.*|b.*")
    )
    assert [(r["stream"], r["id"]) for r in found] == [
        *(("archived", i) for i in by_id(some[:40])),
        *(("both", i) for i in by_id(some[:30])),
        *(("both", i) for i in by_id(some[30:])),
    ]
    with pytest.raises(UsageError, match="missing"):
        ids(stream_server, maker.directory, assign='["both", "missing"]')


def test_entries_deleted_from_the_stream_remain_in_the_archive(
    stream_server: StreamServer, maker: ArchiveMaker, caplog: pytest.LogCaptureFixture
) -> None:
    some = entries(40)
    maker.add("s", some[:20])
    stream_server.add("s", some)
    for deleted in (3, 19, 20, 30):  # including the last archived entry and the first one after it
        stream_server.client.xdel("s", some[deleted][0])
    there = some[:20] + [some[n] for n in range(20, 40) if n not in (20, 30)]
    assert ids(stream_server, maker.directory) == by_id(there)
    stream_server.client.delete("s")
    stream_server.add("s", some[25:])
    assert ids(stream_server, maker.directory) == by_id(some[:20] + some[25:])
    assert not caplog.records, "neither was trimmed"


def test_offsets_and_times_narrow_both_parts(stream_server: StreamServer, maker: ArchiveMaker) -> None:
    some = entries(2000)
    maker.add("s", some[:700], group_rows=10)
    maker.add("s", some[700:1300], group_rows=10)
    stream_server.add("s", some[900:])
    for after, upto in [(10, 300), (10, 1299), (500, 1700), (1299, 1500), (1298, 1301), (1400, 1999)]:
        offsets = {
            "startingOffsets": f'{{"s":"{some[after][0]}"}}',
            "endingOffsets": f'{{"s":"{some[upto][0]}"}}',
        }
        got = ids(stream_server, maker.directory, subscribe="s", **offsets)
        assert got == by_id(some[after + 1 : upto + 1])
    start, end = FIRST + 100 * HOUR, FIRST + 500 * HOUR
    got = ids(stream_server, maker.directory, startingTimestamp=str(start), endingTimestamp=str(end))
    assert got == [i for i, _ in some if start <= parse_id(i)[0] < end]
    after_all = f'{{"s":"{some[1299][0]}"}}'
    assert ids(stream_server, maker.directory, endingOffsets=after_all) == by_id(some[:1300])


def test_trims_after_the_archived_part_during_a_read_are_reported(
    stream_server: StreamServer, maker: ArchiveMaker
) -> None:
    some = entries(100)
    maker.add("s", some[:50])
    for first, trim in [(0, 70), (50, 70), (50, 51), (50, 100)]:
        stream_server.client.delete("s")
        stream_server.add("s", some[first:])
        made = reader(stream_server, maker.directory, "_id STRING")
        parts = made.partitions()
        stream_server.client.xtrim("s", minid=f"{parse_id(some[trim - 1][0])[0]}-9", approximate=False)
        with pytest.raises(DataLoss):
            read_all(made, parts)


def test_an_archive_that_grows_during_planning_is_planned_again(
    stream_server: StreamServer, maker: ArchiveMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archived and trimmed between the two looks: the table is planned anew."""
    some = entries(100)
    maker.add("s", some[:30])
    stream_server.add("s", some)
    made = reader(stream_server, maker.directory, "_id STRING")
    real = made._first_ids
    schedule: Iterator[int] = iter([60, 80])

    def then_grow(*arguments: Any) -> Any:
        upto = next(schedule, None)
        if upto is not None:
            begin = parse_id(archived_through(maker.location)["s"])
            maker.add("s", [e for e in some[:upto] if parse_id(e[0]) > begin])
            stream_server.client.xtrim("s", minid=some[upto][0], approximate=False)
        return real(*arguments)

    monkeypatch.setattr(made, "_first_ids", then_grow)
    parts = made.partitions()
    assert next(schedule, None) is None
    assert [row["_id"] for row in read_all(made, parts)] == by_id(some)


@pytest.mark.parametrize("first", [FIRST, FIRST + 1000 * HOUR])
@pytest.mark.parametrize("count", [10, 60, 90])
def test_a_stream_recreated_since_it_was_archived_is_reported_and_read_whole(
    stream_server: StreamServer, maker: ArchiveMaker, first: int, count: int
) -> None:
    some = entries(60)
    stream_server.add("s", some)
    maker.add("s", some)
    maker.remember({"s": str(stream_states(Servers(stream_server.url), ["s"])["s"].end_position)})
    assert ids(stream_server, maker.directory) == by_id(some)
    stream_server.client.delete("s")
    others: list[Entry] = [(f"{first + n}-0", {"n": n, "t": "other"}) for n in range(count)]
    stream_server.add("s", others)
    with pytest.raises(DataLoss, match="deleted and recreated"):
        ids(stream_server, maker.directory)
    found = ids(stream_server, maker.directory, failOnDataLoss="false")
    assert found == [*by_id(some), *by_id(others)]


def test_an_archive_of_a_recreated_stream_has_the_entries_of_both(
    stream_server: StreamServer, maker: ArchiveMaker
) -> None:
    some = entries(60)
    maker.add("s", some)
    others: list[Entry] = [(f"{n + 1}-0", {"n": n, "t": "other"}) for n in range(90)]
    stream_server.add("s", others)
    maker.add("s", others[:40])
    maker.remember({"s": f"{others[39][0]}:40::1"})
    found = ids(stream_server, maker.directory)
    assert sorted(found) == sorted([*by_id(some), *by_id(others)])
    assert read_archive(maker.location).archived_through == {"s": others[39][0]}
    assert read_archive(maker.location).highest_ids == {"s": some[59][0]}


def test_a_file_deleted_after_planning_is_reported(stream_server: StreamServer, maker: ArchiveMaker) -> None:
    maker.add("s", entries(60))
    made = reader(stream_server, maker.directory, "_id STRING")
    parts = made.partitions()
    shutil.rmtree(maker.directory / "stream=x")
    with pytest.raises(HeadraceError, match=r"is missing\. Run the command again"):
        list(made.read(parts[0]))


# The columns


DEFAULT = DEFAULT_SCHEMAS["string"]
SCHEMA = (
    "_id STRING, _stream STRING, _timestamp TIMESTAMP, _sequence LONG, n INT, t STRING, x DOUBLE, "
    "_corrupt_record STRING, _fields MAP<BINARY,BINARY>"
)


def odd_entries() -> list[Entry]:
    """Values that fit their columns, and that do not, and none at all."""
    return [
        ("5-0", {"n": 1, "t": "é", "x": "0.5"}),
        ("5-7", {"n": "seven", "t": ""}),
        ("6-0", {"other": "1", "x": "nan?"}),
        ("7-0", {"x": "-1e300", "n": -2147483648}),
        ("1577836800123-4", {"n": 2147483648}),
    ]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("schema", [SCHEMA, DEFAULT, "_sequence LONG, n STRING"])
def test_archived_maps_give_the_same_rows_as_the_stream(
    stream_server: StreamServer, maker: ArchiveMaker, mode: str, schema: str
) -> None:
    some = odd_entries()
    stream_server.add("s", some)
    live = rows(reader(stream_server, maker.directory, schema, subscribe="s", mode=mode))
    maker.add("s", some, group_rows=2)
    stream_server.client.delete("s")
    archived = rows(reader(stream_server, maker.directory, schema, subscribe="s", mode=mode))
    assert archived == live and live


def test_failfast_fails_on_archived_values_too(stream_server: StreamServer, maker: ArchiveMaker) -> None:
    maker.add("s", odd_entries())
    with pytest.raises(HeadraceError, match="5-7"):
        rows(reader(stream_server, maker.directory, "n INT", mode="FAILFAST"))


def test_archived_columns_are_cast_to_the_schema(stream_server: StreamServer, tmp_path: pathlib.Path) -> None:
    columns = pa.schema([("n", pa.int32()), ("t", pa.string()), ("at", pa.timestamp("us"))])
    maker = ArchiveMaker(tmp_path / "archive", columns)
    maker.add("s", [("5-1", {"n": 1, "t": "a", "at": 86_400_000_000}), ("6-0", {"n": 2})])
    stream_server.add("s", [("5-1", {"n": 1}), ("7-0", {"n": 3, "t": "c"})])
    got = rows(reader(stream_server, maker.directory, "_id STRING, n LONG, t STRING, _corrupt_record STRING"))
    assert [tuple(row.values()) for row in got] == [
        ("5-1", 1, "a", None),
        ("6-0", 2, None, None),
        ("7-0", 3, "c", None),
    ]
    [first, *_] = rows(reader(stream_server, maker.directory, "at TIMESTAMP"))
    assert first["at"].isoformat() == "1970-01-02T00:00:00+00:00"
    with pytest.raises(UsageError, match=r"name the fields.*schema"):
        rows(reader(stream_server, maker.directory, DEFAULT))
    stream_server.add("s", [("8-0", {"other": 5})])
    got = rows(reader(stream_server, maker.directory, "_id STRING, other INT"))
    assert [row["other"] for row in got] == [None, None, None, 5]
    with pytest.raises(HeadraceError, match="the column t is not"):
        rows(reader(stream_server, maker.directory, "t INT"))


def test_tasks_have_about_the_requested_number_of_rows(
    stream_server: StreamServer, maker: ArchiveMaker
) -> None:
    some = entries(3000, step=10)
    for at in range(0, 3000, 300):
        maker.add("s", some[at : at + 300], group_rows=100)
    for option, expected in [({"minPartitions": "6"}, 6), ({"maxRecordsPerPartition": "200"}, 15)]:
        made = reader(stream_server, maker.directory, "_id STRING", **option)
        parts = made.partitions()
        assert abs(len(parts) - expected) <= 1
        counts = [sum(batch.num_rows for batch in made.read(part)) for part in parts]
        assert sum(counts) == 3000 and max(counts) <= 2 * min(counts)


def test_only_the_archive_is_read_without_a_server(maker: ArchiveMaker) -> None:
    for stream in ("a1", "a2", "b"):
        maker.add(stream, entries(3), reached={stream: entries(3)[-1][0]})

    def streams(**options: str) -> set[str]:
        raw = {
            "url": "redis://127.0.0.1:1",
            "archive": str(maker.directory),
            "archiveOnly": "true",
            **options,
        }
        return {row["_stream"] for row in rows(reader_of(raw, struct("_stream STRING, _id STRING")))}

    assert streams() == {"a1", "a2", "b"}
    assert streams(subscribe="b") == {"b"}
    assert streams(subscribePattern="a.") == {"a1", "a2"}
    assert streams(subscribePattern="c.") == set()
    with pytest.raises(UsageError, match="needs the option archive"):
        parse_options({"archiveOnly": "true"}, "batch")


def test_without_a_schema_a_typed_archive_is_read_with_its_columns(
    stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    maker = ArchiveMaker(tmp_path / "archive", pa.schema([("n", pa.int32()), ("t", pa.string())]))
    maker.add("s", entries(3), reached={"s": entries(3)[-1][0]})
    stream_server.client.delete("s")
    for id_, fields in [*entries(3), *entries(5)[3:]]:
        stream_server.client.xadd("s", {**fields, "more": "x"} if id_ > f"{FIRST + 1}" else fields, id_)  # type: ignore[arg-type]
    raw = {"url": stream_server.url, "archive": str(maker.directory)}
    source = HeadraceSource(raw)
    schema = source.schema()
    assert isinstance(schema, T.StructType)
    assert schema.names == ["_stream", "_id", "_timestamp", "_sequence", "n", "t", "_exact"]
    found = sorted(rows(reader_of(raw, schema)), key=lambda row: row["n"])
    assert [(row["n"], row["t"]) for row in found] == [(n, f"text {n}") for n in range(5)]
    assert [row["_exact"] is not None for row in found] == [False] * 3 + [True] * 2
    assert HeadraceSource({**raw, "fieldsType": "string"}).schema() == DEFAULT_SCHEMAS["string"]
    maps = ArchiveMaker(tmp_path / "maps")
    assert HeadraceSource({"archive": str(maps.directory)}).schema() == DEFAULT_SCHEMAS["string"]
    with pytest.raises(UsageError, match="there is no archive"):
        HeadraceSource({"archive": str(tmp_path / "none")}).schema()
