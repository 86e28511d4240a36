"""Archives of earlier versions become Delta tables with the same entries."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from archives import counted_entries
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archive_conversion import ROW_METADATA, convert
from headrace.pipeline.replay_source import ReplaySource
from headrace.spark.archive.files import read_archive
from headrace.spark.archive.location import archive_location

DAY_MS = 86_400_000
MAP = pa.map_(pa.string(), pa.string())


class OldArchive:
    """An archive as an earlier version wrote it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.batches = 0
        self.offsets = directory / "_headrace" / "checkpoint" / "offsets"
        self.offsets.mkdir(parents=True)
        (directory / "_spark_metadata").mkdir()
        (directory / "_headrace" / "streams.json").write_text('{"fields": null, "zone": "Europe/Berlin"}')

    def write(self, folder: str, columns: dict[str, pa.Array], note: bytes | None = None) -> Path:
        """Write a file of one directory."""
        path = self.directory / folder / f"part-{self.batches}.snappy.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table(columns)
        if note is not None:
            table = table.replace_schema_metadata({ROW_METADATA: note})
        pq.write_table(table, path, use_deprecated_int96_timestamps=True)
        return path

    def commit(self, files: list[Path], offsets: dict[str, str], compact: bool = False) -> None:
        """Add a batch to Spark's log; the paths in it are those of another directory."""
        inner = [path.relative_to(self.directory) for path in files]
        lines = [json.dumps({"path": f"file:///moved/{quote(str(p))}", "action": "add"}) for p in inner]
        name = f"{self.batches}.compact" if compact else str(self.batches)
        (self.directory / "_spark_metadata" / name).write_text("\n".join(["v1", *lines]))
        (self.offsets / str(self.batches)).write_text("\n".join(["v1", "{}", json.dumps(offsets)]))
        self.batches += 1


def columns(*ids: str, **more: pa.Array) -> dict[str, pa.Array]:
    """Return the columns of every entry, and others."""
    times = [int(each.partition("-")[0]) for each in ids]
    sequences = [int(each.partition("-")[2]) for each in ids]
    return {
        "id": pa.array(ids),
        "timestamp": pa.array(times, pa.timestamp("ms")),
        "sequence": pa.array(sequences),
    } | more


def test_maps_of_many_streams_keep_entries_days_and_positions(tmp_path: Path) -> None:
    old = OldArchive(tmp_path / "old")
    (old.directory / "_headrace" / "names.json").write_text(json.dumps({"a~0": "a\\xff"}))
    fields = pa.array([[("n", "1")], [("n", "2"), ("n", "3")]], MAP)
    exact = pa.array(
        [None, [{"name": b"n", "value": b"2"}, {"name": b"n", "value": b"3"}]],
        pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())])),
    )
    first = old.write(
        "stream=a%3Ab/date=1970-01-02", columns("86400000-0", "86400000-1", fields=fields, _exact=exact)
    )
    odd = old.write("stream=a~0/date=1970-01-02", columns("1-1", fields=fields.slice(0, 1)))
    old.commit([first, odd], {})
    late = old.write(
        "stream=__HIVE_DEFAULT_PARTITION__/date=+10000-01-01",
        columns("253402300800000-5", fields=fields.slice(0, 1)),
    )
    old.commit([first, odd, late], {"a:b": "86400000-1:2", "": "253402300800000-5"}, compact=True)
    old.write("stream=a%3Ab/date=1970-01-03", columns("999999999-0", fields=fields.slice(0, 1)))  # killed
    new = archive_location(tmp_path / "new")
    assert convert(old.directory, new) == 4
    found = read_archive(new)
    assert counted_entries(new) == {
        ("a:b", "86400000-0"): 1,
        ("a:b", "86400000-1"): 1,
        ("a\\xff", "1-1"): 1,
        ("", "253402300800000-5"): 1,
    }
    assert found.zone == "Europe/Berlin" and found.archived_through["a:b"] == "86400000-1"
    assert str(found.positions["a:b"]) == "86400000-1:2" and found.archived_through["a\\xff"] == "1-1"
    batches = list(ReplaySource("a:b", None, new).batches("0-0", "86400000-1"))
    assert [row["fields"] for batch in batches for row in batch.to_pylist()] == [
        [(b"n", b"1")], [(b"n", b"2"), (b"n", b"3")],
    ]  # fmt: skip
    with pytest.raises(UsageError, match="has entries"):
        convert(old.directory, new)


