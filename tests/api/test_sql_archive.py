"""db.sql(archive=): the archive of a stream and its later entries as one table, each entry once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace.api import archived_stream
from headrace.api.arrow_batches import ArrowBatches
from headrace.errors import HeadraceError, UsageError
from headrace.persistence.cold.cold_store import ColdStore
from support.archives import ArchiveMaker
from support.waiting import wait_until

HOUR_MS = 3_600_000
TYPED = pa.schema([("n", pa.int64()), ("item", pa.string())])


def entry(number: int) -> tuple[str, dict[str, object]]:
    """Return one entry an hour."""
    return f"{number * HOUR_MS}-{number % 3}", {"n": number, "item": f"i{number % 7}"}


def add(database: headrace.Database, *numbers: int) -> None:
    for number in numbers:
        entry_id, fields = entry(number)
        database.stream("s").add(fields, id=entry_id)


def archived(tmp_path: Path, *numbers: int, schema: pa.Schema | None = None) -> ArchiveMaker:
    """Return an archive of these entries of the stream s."""
    maker = ArchiveMaker(tmp_path / "archive", schema)
    maker.add("s", [entry(number) for number in numbers], reached={"s": entry(numbers[-1])[0]})
    return maker


def numbers(database: headrace.Database, maker: ArchiveMaker, condition: str = "true") -> list[int]:
    table = database.sql(f"SELECT n FROM s WHERE {condition} ORDER BY n", archive=maker.directory)
    return [int(n) for n in table.column("n").to_pylist()]


@pytest.mark.parametrize("schema", [None, TYPED])
@pytest.mark.parametrize("first_live", [1, 40, 60])
def test_each_entry_is_read_once(
    database: headrace.Database, tmp_path: Path, schema: pa.Schema | None, first_live: int
) -> None:
    """Entries that both have are read from the archive; 60 is the last archived entry."""
    maker = archived(tmp_path, *range(1, 61), schema=schema)
    add(database, *range(first_live, 101))
    assert numbers(database, maker) == list(range(1, 101))
    query = "SELECT _id, epoch_ms(_timestamp) AS ms, _sequence, _stream, n, item FROM s ORDER BY n"
    for row in database.sql(query, archive=str(maker.directory)).to_pylist():
        entry_id, fields = entry(int(row["n"]))
        assert row == {
            "_id": entry_id,
            "ms": fields["n"] * HOUR_MS,
            "_sequence": fields["n"] % 3,
            "_stream": "s",
            **fields,
        }


@pytest.mark.parametrize("schema", [None, TYPED])
def test_conditions_on_times_select_from_both_parts(
    database: headrace.Database, tmp_path: Path, schema: pa.Schema | None
) -> None:
    maker = archived(tmp_path, *range(1, 61), schema=schema)
    add(database, *range(60, 101))
    for first, last in [(1, 20), (50, 60), (60, 60), (60, 61), (61, 61), (58, 63), (80, 90)]:
        condition = f"epoch_ms(_timestamp) >= {first * HOUR_MS} AND epoch_ms(_timestamp) <= {last * HOUR_MS}"
        assert numbers(database, maker, condition) == list(range(first, last + 1))
        times = [f"make_timestamptz({n * HOUR_MS}000)" for n in (first, last)]
        condition = f"_timestamp BETWEEN {times[0]} AND {times[1]}"
        assert numbers(database, maker, condition) == list(range(first, last + 1))


def test_entries_that_columns_cannot_represent_are_read_from_exact(
    database: headrace.Database, tmp_path: Path
) -> None:
    maker = ArchiveMaker(tmp_path / "archive", TYPED)
    exact = [{"name": b"n", "value": b"007"}, {"name": b"more", "value": b"x"}]
    maker.add("s", [entry(1), (f"{2 * HOUR_MS}-0", {"_exact": exact})], reached={"s": f"{2 * HOUR_MS}-0"})
    add(database, 3)
    table = database.sql("SELECT n, item, more FROM s ORDER BY _timestamp", archive=maker.directory)
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (1, "i1", None),
        (7, None, "x"),
        (3, "i3", None),
    ]


def test_a_stream_may_be_only_in_the_archive_or_only_in_the_database(
    database: headrace.Database, tmp_path: Path
) -> None:
    maker = archived(tmp_path, 1, 2, 3)
    assert numbers(database, maker) == [1, 2, 3]
    database.stream("t").add({"n": 2, "name": "two"}, id="1-0")
    query = "SELECT n, name FROM s JOIN t USING (n)"
    assert database.sql(query, archive=maker.directory).to_pylist() == [{"n": 2, "name": "two"}]
    with pytest.raises(UsageError, match=r"there is no stream 'ss'; did you mean 's'\?"):
        database.sql("SELECT * FROM ss", archive=maker.directory)
    with pytest.raises(UsageError, match="there is no archive"):
        database.sql("SELECT * FROM t", archive=tmp_path / "other")


def test_a_schema_sets_types_of_both_parts(database: headrace.Database, tmp_path: Path) -> None:
    maker = archived(tmp_path, 1, 2, schema=TYPED)
    add(database, 3)
    schemas = {"s": pa.schema([("n", pa.float64())])}
    table = database.sql("SELECT n FROM s ORDER BY n", schemas, archive=maker.directory)
    assert table.column("n").to_pylist() == [1.0, 2.0, 3.0] and table.schema.field("n").type == pa.float64()
    with pytest.raises(HeadraceError, match="the column item is not int64"):
        database.sql("SELECT item FROM s", {"s": pa.schema([("item", pa.int64())])}, archive=maker.directory)


def test_a_stream_that_was_recreated_is_an_error(database: headrace.Database, tmp_path: Path) -> None:
    maker = archived(tmp_path, *range(1, 11))
    add(database, 5)
    with pytest.raises(HeadraceError, match="was deleted and recreated, or a failover"):
        numbers(database, maker)


def test_a_trim_past_the_archive_during_a_query_is_an_error(
    database: headrace.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = archived(tmp_path, *range(1, 11))
    add(database, *range(1, 21))
    iterate = ArrowBatches.__iter__

    def trimming(self: ArrowBatches) -> Any:
        database.stream("s").trim(maxlen=3, approximate=False)
        return iterate(self)

    monkeypatch.setattr(ArrowBatches, "__iter__", trimming)
    with pytest.raises(HeadraceError, match="was trimmed after the end of its archive"):
        numbers(database, maker)


def test_an_archive_that_grows_before_a_trim_is_read_again(
    database: headrace.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = archived(tmp_path, *range(1, 11))
    add(database, *range(1, 21))
    read = archived_stream.read_archive

    def growing(location: Any) -> Any:
        found = read(location)
        monkeypatch.setattr(archived_stream, "read_archive", read)
        maker.add("s", [entry(n) for n in range(11, 16)], reached={"s": entry(15)[0]})
        database.stream("s").trim(minid=entry(15)[0], approximate=False)
        return found

    monkeypatch.setattr(archived_stream, "read_archive", growing)
    assert numbers(database, maker) == list(range(1, 21))


def test_archived_entries_in_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the part of a stream in files that has the last archived entry is loaded, to check it."""
    total, last = 6000, 5000
    entries: list[tuple[str, dict[str, object]]] = [
        (f"{n}-0", {"n": n, "text": "x" * 60}) for n in range(1, total + 1)
    ]
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("s", entries[:last], reached={"s": f"{last}-0"})
    loads: list[object] = []
    load = ColdStore.load

    def counting(self: ColdStore, place: Any) -> Any:
        loads.append(place)
        return load(self, place)

    with headrace.open(tmp_path / "data", fsync="no", hot_memory="60kb") as db:
        for entry_id, fields in entries:
            db.stream("s").add(fields, id=entry_id)
        wait_until(lambda: db.info().cold_entries > last)
        monkeypatch.setattr(ColdStore, "load", counting)
        query = "SELECT count(*) AS n, sum(n)::BIGINT AS sum FROM s"
        found = [{"n": total, "sum": total * (total + 1) // 2}]
        assert db.sql(query, archive=maker.directory).to_pylist() == found
        with_archive = len(set(loads))
        assert db.sql(query).to_pylist() == found
        assert with_archive < len(set(loads)) / 2
