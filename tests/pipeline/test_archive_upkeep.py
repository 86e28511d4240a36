"""The upkeep of an archive while other jobs and other programs write to its table, and odd names in it."""

from __future__ import annotations

import contextlib
import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.archive import creation as archive_creation
from headrace.archive import table as archive_table
from headrace.archive.creation import create_or_open, with_archived_types
from headrace.archive.files import POSITIONS_KEY, archived_through, read_archive
from headrace.archive.location import archive_location
from headrace.archive.merging import merge_small_files
from headrace.archive.table import ArchiveTable
from headrace.archive.watermark import lowest_published_id, published_watermarks
from headrace.archive.watermark_publisher import WatermarkPublisher
from headrace.cli.options.option_types import with_storage_options
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archiving.archive_streams import publish_committed_positions
from headrace.pipeline.archiving.job import first_day_kept
from headrace.positions.position import parse_positions
from support.archives import ArchiveMaker, counted_entries, entries_at, publish
from support.stream_server import StreamServer

DAY = 86_400_000
WEEK = datetime.timedelta(days=7)


def reopened(maker: ArchiveMaker) -> ArchiveTable:
    return create_or_open(maker.location, None, "UTC")


def add_days(maker: ArchiveMaker, stream: str, days: int) -> None:
    """Add two files for each day."""
    for n in range(2 * days):
        [entry] = entries_at((n * DAY // 2, 1))
        maker.add(stream, [entry], reached={stream: entry[0]})


@pytest.fixture
def maker(tmp_path: Path) -> ArchiveMaker:
    return ArchiveMaker(tmp_path / "archive")


@pytest.mark.parametrize("upkeep", ["merge", "delete", "vacuum"])
def test_upkeep_beside_another_job_keeps_its_positions(maker: ArchiveMaker, upkeep: str) -> None:
    add_days(maker, "s", 3)
    slow = reopened(maker)
    maker.add("s", entries_at((9 * DAY, 1)), reached={"s": f"{9 * DAY}-1"})
    if upkeep == "merge":
        assert merge_small_files(slow).merged_files
    elif upkeep == "delete":
        assert slow.delete_days_before(datetime.date(1970, 1, 2)).deleted_entries == 2
    else:
        with pytest.raises(HeadraceError, match="another job"):
            slow.vacuum(datetime.datetime.now(datetime.UTC) + WEEK)
    assert archived_through(maker.location) == {"s": f"{9 * DAY}-1"}
    assert reopened(maker).positions == parse_positions({"s": f"{9 * DAY}-1"})


def test_days_whose_files_were_just_merged_are_deleted(maker: ArchiveMaker) -> None:
    add_days(maker, "s", 3)
    table = reopened(maker)
    assert merge_small_files(table).merged_files == 4
    assert table.delete_days_before(datetime.date(1970, 1, 3)).deleted_entries == 4
    assert set(counted_entries(maker.directory)) == {("s", f"{2 * DAY}-1"), ("s", f"{5 * DAY // 2}-1")}
    table.commit([], {})
    assert archived_through(maker.location) == {"s": f"{5 * DAY // 2}-1"}


def test_files_without_a_commit_are_deleted_once_a_day(maker: ArchiveMaker) -> None:
    now = datetime.datetime.now(datetime.UTC)
    orphan = maker.add("s", entries_at((1, 1)), committed=False)[0].path
    assert reopened(maker).vacuum(now + 2 * WEEK) == 0  # without a commit there is no time to count from
    add_days(maker, "s", 1)
    assert reopened(maker).vacuum(now + datetime.timedelta(hours=23)) == 0
    assert (maker.directory / orphan).exists()
    before = len(DeltaTable(maker.directory).history())
    reopened(maker).vacuum(now + datetime.timedelta(hours=25))  # the file is younger than a week
    assert (maker.directory / orphan).exists()
    assert len(DeltaTable(maker.directory).history()) > before
    assert reopened(maker).vacuum(now + datetime.timedelta(hours=48)) == 0
    assert read_archive(maker.location).positions == parse_positions({"s": f"{DAY // 2}-1"})


@pytest.mark.parametrize("stream", ["", "n" * 300, "\u00e9" * 60, "\u00e9" * 30, "n" * 240, "a/b'\"%41"])
def test_days_of_streams_with_any_name_can_be_merged(maker: ArchiveMaker, stream: str) -> None:
    add_days(maker, stream, 2)
    add_days(maker, "plain", 2)
    assert merge_small_files(reopened(maker)).merged_files == 4
    assert counted_entries(maker.location).total() == 8 == len(counted_entries(maker.location))
    assert archived_through(maker.location) == dict.fromkeys([stream, "plain"], f"{3 * DAY // 2}-1")


def test_a_day_is_deleted_when_all_its_hours_are_older() -> None:
    noon = datetime.datetime(2026, 3, 11, 1, tzinfo=datetime.UTC)
    days = {
        zone: first_day_kept(noon, 24 * 3_600_000, zone).day for zone in ("UTC", "Etc/GMT+12", "Etc/GMT-14")
    }
    assert days == {"UTC": 10, "Etc/GMT+12": 9, "Etc/GMT-14": 10}


# Other programs


def test_files_that_were_deleted_or_changed_before_their_commit_do_not_count(maker: ArchiveMaker) -> None:
    add_days(maker, "s", 1)
    before = read_archive(maker.location)
    for spoil in (Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])):
        files = maker.add("s", entries_at((DAY, 2), (2 * DAY, 2)), committed=False)
        spoil(maker.directory / files[1].path)
        with pytest.raises(HeadraceError, match=f"1 file of this job, such as {files[1].path}, were deleted"):
            maker.table.commit(files, parse_positions({"s": f"{2 * DAY}-2"}))
        assert read_archive(maker.location) == before
    add_days(maker, "t", 1)
    assert counted_entries(maker.location).total() == 4


