"""What is there after a job was killed at each of its steps, and what the same job does when run again.

A job is stopped by an exception at the step; nothing after that is done, as after a kill.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import redis

from headrace.archive import watermark_release
from headrace.archive.creation import create_or_open
from headrace.archive.merging import merge_small_files
from headrace.archive.table import ArchiveTable
from headrace.archive.watermark import lowest_published_id, published_watermarks
from headrace.archive.watermark_publisher import WatermarkPublisher
from headrace.archive.watermark_release import delete_watermarks
from headrace.client.servers import Servers
from headrace.errors import UsageError
from headrace.pipeline.archiving.archive_streams import publish_committed_positions
from headrace.pipeline.loading.load_rows import load_rows
from headrace.pipeline.loading.loader import LoadIdentity, LoadReport
from headrace.pipeline.trimming import trim_streams as trim_module
from headrace.pipeline.trimming.horizon import RetentionPolicy
from headrace.pipeline.trimming.trim_streams import trim_streams
from support.archives import ArchiveMaker, counted_entries, entries_at
from support.stream_server import StreamServer

COUNT = 20
DAY_MS = 86_400_000
ENTRIES = entries_at(*((n, 0) for n in range(1, COUNT + 1)))
EXPECTED = {("s", id_): 1 for id_, _ in ENTRIES}
NO_GROUPS = RetentionPolicy(allow_no_groups=True)


class Killed(BaseException):
    """Stops a job where it is."""


@pytest.fixture
def maker(tmp_path: Path, stream_server: StreamServer) -> ArchiveMaker:
    """An archive of the first half of the stream `s`."""
    stream_server.client.flushall()
    for id_, fields in ENTRIES:
        stream_server.client.xadd("s", dict(fields), id_)  # type: ignore[arg-type]
    maker = ArchiveMaker(tmp_path / "archive")
    commit(maker, slice(0, COUNT // 2))
    return maker


def commit(maker: ArchiveMaker, part: slice) -> None:
    entries = ENTRIES[part]
    maker.commit(maker.write_files("s", entries), {"s": entries[-1][0]})


def published_by_the_next_job(maker: ArchiveMaker, server: StreamServer) -> str | None:
    table = create_or_open(maker.location, None, "UTC")
    publisher = WatermarkPublisher(server.url, table.opened_archive.table_id, str(maker.location))
    publish_committed_positions(publisher, table, ["s"])
    publisher.close()
    return lowest_published_id(server.client, "s")


def test_files_of_an_archive_job_killed_before_the_commit_are_written_again(
    maker: ArchiveMaker, stream_server: StreamServer
) -> None:
    maker.write_files("s", ENTRIES[COUNT // 2 :])
    assert published_by_the_next_job(maker, stream_server) == f"{COUNT // 2}-0"
    commit(ArchiveMaker(maker.location), slice(COUNT // 2, COUNT))
    assert counted_entries(maker.location) == EXPECTED


def test_an_archive_job_killed_after_the_commit_is_published_by_the_next_one(
    maker: ArchiveMaker, stream_server: StreamServer
) -> None:
    assert published_by_the_next_job(maker, stream_server) == f"{COUNT // 2}-0"
    commit(maker, slice(COUNT // 2, COUNT))
    [before] = trim_streams(stream_server.url, ["s"], retention=NO_GROUPS, dry_run=True)
    assert before.removed == COUNT // 2 - 1
    assert published_by_the_next_job(maker, stream_server) == f"{COUNT}-0"
    assert counted_entries(maker.location) == EXPECTED


@pytest.mark.parametrize("step", ["before the commit", "after the commit"])
def test_a_merge_that_is_killed_leaves_each_entry_once(
    maker: ArchiveMaker, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    commit(maker, slice(COUNT // 2, COUNT))
    later = entries_at((DAY_MS, 0))  # only days that have ended are merged
    maker.commit(maker.write_files("s", later), {"s": later[-1][0]})
    expected = {**EXPECTED, ("s", later[0][0]): 1}
    swap = ArchiveTable._swap

    def stop(self: ArchiveTable, *files: object) -> None:
        if step == "after the commit":
            swap(self, *files)  # type: ignore[arg-type]
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveTable, "_swap", stop)
        with pytest.raises(Killed):
            merge_small_files(create_or_open(maker.location, None, "UTC"))
    assert counted_entries(maker.location) == expected
    merged = merge_small_files(create_or_open(maker.location, None, "UTC")).merged_files
    assert merged == (2 if step == "before the commit" else 0)
    assert counted_entries(maker.location) == expected


def test_a_trim_that_is_killed_between_two_steps_is_continued(
    maker: ArchiveMaker, stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    published_by_the_next_job(maker, stream_server)

    def stop(stream: str, removed: int) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(trim_module, "STEP_ENTRIES_MAX", 2)
        with pytest.raises(Killed):
            trim_streams(stream_server.url, ["s"], retention=NO_GROUPS, on_progress=stop)
    trim_streams(stream_server.url, ["s"], retention=NO_GROUPS)
    [(first, _)] = stream_server.client.xrange("s", count=1)
    assert first == f"{COUNT // 2}-0".encode()


def test_a_release_that_is_killed_between_two_streams_is_continued(
    maker: ArchiveMaker, stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_server.client.xadd("t", {"n": 1}, "1-0")
    table = create_or_open(maker.location, None, "UTC")
    publisher = WatermarkPublisher(stream_server.url, table.opened_archive.table_id, str(maker.location))
    publish_committed_positions(publisher, table, ["s", "t"])
    publisher.close()
    change = watermark_release.change_watermarks

    def stop(client: redis.Redis, stream: str, *more: object) -> object:
        if stream == "t":
            raise Killed
        return change(client, stream, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(watermark_release, "change_watermarks", stop)
        with pytest.raises(Killed):
            delete_watermarks(stream_server.url, ["s", "t"], str(maker.directory))
    assert not published_watermarks(stream_server.client, "s")
    assert delete_watermarks(stream_server.url, ["s", "t"], str(maker.directory)) == ["t"]


def test_a_load_that_is_killed_before_it_records_its_end_is_resumed_without_rows(
    stream_server: StreamServer,
) -> None:
    stream_server.client.flushall()
    job = LoadIdentity("job", "file", 100)
    batches = [pa.record_batch({"n": list(range(COUNT))})]

    def stop(report: LoadReport) -> None:
        if report.is_complete:
            raise Killed

    with Servers(stream_server.url) as servers:
        with pytest.raises(Killed):
            load_rows(batches, None, servers, "s", job=job, on_progress=stop)
        with pytest.raises(UsageError, match="--resume"):
            load_rows(batches, None, servers, "s", job=job)
        report = load_rows(batches, None, servers, "s", job=job, resume=True)
        assert (report.added_rows, report.skipped) == (0, COUNT)
        assert load_rows(batches, None, servers, "s", job=job, resume=True).added_rows == 0
    assert stream_server.client.xlen("s") == COUNT
