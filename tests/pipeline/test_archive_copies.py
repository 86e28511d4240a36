"""A copy of an archive has the ID of its original: it is not taken for it, so that no entry is trimmed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.archive.location import is_same_store_url
from headrace.archive.watermark import published_watermarks
from headrace.archive.watermark_release import delete_watermarks
from headrace.cli.main import main
from headrace.errors import UsageError
from headrace.pipeline.archiving.archive_streams import (
    archived_and_last_positions,
    entry_schema,
    publish_if_current,
    source_options,
)
from headrace.pipeline.trimming.horizon import RetentionPolicy
from headrace.pipeline.trimming.trim_streams import trim_streams
from headrace.spark.arrow_schemas import spark_columns
from headrace.spark.options import parse_options
from headrace.spark.source.stream_reader import HeadraceStreamReader
from support.archives import ArchiveMaker, entries_at
from support.stream_server import StreamServer

LAST = 9
ENTRIES = entries_at(*((n, 0) for n in range(1, LAST + 1)))
NO_GROUPS = RetentionPolicy(allow_no_groups=True)


@pytest.fixture
def maker(tmp_path: Path, stream_server: StreamServer) -> ArchiveMaker:
    """An archive of all entries of the stream `s`, which its job has published."""
    stream_server.client.flushall()
    for id_, fields in ENTRIES:
        stream_server.client.xadd("s", dict(fields), id_)  # type: ignore[arg-type]
    maker = ArchiveMaker(tmp_path / "original")
    maker.add("s", ENTRIES, reached=last_positions(stream_server, maker))
    assert publish_if_current(stream_server.url, ["s"], maker.location)
    return maker


def last_positions(server: StreamServer, maker: ArchiveMaker) -> dict[str, str]:
    """Return the position of the last entry, as the job commits it."""
    options = parse_options(source_options(server.url, ["s"], LAST, fail_on_loss=True), "stream")
    reader = HeadraceStreamReader(options, spark_columns(entry_schema(None)))
    try:
        return archived_and_last_positions(reader, maker.table, ["s"])[1]
    finally:
        reader.stop()


def copied(maker: ArchiveMaker) -> Path:
    copy = maker.directory.with_name("copy")
    shutil.copytree(maker.directory, copy)
    return copy


def places(server: StreamServer) -> list[str]:
    return [each.location for each in published_watermarks(server.client, "s")]


@pytest.mark.parametrize("is_current", [True, False])
def test_an_archive_job_rejects_a_copy_and_continues_the_original(
    maker: ArchiveMaker, stream_server: StreamServer, is_current: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copied(maker)
    if not is_current:
        stream_server.client.xadd("s", {"n": 1}, f"{LAST + 1}-0")
    before = stream_server.client.get("{s}:headrace:archived")
    assert main(["archive", "--stream", "s", "--to", str(copy), "--url", stream_server.url]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert f"{copy} is a copy of the archive {maker.directory}" in err
    assert f"headrace trim --release {maker.directory}" in err
    assert stream_server.client.get("{s}:headrace:archived") == before
    assert publish_if_current(stream_server.url, ["s"], maker.location) is is_current


def test_a_copy_becomes_the_archive_once_the_original_is_released(
    maker: ArchiveMaker, stream_server: StreamServer
) -> None:
    copy = copied(maker)
    delete_watermarks(stream_server.url, ["s"], str(maker.directory))
    assert publish_if_current(stream_server.url, ["s"], copy)
    assert places(stream_server) == [str(copy)]
    with pytest.raises(UsageError, match=f"{maker.directory} is a copy of the archive {copy}"):
        publish_if_current(stream_server.url, ["s"], maker.location)


def test_a_moved_archive_is_accepted_with_a_warning(
    maker: ArchiveMaker, stream_server: StreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    moved = maker.directory.with_name("moved")
    maker.directory.rename(moved)
    for warnings in (1, 0):
        caplog.clear()
        assert publish_if_current(stream_server.url, ["s"], moved)
        assert len(caplog.messages) == warnings
        assert all(f"{moved} was at {maker.directory} until now" in text for text in caplog.messages)
    assert places(stream_server) == [str(moved)]


@pytest.mark.parametrize("other", ["an archive", "a damaged archive"])
def test_a_moved_archive_whose_place_has_something_else_is_no_copy(
    maker: ArchiveMaker, stream_server: StreamServer, other: str
) -> None:
    moved = maker.directory.with_name("moved")
    maker.directory.rename(moved)
    ArchiveMaker(maker.directory)
    if other == "a damaged archive":
        (maker.directory / "_delta_log" / f"{0:020}.json").write_bytes(b"{")
    assert publish_if_current(stream_server.url, ["s"], moved)


def test_an_archive_that_a_symbolic_link_names_is_no_copy(
    maker: ArchiveMaker, stream_server: StreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    link = maker.directory.with_name("link")
    link.symlink_to(maker.directory)
    assert publish_if_current(stream_server.url, ["s"], link)
    assert not caplog.messages


def test_trim_by_a_copy_keeps_what_the_original_lacks(
    maker: ArchiveMaker, stream_server: StreamServer
) -> None:
    copy = ArchiveMaker(copied(maker))
    more = entries_at(*((n, 0) for n in range(LAST + 1, LAST + 6)))
    for id_, fields in more:
        stream_server.client.xadd("s", dict(fields), id_)  # type: ignore[arg-type]
    copy.add("s", more, reached={"s": more[-1][0]})
    [done] = trim_streams(stream_server.url, ["s"], archive=copy.location, retention=NO_GROUPS)
    assert (done.removed, done.reasons[0]) == (LAST - 1, f"archived up to {LAST}-0 in {maker.directory}")


def test_a_store_has_one_place_under_all_its_schemes() -> None:
    assert is_same_store_url("s3a://lake/orders", "s3://lake/orders")
    assert not is_same_store_url("s3://lake/orders", "s3://lake/order")
    assert not is_same_store_url("gs://lake/orders", "s3://lake/orders")