def test_a_commit_whose_files_vanish_at_the_same_time_is_undone(
    maker: ArchiveMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_days(maker, "s", 1)
    before = read_archive(maker.location)
    files = maker.add("s", entries_at((DAY, 2), (2 * DAY, 2)), committed=False)
    append = maker.table._append

    def append_beside_a_vacuum(*arguments: Any) -> str:
        (maker.directory / files[0].path).unlink(missing_ok=True)
        return append(*arguments)

    monkeypatch.setattr(maker.table, "_append", append_beside_a_vacuum)
    with pytest.raises(HeadraceError, match=f"1 file of this job, such as {files[0].path}, were deleted"):
        maker.table.commit(files, parse_positions({"s": f"{2 * DAY}-2"}))
    found = read_archive(maker.location)
    assert (found.files, found.positions, found.was_set_back) == (before.files, before.positions, False)
    again = maker.add("s", entries_at((DAY, 2), (2 * DAY, 2)), reached={"s": f"{2 * DAY}-2"})
    assert {file.path for file in again} < {file.path for file in read_archive(maker.location).files}


@pytest.mark.parametrize("step", ["checkpoint", "sync_log", "_load_new_commits", "second check"])
def test_a_commit_is_known_to_its_job_also_if_what_follows_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    DeltaTable(maker.directory).alter.set_table_properties({"delta.checkpointInterval": "1"})
    maker.table = reopened(maker)
    if step == "checkpoint":
        name = f"{DeltaTable(maker.directory).version() + 1:020}.checkpoint.parquet"
        (maker.directory / "_delta_log" / name / "in the way").mkdir(parents=True)
    else:
        target, name = (archive_table, "lost_files") if step == "second check" else (maker.table, step)
        failures = iter([False, True] if step == "second check" else [True])
        real = getattr(target, name)

        def fail_once(*arguments: Any) -> Any:
            if next(failures, False):
                raise HeadraceError("the store fails")
            return real(*arguments)

        monkeypatch.setattr(target, name, fail_once)
    with pytest.raises(HeadraceError, match=r"the store fails|Is a directory"):
        maker.add("s", entries_at((1, 1)), reached={"s": "1-1"})
    maker.add("t", entries_at((2, 1)), reached={"t": "2-1"})
    assert counted_entries(maker.directory) == {("s", "1-1"): 1, ("t", "2-1"): 1}
    assert reopened(maker).positions == maker.table.positions == parse_positions({"s": "1-1", "t": "2-1"})


def test_no_commit_follows_one_that_failed_and_was_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("s", entries_at((1, 1)), reached={"s": "1-1"})

    def fail() -> None:
        raise HeadraceError("the store fails")

    with monkeypatch.context() as patched:
        patched.setattr(maker.table, "sync_log", fail)
        with pytest.raises(HeadraceError, match="the store fails"):
            maker.add("s", entries_at((2, 1)), reached={"s": "2-1"})
    table = DeltaTable(maker.directory)
    table.restore(table.version() - 1)
    with pytest.raises(HeadraceError, match="another program has replaced its entries"):
        maker.add("s", entries_at((3, 1)), reached={"s": "3-1"})
    assert counted_entries(maker.directory) == {("s", "1-1"): 1}


def test_an_archive_that_was_replaced_by_older_entries_ends_where_its_files_end(maker: ArchiveMaker) -> None:
    add_days(maker, "s", 2)
    rows = DeltaTable(maker.directory, version=2).to_pyarrow_table()
    write_deltalake(maker.directory, rows, mode="overwrite")
    found = read_archive(maker.location)
    assert (found.archived_through, found.was_set_back) == ({"s": f"{DAY // 2}-1"}, True)
    assert reopened(maker).positions == {}


def test_the_watermark_of_an_archive_that_was_set_back_is_lowered(stream_server: StreamServer) -> None:
    client = stream_server.client
    publisher = WatermarkPublisher(stream_server.url, "main", "/lake/main")
    publisher.publish(parse_positions({"s": "9-0", "t": "9-0", "u": "9-0"}))
    publisher.lower(parse_positions({"s": "5-0", "t": "0-0", "u": "12-0", "v": "3-0"}))
    publisher.close()
    assert [lowest_published_id(client, stream) for stream in "stuv"] == ["5-0", None, "9-0", None]


def test_watermarks_of_all_streams_are_lowered_by_the_first_job_after_a_restore(
    stream_server: StreamServer, maker: ArchiveMaker
) -> None:
    add_days(maker, "s", 1)
    version = DeltaTable(maker.directory).version()
    add_days(maker, "t", 1)
    publisher = WatermarkPublisher(stream_server.url, "main", "/lake/main")
    publish_committed_positions(publisher, reopened(maker), ["s"])
    assert [lowest_published_id(stream_server.client, stream) for stream in "st"] == [f"{DAY // 2}-1"] * 2
    DeltaTable(maker.directory).restore(version)
    publish_committed_positions(publisher, reopened(maker), ["s"])
    publisher.close()
    assert [lowest_published_id(stream_server.client, stream) for stream in "st"] == [f"{DAY // 2}-1", None]


def test_a_job_lowers_the_watermark_of_an_archive_that_has_less_than_was_published(
    stream_server: StreamServer, maker: ArchiveMaker
) -> None:
    """As after a backup of the archive was restored."""
    client = stream_server.client
    add_days(maker, "s", 1)
    table = reopened(maker)
    publisher = WatermarkPublisher(stream_server.url, table.opened_archive.table_id, "/lake/backup")
    publisher.publish(parse_positions({"s": f"{3 * DAY}-0"}))
    publish(client, "s", f"{9 * DAY}-0", "other")
    publish_committed_positions(publisher, table, ["s", "new"])
    publisher.close()
    assert lowest_published_id(client, "s") == f"{DAY // 2}-1"
    assert len(published_watermarks(client, "s")) == 2
    [begun] = published_watermarks(client, "new")
    assert (begun.table_id, begun.has_entries) == (table.opened_archive.table_id, False)


def test_a_moved_archive_has_one_watermark(stream_server: StreamServer, maker: ArchiveMaker) -> None:
    add_days(maker, "s", 1)
    for directory in (maker.directory, maker.directory.with_name("moved")):
        if not directory.exists():
            maker.directory.rename(directory)
        table = create_or_open(archive_location(directory), None, "UTC")
        publisher = WatermarkPublisher(stream_server.url, table.opened_archive.table_id, str(directory))
        publish_committed_positions(publisher, table, ["s"])
        publisher.close()
        [watermark] = published_watermarks(stream_server.client, "s")
        assert watermark.location == str(directory)


def test_an_archive_whose_log_has_lost_the_positions_ends_where_its_files_end(maker: ArchiveMaker) -> None:
    add_days(maker, "s", 1)
    for commit in (maker.directory / "_delta_log").glob("*.json"):
        text = commit.read_text().replace(POSITIONS_KEY, "lost")
        commit.write_text(text)
    found = read_archive(maker.location)
    assert (found.archived_through, found.was_set_back) == ({"s": f"{DAY // 2}-1"}, True)


def test_a_table_that_another_job_has_created_meanwhile_is_checked(
    maker: ArchiveMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_creation, "existing_table", lambda location: None)
    with pytest.raises(UsageError, match=r"other fields \(all in one map\); omit --fields, or"):
        create_or_open(maker.location, pa.schema([("n", pa.int32())]), "UTC")


def test_a_file_is_closed_at_the_end_of_a_with_block(maker: ArchiveMaker) -> None:
    add_days(maker, "s", 1)
    file = read_archive(maker.location).files[0]
    path = str(maker.directory / file.path)
    with file.open() as parquet:
        assert path in open_files()
    assert path not in open_files()
    assert parquet.metadata.num_rows == 1


def open_files() -> set[str]:
    """Return the paths of the files that this process has open."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(str(descriptor.readlink()))
    return found


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_a_table_whose_files_have_other_rows_is_not_read(maker: ArchiveMaker, feature: str) -> None:
    add_days(maker, "s", 1)
    version = DeltaTable(maker.directory).version() + 1
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    (maker.directory / "_delta_log" / f"{version:020}.json").write_text(json.dumps(action))
    with pytest.raises(UsageError, match=f"the Delta feature {feature}, with which"):
        read_archive(maker.location)


def test_a_damaged_file_is_named(maker: ArchiveMaker) -> None:
    [file] = maker.add("s", entries_at((1, 1)))
    path = maker.directory / file.path
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(HeadraceError, match=f"{file.path} is damaged: "):
        read_archive(maker.location)


# Names


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "100%", "\u00e9", "s3:", "~", "a+b"])
def test_an_archive_can_be_in_a_directory_of_any_name(tmp_path: Path, name: str) -> None:
    maker = ArchiveMaker(tmp_path / name)
    add_days(maker, "s", 2)
    merge_small_files(reopened(maker))
    assert counted_entries(tmp_path / name).total() == 4
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_directory_that_the_library_would_confuse_with_another_is_rejected(tmp_path: Path) -> None:
    for place in (tmp_path / "a%20b", "s3://bucket/a%20b"):
        with pytest.raises(UsageError, match="an archive cannot be in a path with %20"):
            archive_location(place)


@pytest.mark.parametrize(
    "place", ["s3://key:hidden@bucket/x", "az://c/x?sig=hidden", "https://user:hidden@host/x"]
)
def test_credentials_in_a_url_are_rejected_and_not_printed(place: str) -> None:
    with pytest.raises(UsageError) as caught:
        archive_location(place)
    assert "hidden" not in str(caught.value)
    assert archive_location("abfss://container@account.dfs.core.windows.net/x").uri.startswith("abfss://cont")


def test_credentials_in_options_are_not_printed() -> None:
    location = archive_location("s3://bucket/x", {"AWS_SECRET_ACCESS_KEY": "hidden"})
    assert "hidden" not in repr(location)
    for text in ("AWS_SECRET_ACCESS_KEY:hidden", "=hidden"):
        with pytest.raises(UsageError) as caught:
            with_storage_options(location, (text,))
        assert "hidden" not in str(caught.value)


def test_a_field_that_differs_from_a_column_only_in_case_gets_no_column(tmp_path: Path) -> None:
    location = archive_location(tmp_path / "archive")
    create_or_open(location, pa.schema([("item", pa.string())]), "UTC")
    with pytest.raises(UsageError, match="a column 'item'; 'Item' differs from it only in case"):
        create_or_open(location, pa.schema([("Item", pa.string())]), "UTC")
    inferred = with_archived_types(location, pa.schema([("Item", pa.string()), ("n", pa.int32())]))
    assert inferred.names == ["n"]
    assert create_or_open(location, inferred, "UTC").opened_archive.columns.names[-1] == "n"