def test_columns_of_one_stream_keep_types_comments_and_entries_that_did_not_fit(tmp_path: Path) -> None:
    old = OldArchive(tmp_path / "old")
    (old.directory / "_headrace" / "stream.json").write_text(
        '{"stream": "s", "fields": "struct<at:timestamp>"}'
    )
    note = {
        "type": "struct",
        "fields": [{"name": "at", "type": "timestamp", "nullable": True, "metadata": {"comment": "epoch_s"}}],
    }
    at = pa.array([1_700_000_000_000, None], pa.timestamp("ms"))
    corrupt = pa.array([None, '{"id": "2-0", "fields": {"at": "soon", "more": "x"}}'])
    file = old.write(
        "date=1970-01-01", columns("1-0", "2-0", at=at, _corrupt_record=corrupt), json.dumps(note).encode()
    )
    old.commit([file], {"s": "2-0"})
    new = archive_location(tmp_path / "new")
    assert convert(old.directory, new) == 2
    archive = read_archive(new)
    assert archive.columns["at"].metadata == {"comment": "epoch_s"}
    rows = [row for batch in ReplaySource("s", None, new).batches("0-0", "2-0") for row in batch.to_pylist()]
    assert rows[0]["at"] == "1700000000"
    assert rows[1]["_fields"] == [(b"at", b"soon"), (b"more", b"x")]


def test_the_times_of_files_in_any_order_are_those_of_their_first_and_last_entries(tmp_path: Path) -> None:
    old = OldArchive(tmp_path / "old")
    (old.directory / "_headrace" / "stream.json").write_text('{"stream": "s"}')
    fields = pa.array([[("n", "1")]] * 4, MAP)
    ids = ("5000-0", "1000-2", "9000-0", "1000-1")
    old.commit([old.write("date=1970-01-01", columns(*ids, fields=fields))], {})
    new = archive_location(tmp_path / "new")
    assert convert(old.directory, new) == 4
    [file] = read_archive(new).files
    assert (file.first_ms, file.last_ms) == (1000, 9000)
    for after, upto, found in (("0-0", "1000-1", ["1000-1"]), ("5000-0", "9000-9", ["9000-0"])):
        batches = ReplaySource("s", None, new).batches(after, upto)
        assert [each for batch in batches for each in batch.column("id").to_pylist()] == found


def test_what_cannot_be_converted_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an archive of an earlier version"):
        convert(tmp_path, archive_location(tmp_path / "new"))
    old = OldArchive(tmp_path / "old")
    lost = pa.array([[("a", "b")], None], MAP)
    old.commit([old.write("stream=s/date=1970-01-01", columns("1-0", "2-0", fields=lost))], {"s": "2-0"})
    with pytest.raises(HeadraceError, match="entry 2-0 has no fields"):
        convert(old.directory, archive_location(tmp_path / "new"))
    assert read_archive(archive_location(tmp_path / "new")).files == ()


def test_a_damaged_file_of_an_old_archive_is_named(tmp_path: Path) -> None:
    old = OldArchive(tmp_path / "old")
    fields = pa.array([[("n", f"{n * 7919:040x}")] for n in range(500)], MAP)
    path = old.write("stream=s/date=1970-01-01", columns(*(f"{n}-1" for n in range(500)), fields=fields))
    old.commit([path], {"s": "499-1"})
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes(len(data) // 2) + data[4 + len(data) // 2 :])
    with pytest.raises(HeadraceError, match=f"{path} cannot be read: "):
        convert(old.directory, archive_location(tmp_path / "new"))
