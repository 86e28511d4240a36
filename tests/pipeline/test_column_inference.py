"""Inference of columns, the metadata of an archive, and its watermark."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from archive_maker import ArchiveMaker
from pyspark.sql.types import StructField, StructType, TimestampType

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archive_metadata import create_or_open
from headrace.pipeline.column_inference import (
    infer_columns,
    lacks_time_format,
    sample_entries,
    unusable_names,
    with_time_formats,
)
from headrace.pipeline.watermark import WatermarkPublisher, published_id


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
        ([b"2013-01-31", b"2"], "STRING"),
        ([b""], "STRING"),
        ([b"\xff"], "STRING"),
    ],
)
def test_an_inferred_type_holds_all_sampled_values(values: list[bytes], kind: str) -> None:
    assert infer_columns([{b"v": value} for value in values]) == f"`v` {kind}"


def test_columns_come_in_order_and_names_are_quoted() -> None:
    assert infer_columns([{b"b c": b"1"}, {b"a`": b"x", b"b c": b"2"}]) == "`b c` BIGINT, `a``` STRING"
    with pytest.raises(UsageError, match="no entries"):
        infer_columns([])
    with pytest.raises(UsageError, match="no field name can be a column name"):
        infer_columns([{b"\xff": b"1"}])


def test_a_field_whose_name_cannot_be_a_column_is_left_out_with_a_reason() -> None:
    entry = dict.fromkeys([b"n", b"N", b"\xff", b"", b"a\n", b"ID", b"_exact", b"ok"], b"1")
    assert infer_columns([entry]) == "`n` BIGINT, `ok` BIGINT"
    text = "is not printable text"
    taken = "is the name of a column of the archive"
    assert unusable_names(entry) == {
        b"N": "differs only in case from 'n'", b"\xff": text, b"": text, b"a\n": text, b"ID": taken,
        b"_exact": taken,
    }  # fmt: skip


def test_inferred_times_have_their_most_frequent_format() -> None:
    some = [b"2026-03-01T12:00:00Z", b"2026-03-01T12:00:00.5Z", b"2026-03-02T12:00:00Z"]
    assert infer_columns([{b"at": value} for value in some]) == "`at` TIMESTAMP COMMENT 'iso8601:T0Z'"
    for value, kind in (
        (b"2026-03-01 12:00:00.123", "TIMESTAMP COMMENT 'iso8601: 3'"),
        (b"2026-03-01T12:00:00.123456+01:00", "TIMESTAMP COMMENT 'iso8601:T6+01:00'"),
        (b"2026-03-01T12:00", "TIMESTAMP COMMENT 'iso8601'"),
        (b"2026-03-01T12:00:00.123456789Z", "STRING"),
        (b"2026-03-01T25:00:00Z", "STRING"),
    ):
        assert infer_columns([{b"at": value}]) == f"`at` {kind}"


def test_declared_times_get_the_format_of_the_sample_unless_they_have_one() -> None:
    at = StructField("at", TimestampType())
    said = StructField("said", TimestampType(), True, {"comment": "epoch_s"})
    number = StructField("n", TimestampType())
    some = [{b"at": b"2026-03-01T12:00:00Z", b"said": b"2026-03-01T12:00:00Z", b"n": b"1700000000000"}]
    assert lacks_time_format(StructType([said, at])) and not lacks_time_format(StructType([said]))
    found = with_time_formats(StructType([at, said, number]), some)
    assert [field.metadata for field in found] == [
        {"comment": "iso8601:T0Z"},
        {"comment": "epoch_s"},
        {},
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


def test_a_directory_holds_one_archive_with_fixed_fields_and_time_zone(tmp_path: Path) -> None:
    metadata = create_or_open(tmp_path / "x", ["a"], None, "UTC")
    assert (metadata.partitions, metadata.only_stream) == (["stream", "date"], None)
    assert create_or_open(tmp_path / "x", ["b"], None, "UTC") == metadata
    with pytest.raises(UsageError, match="other fields \\(all in one map\\)"):
        create_or_open(tmp_path / "x", ["a"], "struct<n:int>", "UTC")
    with pytest.raises(UsageError, match="days of time zone UTC"):
        create_or_open(tmp_path / "x", ["a"], None, "Europe/Berlin")
    create_or_open(tmp_path / "y", ["a"], "struct<n:int>", "UTC")
    assert create_or_open(tmp_path / "y", ["a"], "struct<n:int>", "UTC").fields == "struct<n:int>"
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "letter").write_text("dear")
    with pytest.raises(UsageError, match="is not empty and not an archive"):
        create_or_open(tmp_path / "z", ["a"], None, "UTC")
    with pytest.raises(UsageError, match="cannot create an archive"):
        create_or_open(tmp_path / "z" / "letter" / "deeper", ["a"], None, "UTC")


def test_only_complete_valid_files_are_published(
    tmp_path: Path, server_url: str, client: redis.Redis
) -> None:
    maker = ArchiveMaker(tmp_path / "x")
    watermark = WatermarkPublisher(server_url, maker.directory)
    watermark.publish_new()
    assert published_id(client, "s") is None
    maker.add({"s": [(1, 0), (2, 0)]})
    watermark.publish_new()
    assert published_id(client, "s") == "2-0"
    maker.add({"s": [(3, 0)]}, commit=False)
    watermark.publish_new()
    assert published_id(client, "s") == "2-0"
    torn = maker.add({"s": [(3, 0)]})[0]
    torn.write_bytes(torn.read_bytes()[:-3])
    with pytest.raises(HeadraceError, match="is not a complete Parquet file"):
        watermark.publish_new()
    torn.unlink()
    with pytest.raises(HeadraceError, match="cannot be read"):
        watermark.publish_new()
    assert published_id(client, "s") == "2-0"
    watermark.close()
