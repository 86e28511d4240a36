"""A query killed, cut off and started again: every row is in the stream once, those of a file in order."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from spark.spark_workers import workers_below
from support.flaky_proxy import Cut, FlakyProxy
from support.stream_server import StreamServer

pytestmark = [pytest.mark.whole, pytest.mark.slow]

FILES = 12
ROWS = 1500


def fill(folder: pathlib.Path) -> None:
    """Files of different lengths: Spark sorts them by size, and must do so each time alike."""
    folder.mkdir()
    for file in range(FILES):
        rows = "".join(f"{file},{n}\n" for n in range(ROWS + 10 * file))
        (folder / f"{file:02}.csv").write_text(rows)


class Runs:
    """Runs of the query, one after the other."""

    def __init__(self, url: str, folder: pathlib.Path, way: str) -> None:
        self._words = [
            sys.executable,
            str(pathlib.Path(__file__).with_name("sink_child.py")),
            url,
            str(folder),
            way,
        ]
        self._commits = folder / "checkpoint" / "commits"
        self._log = folder / "log"

    def commits(self) -> int:
        """How many batches are done."""
        return sum(name.isdigit() for name in os.listdir(self._commits)) if self._commits.exists() else 0

    def run(self, *, driver_dies_after: int = FILES, kill_workers: int = 0) -> tuple[int, int]:
        """(exit code, workers killed) of one run."""
        killed = 0
        with self._log.open("ab") as log:
            child = subprocess.Popen(self._words, start_new_session=True, stdout=log, stderr=log)
        deadline = time.monotonic() + 400
        try:
            while child.poll() is None:
                assert time.monotonic() < deadline, "the query does not end"
                if self.commits() >= driver_dies_after:
                    break
                if killed < kill_workers:
                    for worker in workers_below(child.pid)[:1]:
                        os.kill(worker, signal.SIGKILL)
                        killed += 1
                        time.sleep(0.2)
                time.sleep(0.02)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        return child.returncode, killed


@pytest.mark.parametrize(
    ("running_server", "way"),
    [
        pytest.param("redis", "sink", marks=pytest.mark.mainly("headrace")),
        ("headrace", "sink"),
        pytest.param("redis", "foreach", marks=pytest.mark.mainly("headrace")),
    ],
    indirect=["running_server"],
)
def test_every_row_is_added_once_and_in_order_after_all_kinds_of_kills(
    stream_server: StreamServer, tmp_path: pathlib.Path, way: str
) -> None:
    fill(tmp_path / "in")
    cuts = [Cut(up=n) if n % 2 else Cut(down=n // 4) for n in range(5_000, 60_000, 4_321)]
    proxy = FlakyProxy(stream_server.port, cuts)
    runs = Runs(proxy.url, tmp_path, way)
    if way == "sink":
        code, _ = runs.run(driver_dies_after=2)
        assert code == -signal.SIGKILL and runs.commits() < FILES // 2
    else:
        code, _ = runs.run()
        assert code == 1 and "failed after it had written" in (tmp_path / "log").read_text(errors="replace")
    killed = 0
    for attempt in range(4):
        code, n = runs.run(kill_workers=4 if attempt == 0 else 0)
        killed += n
        if code == 0:
            break
    # Spark's source of files joins two batches to one when its driver died between their two logs.
    assert code == 0 and killed > 0 and FILES // 2 - 1 <= runs.commits() <= FILES // 2
    assert proxy.connections > len(cuts), "the cuts were not met"
    proxy.close()
    assert rows_of(stream_server) == {file: list(range(ROWS + 10 * file)) for file in range(FILES)}


def rows_of(server: StreamServer) -> dict[int, list[int]]:
    """For each file its rows in the stream."""
    found: dict[int, list[int]] = {}
    for _, fields in server.client.xrange("out"):
        found.setdefault(int(fields[b"file"]), []).append(int(fields[b"n"]))
    return found


@pytest.mark.parametrize("running_server", ["redis"], indirect=True)
def test_a_batch_overwrites_a_stream_or_is_appended(
    stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    fill(tmp_path / "in")
    stream_server.client.xadd("out", {"file": 99, "n": 0})
    assert Runs(stream_server.url, tmp_path, "batch").run()[0] == 0, (tmp_path / "log").read_text()
    assert rows_of(stream_server) == {0: list(range(ROWS)), 1: list(range(ROWS + 10))}
