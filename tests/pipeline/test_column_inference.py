"""Inference of columns, the metadata of an archive, and its watermark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import redis

from headrace.archive.creation import create_or_open
from headrace.archive.location import archive_location
from headrace.columns.declarations import parse_schema
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archiving.column_inference import (
    infer_columns_sql,
    lacks_time_format,
    reasons_by_unusable_name,
    sample_entries,
    with_time_formats,
)
from support.archives import ArchiveMaker, counted_entries, entries_at, files_in


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([b"1", b"-20", b"0"], "BIGINT"),
        ([b"9223372036854775807"], "BIGINT"),
        ([b"9223372036854775808"], "STRING"),
        ([b"007"], "STRING"),
        ([b"+1"], "STRING"),
        ([b"-0"], "DOUBLE"),
        ([b"1", b"2.5"], "DOUBLE"),
        ([b"1e300"], "DOUBLE"),
        ([b"0.12345678901234567890"], "STRING"),
        ([b"true", b"false"], "BOOLEAN"),
        ([b"true", b"1"], "STRING"),
        ([b"2013-01-31"], "DATE"),
        ([b"2013-13-31"], "STRING"),
        ([b"2013/01/31", b"NA"], "DATE COMMENT 'yyyy/mm/dd'"),
        ([b"2013/01/31", b"2013-01-31"], "STRING"),
        ([b"2013/1/31"], "STRING"),
        ([b"2013-01-31", b"2"], "STRING"),
        ([b""], "STRING"),
        ([b"NA"], "STRING"),
        ([b"NA", b"2", b"", b"N/A", b"7"], "BIGINT"),
        ([b"2013-01-31", b"null", b"NULL"], "DATE"),
        ([b"NA", b"x"], "STRING"),
        ([b"true", b"NA", b"2"], "STRING"),
        ([b"1.5", b"nan", b"-Infinity"], "DOUBLE"),
        ([b"1", b"NaN", b"NA"], "DOUBLE"),
        ([b"\xff"], "STRING"),
    ],
)
def test_an_inferred_type_holds_all_sampled_values(values: list[bytes], kind: str) -> None:
    assert infer_columns_sql([{b"v": value} for value in values]) == f"`v` {kind}"


def test_columns_come_in_order_and_names_are_quoted() -> None:
    assert infer_columns_sql([{b"b c": b"1"}, {b"a`": b"x", b"b c": b"2"}]) == "`a``` STRING, `b c` BIGINT"
    with pytest.raises(UsageError, match="no entries"):
        infer_columns_sql([])
    with pytest.raises(UsageError, match="no field name can be a column name"):
        infer_columns_sql([{b"\xff": b"1"}])


def test_a_field_whose_name_cannot_be_a_column_is_left_out_with_a_reason() -> None:
    entry = dict.fromkeys([b"n", b"N", b"\xff", b"", b"a\n", b"ID", b"_exact", b"ok"], b"1")
    assert infer_columns_sql([entry]) == "`n` BIGINT, `ok` BIGINT"
    text = "is not printable text"
    taken = "is the name of a column of the archive"
    assert reasons_by_unusable_name(entry) == {
        b"N": "differs only in case from 'n'", b"\xff": text, b"": text, b"a\n": text, b"ID": taken,
        b"_exact": taken,
    }  # fmt: skip


def test_inferred_times_have_their_most_frequent_format() -> None:
    some = [b"2026-03-01T12:00:00Z", b"2026-03-01T12:00:00.5Z", b"2026-03-02T12:00:00Z"]
    assert infer_columns_sql([{b"at": value} for value in some]) == "`at` TIMESTAMP COMMENT 'iso8601:T0Z'"
    for value, kind in (
        (b"2026-03-01 12:00:00.123", "TIMESTAMP COMMENT 'iso8601: 3'"),
        (b"2026-03-01T12:00:00.123456+01:00", "TIMESTAMP COMMENT 'iso8601:T6+01:00'"),
        (b"2026-03-01T12:00", "TIMESTAMP COMMENT 'iso8601'"),
        (b"2026-03-01T12:00:00.123456789Z", "STRING"),
        (b"2026-03-01T25:00:00Z", "STRING"),
    ):
        assert infer_columns_sql([{b"at": value}]) == f"`at` {kind}"


def test_declared_times_get_the_format_of_the_sample_unless_they_have_one() -> None:
    [at, said, number] = parse_schema("at TIMESTAMP, said TIMESTAMP COMMENT 'epoch_s', n TIMESTAMP")
    some = [{b"at": b"2026-03-01T12:00:00Z", b"said": b"2026-03-01T12:00:00Z", b"n": b"1700000000000"}]
    assert lacks_time_format(pa.schema([said, at])) and not lacks_time_format(pa.schema([said]))
    found = with_time_formats(pa.schema([at, said, number]), some)
    assert [field.metadata for field in found] == [
        {b"comment": b"iso8601:T0Z"},
        {b"comment": b"epoch_s"},
        None,
    ]


def test_the_sample_is_from_both_ends_of_the_stream(server_url: str, client: redis.Redis) -> None:
    for n in range(10):
        client.xadd("s", {"n": n})
    client.xadd("t", {"m": 1})
    found = sample_entries(server_url, ["s", "t"], 4)
    assert sorted(each.get(b"n", b"-") for each in found) == [b"-", b"0", b"1", b"8", b"9"]
    assert [each[b"n"] for each in sample_entries(server_url, ["s"], 16)] == [b"%d" % n for n in range(10)]
    client.set("text", "x")
    with pytest.raises(UsageError, match="stream 'text' cannot be sampled"):
        sample_entries(server_url, ["text"])


def test_a_directory_holds_one_archive_with_fixed_types_and_time_zone(tmp_path: Path) -> None:
    def create(name: str, fields: dict[str, pa.DataType] | None, zone: str = "UTC") -> list[str]:
        columns = None if fields is None else pa.schema(list(fields.items()))
        return create_or_open(archive_location(tmp_path / name), columns, zone).opened_archive.columns.names

    number, text = {"n": pa.int32()}, {"t": pa.string()}
    for _ in range(2):
        assert create("x", None) == ["id", "timestamp", "sequence", "fields", "_exact"]
    with pytest.raises(UsageError, match="other fields \\(all in one map\\)"):
        create("x", number)
    with pytest.raises(UsageError, match="days of time zone UTC"):
        create("x", None, "Europe/Berlin")
    for _ in range(2):
        assert create("y", number) == ["id", "timestamp", "sequence", "n", "_exact"]
    assert create("y", text) == ["id", "timestamp", "sequence", "n", "_exact", "t"]
    with pytest.raises(UsageError, match="other fields \\(n int, not bigint\\)"):
        create("y", {"n": pa.int64()})
    with pytest.raises(UsageError, match="other fields"):
        create("y", None)
    (tmp_path / "old" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(UsageError, match="an archive of an earlier version"):
        create("old", None)
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "letter").write_text("dear")
    with pytest.raises(UsageError, match="is not empty and not an archive"):
        create("z", None)
    with pytest.raises(UsageError, match="cannot create an archive"):
        create("z/letter/deeper", None)
    with pytest.raises(UsageError, match="a Delta table cannot have"):
        create("i", {"n": pa.time64("us")})


def test_a_file_that_is_not_there_as_it_was_written_is_not_committed(tmp_path: Path) -> None:
    maker = ArchiveMaker(tmp_path / "x")
    [file] = maker.add("s", entries_at((1, 0), (2, 0)))
    [torn] = maker.add("s", entries_at((3, 0)), committed=False)
    path = maker.directory / torn.path
    path.write_bytes(path.read_bytes()[:-3])
    for _ in range(2):
        with pytest.raises(
            HeadraceError, match="were deleted or changed by another program before they counted"
        ):
            maker.table.commit([torn], {})
        path.unlink(missing_ok=True)
    assert [each.path for each in files_in(maker.directory)] == [file.path]


def test_of_two_writers_of_the_same_batch_one_fails(tmp_path: Path) -> None:
    maker = ArchiveMaker(tmp_path / "x")
    other = create_or_open(maker.location, None, "UTC")
    maker.add("s", entries_at((1, 0)))
    late = maker.add("s", entries_at((2, 0)), committed=False)
    with pytest.raises(HeadraceError, match=r"another job archives to .* at the same time"):
        other.commit(late, {})
    assert counted_entries(maker.directory) == {("s", "1-0"): 1}
    create_or_open(maker.location, None, "UTC").commit(late, {})
    assert counted_entries(maker.directory) == {("s", "1-0"): 1, ("s", "2-0"): 1}
