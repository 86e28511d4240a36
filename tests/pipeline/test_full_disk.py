"""A server with a full disk: every job that writes reports it, and is exact when it is continued."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import redis

from headrace.archive.watermark import lowest_published_id
from headrace.archive.watermark_publisher import WatermarkPublisher
from headrace.cli.main import main
from headrace.errors import CommandError, HeadraceError
from headrace.pipeline.replaying.replay_entries import replay_entries
from headrace.pipeline.replaying.source import ReplaySource
from headrace.positions.position import Position
from headrace.spark.sink.marker import Marker
from headrace.spark.sink.sender import write_batches
from support.archives import ArchiveMaker
from support.redis_server import free_port
from support.stream_server import StreamServer, start_server
from support.waiting import wait_until

FULL = "MISCONF .*No space left on device"
ROWS = 400
TEXT = "x" * 5000


class FullDisk:
    """A server with its log on a small disk, and a file that fills the disk."""

    def __init__(self, directory: Path, server: StreamServer) -> None:
        self.server = server
        self._ballast = directory / "ballast"

    def fill(self) -> None:
        """Fill the disk except for 100 KB."""
        free = shutil.disk_usage(self._ballast.parent).free
        self._ballast.write_bytes(bytes(max(0, free - 100_000)))

    def make_room(self) -> None:
        """Free the disk, and wait until the server writes again."""
        self._ballast.unlink()
        wait_until(self._accepts_writes, "the server to write again")

    def _accepts_writes(self) -> bool:
        try:
            return bool(self.server.client.set("room", "yes"))
        except redis.ResponseError:
            return False


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[FullDisk]:
    directory = tmp_path / "small"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip("no small file system can be mounted")
    port = free_port()
    process = start_server("headrace", port, directory, "--appendfsync", "always")
    try:
        yield FullDisk(directory, StreamServer(port))
    finally:
        process.kill()
        process.wait(10)
        subprocess.run(["umount", "-l", str(directory)], check=True)


def numbers(server: StreamServer, stream: str) -> list[int]:
    return [int(fields[b"n"]) for _, fields in server.client.xrange(stream)]


def test_a_load_reports_a_full_disk_and_can_be_resumed(
    full_disk: FullDisk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("n,text\n" + "".join(f"{n},{TEXT}\n" for n in range(ROWS)))
    words = ["load", str(path), "--stream", "s", "--url", full_disk.server.url, "--batch", "10"]
    full_disk.fill()
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "No space left on device" in error and "Timeout" not in error and error.count("\n") == 1
    there = len(numbers(full_disk.server, "s"))
    assert there < ROWS and f"{there} rows loaded; the same command with --resume adds the others" in error
    full_disk.make_room()
    assert main([*words, "--resume"]) == 0
    assert numbers(full_disk.server, "s") == list(range(ROWS))


def test_a_replay_reports_a_full_disk_and_can_be_continued(full_disk: FullDisk, tmp_path: Path) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("s", [(f"{n + 1}-0", {"n": n, "text": TEXT}) for n in range(ROWS)])
    source = ReplaySource("s", None, tmp_path / "archive")
    full_disk.fill()
    with pytest.raises(CommandError, match=FULL):
        replay_entries(source, full_disk.server.url, "t", name="x")
    full_disk.make_room()
    replay_entries(source, full_disk.server.url, "t", name="x")
    assert numbers(full_disk.server, "t") == list(range(ROWS))


@pytest.mark.parametrize("marker", [None, Marker("q")])
def test_the_sink_reports_a_full_disk(full_disk: FullDisk, marker: Marker | None) -> None:
    batch = pa.record_batch({"n": list(range(ROWS)), "text": [TEXT] * ROWS})
    full_disk.fill()
    with pytest.raises(CommandError, match=FULL):
        write_batches([batch], full_disk.server.url, "s", marker)


def test_an_archive_reports_that_its_watermark_cannot_be_written(full_disk: FullDisk) -> None:
    watermark = WatermarkPublisher(full_disk.server.url, "main", "/lake/main")
    full_disk.fill()
    with pytest.raises(CommandError, match=FULL):
        write_batches([pa.record_batch({"text": [TEXT] * ROWS})], full_disk.server.url, "s")
    with pytest.raises(HeadraceError, match=f"'s' is archived up to 5-0.*{FULL}.*archive job again"):
        watermark.publish({"s": Position("5-0")})
    full_disk.make_room()
    watermark.publish({"s": Position("5-0")})
    assert lowest_published_id(full_disk.server.client, "s") == "5-0"
    watermark.close()
