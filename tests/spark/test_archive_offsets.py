"""A backfill: the archive up to its end, then the stream after it; and what it detects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headrace.client.servers import Servers
from headrace.errors import HeadraceError, UsageError
from headrace.positions.position import Position
from headrace.positions.recreation import RecreationDetector
from headrace.spark import offsets_after_archive
from headrace.spark.options import parse_options
from headrace.spark.source.data_loss import DataLoss
from headrace.spark.source.reader import HeadraceReader
from headrace.spark.source.stream_reader import HeadraceStreamReader
from support.archives import ArchiveMaker
from support.stream_server import StreamServer

N = StructType([StructField("n", LongType())])


@pytest.fixture
def maker(tmp_path: Path) -> ArchiveMaker:
    return ArchiveMaker(tmp_path / "archive")


def archive_up_to(maker: ArchiveMaker, server: StreamServer, last: int, first: int = 0) -> None:
    """Archive the entries of the stream `s` from number `first` up to `last`, with its identity."""
    entries = [(f"{1_000_000 + n}-0", {"n": n}) for n in range(first, last + 1)]
    with Servers(server.url) as servers:
        detector = RecreationDetector(servers, fail_on_data_loss=True)
        position = Position(f"{1_000_000 + last}-0", last + 1)
        identified = detector.with_fingerprints({"s": position})
    maker.add("s", entries, reached={"s": str(identified["s"])})


def offsets_of(maker: ArchiveMaker, server: StreamServer, streams: str | list[str] | None = None) -> str:
    return offsets_after_archive(maker.directory, streams, url=server.url)


def archived_numbers(maker: ArchiveMaker, server: StreamServer, offsets: str) -> list[int]:
    """The numbers that a batch read of the archive up to the offsets has."""
    options = {"url": server.url, "archive": str(maker.directory), "archiveOnly": "true"}
    options |= {"subscribe": "s", "endingOffsets": offsets}
    reader = HeadraceReader(parse_options(options, "batch"), N)
    parts = [part for part in reader.partitions() if part.value is not None]
    return sorted(n for part in parts for batch in reader.read(part) for n in batch.column("n").to_pylist())


@pytest.fixture
def follow(stream_server: StreamServer) -> Iterator[Callable[[str], list[int]]]:
    """A function that returns the numbers that a stream query after the offsets has."""
    readers = []

    def read_from(offsets: str, **more: str) -> list[int]:
        options = {"url": stream_server.url, "subscribe": "s", "startingOffsets": offsets, **more}
        reader = HeadraceStreamReader(parse_options(options, "stream"), N)
        readers.append(reader)
        reader.prepareForTriggerAvailableNow()
        found: list[int] = []
        start = reader.initialOffset()
        for turn in range(50):
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start and turn:
                return found
            for part in reader.partitions(start, end):
                if part.value is not None:
                    found += [n for batch in reader.read(part) for n in batch.column("n").to_pylist()]
            reader.commit(end)
            start = end
        raise AssertionError("it does not end")

    yield read_from
    for reader in readers:
        reader.stop()


Follow = Callable[..., list[int]]


def test_archive_and_stream_have_each_entry_once(
    maker: ArchiveMaker, stream_server: StreamServer, follow: Follow
) -> None:
    stream_server.fill("s", 30)
    archive_up_to(maker, stream_server, 19)
    stream_server.client.xtrim("s", minid="1000019-0", approximate=False)
    offsets = offsets_of(maker, stream_server)
    [(stream, text)] = json.loads(offsets).items()
    assert stream == "s" and text.startswith("1000019-0:20:"), "with the identity of the stream"
    archive_up_to(maker, stream_server, 24, first=20)
    stream_server.fill("s", 5, 30)
    assert archived_numbers(maker, stream_server, offsets) == list(range(20)), "not what was archived since"
    assert follow(offsets) == list(range(20, 35))
    assert follow(offsets_of(maker, stream_server)) == list(range(25, 35))


def test_a_stream_that_is_not_archived_begins_with_its_first_entry(
    maker: ArchiveMaker, stream_server: StreamServer, follow: Follow
) -> None:
    stream_server.fill("s", 3)
    stream_server.fill("t", 3)
    maker.add("other", [("5-0", {"n": 5})], reached={"other": "5-0"})
    offsets = offsets_of(maker, stream_server, ["s"])
    assert offsets == '{"s": "0-0"}'
    assert archived_numbers(maker, stream_server, offsets) == []
    assert follow(offsets) == [0, 1, 2]
    with pytest.raises(UsageError, match=r"there is no stream 'missing' in .*archive and redis://"):
        offsets_of(maker, stream_server, "missing")


def test_without_a_stream_or_an_archive_there_are_no_offsets(
    maker: ArchiveMaker, stream_server: StreamServer, tmp_path: Path
) -> None:
    assert offsets_of(maker, stream_server) == "{}"
    with pytest.raises(UsageError, match="there is no archive"):
        offsets_after_archive(tmp_path / "nothing", url=stream_server.url)
    with pytest.raises(HeadraceError, match=r"127\.0\.0\.1:1"):
        offsets_after_archive(maker.directory, "s", url="redis://127.0.0.1:1")


def test_entries_trimmed_after_the_end_of_the_archive_are_counted(
    maker: ArchiveMaker, stream_server: StreamServer
) -> None:
    stream_server.fill("s", 30)
    archive_up_to(maker, stream_server, 9)
    stream_server.client.xtrim("s", minid="1000010-0", approximate=False)
    assert json.loads(offsets_of(maker, stream_server))["s"].startswith("1000009-0:10"), "nothing is lost"
    stream_server.client.xtrim("s", minid="1000011-0", approximate=False)
    with pytest.raises(DataLoss, match="ends at 1000009-0, and its first entry is 1000011-0: 1 entry"):
        offsets_of(maker, stream_server)
    stream_server.client.xtrim("s", minid="1000020-0", approximate=False)
    with pytest.raises(DataLoss, match="10 entries between them were trimmed before they were archived"):
        offsets_of(maker, stream_server)
    stream_server.client.xtrim("s", maxlen=0, approximate=False)
    with pytest.raises(DataLoss, match="and it is empty: 20 entries between them were trimmed"):
        offsets_of(maker, stream_server)


def test_without_counts_a_gap_is_reported_too(maker: ArchiveMaker, stream_server: StreamServer) -> None:
    stream_server.fill("s", 30)
    maker.add("s", [("1000000-0", {"n": 0})], reached={"s": "1000000-0"})  # by a server that does not count
    assert offsets_of(maker, stream_server) == '{"s": "1000000-0"}'
    stream_server.client.xtrim("s", minid="1000005-0", approximate=False)
    with pytest.raises(DataLoss, match="1000005-0: any entries between them were trimmed"):
        offsets_of(maker, stream_server)


def test_a_deleted_or_recreated_stream_is_reported(maker: ArchiveMaker, stream_server: StreamServer) -> None:
    stream_server.fill("s", 30)
    archive_up_to(maker, stream_server, 9)
    stream_server.client.delete("s")
    with pytest.raises(DataLoss, match="ends at 1000009-0, and the stream was deleted: it is not known"):
        offsets_of(maker, stream_server)
    stream_server.fill("s", 40, 100)
    with pytest.raises(DataLoss, match=r"deleted and recreated, .*\"s\": \"earliest\"}, to read all of"):
        offsets_of(maker, stream_server)


def test_the_stream_query_detects_what_happens_after_the_offsets_were_read(
    maker: ArchiveMaker, stream_server: StreamServer, follow: Follow
) -> None:
    stream_server.fill("s", 30)
    archive_up_to(maker, stream_server, 9)
    offsets = offsets_of(maker, stream_server)
    stream_server.client.xtrim("s", minid="1000020-0", approximate=False)
    with pytest.raises(DataLoss, match=r"after 1000009-0 may have been trimmed .* \(10 of them\)"):
        follow(offsets)
    assert follow(offsets, failOnDataLoss="false") == list(range(20, 30))
    stream_server.client.delete("s")
    stream_server.fill("s", 40, 100)
    with pytest.raises(DataLoss, match="deleted and recreated"):
        follow(offsets)
    assert follow(offsets, failOnDataLoss="false") == list(range(100, 140))


def test_an_archive_with_a_recreated_stream_of_lower_ids_has_no_single_end(
    maker: ArchiveMaker, stream_server: StreamServer
) -> None:
    maker.add("s", [("9000000-0", {"n": 1})], reached={"s": "9000000-0:1"})
    stream_server.fill("s", 5)
    maker.add("s", [("1000000-0", {"n": 0})], reached={"s": "1000000-0:1::1"})
    with pytest.raises(HeadraceError, match="of the earlier one up to 9000000-0, and of the present"):
        offsets_of(maker, stream_server)
    maker.add("s", [("9000001-0", {"n": 5})], reached={"s": "9000001-0:6::1"})
    stream_server.client.xadd("s", {"n": 5}, id="9000001-0")
    assert offsets_of(maker, stream_server) == '{"s": "9000001-0:6"}', "it has passed the earlier one"
