"""DuckDB, Polars and pandas read an archive while a job writes it and is killed: they see whole batches."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars
import pytest
import redis
from deltalake import DeltaTable

pytestmark = [pytest.mark.whole, pytest.mark.slow]

ENTRIES = 2000
BATCH = 50
EVERY_MS = 2 * 3_600_000  # a batch has entries of five days, and so several files
KILLS = 2


def read_by_pandas(directory: Path) -> list[int]:
    return DeltaTable(directory).to_pandas(columns=["n"])["n"].tolist()  # type: ignore[no-any-return]


def read_by_polars(directory: Path) -> list[int]:
    return polars.scan_delta(str(directory)).select("n").collect()["n"].to_list()


def read_by_duckdb(directory: Path) -> list[int]:
    rows = duckdb.from_arrow(DeltaTable(directory).to_pyarrow_dataset())
    return [n for (n,) in rows.project("n").fetchall()]


READERS: list[Callable[[Path], list[int]]] = [read_by_pandas, read_by_polars, read_by_duckdb]


def start_job(url: str, directory: Path) -> subprocess.Popen[bytes]:
    words = f"--stream s --url {url} --batch {BATCH}".split()
    return subprocess.Popen(
        [sys.executable, "-m", "headrace", "archive", *words, "--fields", "n INT", "--to", str(directory)],
        env=os.environ | {"TMPDIR": str(directory.parent)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def counts_of_versions(directory: Path) -> set[int]:
    """Return the number of entries of each version of the table."""
    last = DeltaTable(directory).version()
    return {DeltaTable(directory, version=version).count() for version in range(last + 1)}


def test_other_programs_see_whole_batches_of_a_job_that_is_killed(
    tmp_path: Path, server_url: str, client: redis.Redis
) -> None:
    with client.pipeline(transaction=False) as pipe:
        for n in range(ENTRIES):
            pipe.xadd("s", {"n": n}, f"{n * EVERY_MS}-1")
        pipe.execute()
    directory = tmp_path / "archive"
    choose = random.Random(19)
    seen: list[list[int]] = []
    readers = itertools.cycle(READERS)

    def read_until(job: subprocess.Popen[bytes], entries: int) -> None:
        while job.poll() is None and (not seen or len(seen[-1]) < entries):
            if DeltaTable.is_deltatable(str(directory)):
                seen.append(next(readers)(directory))

    for _ in range(KILLS):
        job = start_job(server_url, directory)
        read_until(job, (len(seen[-1]) if seen else 0) + BATCH * choose.randrange(1, 12))
        assert job.poll() is None, "the job ended before it was killed"
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        seen += [read(directory) for read in READERS]
    job = start_job(server_url, directory)
    read_until(job, ENTRIES + 1)
    assert job.returncode == 0

    committed = counts_of_versions(directory)
    assert ENTRIES in committed and 0 in committed
    for rows in seen:
        assert sorted(rows) == list(range(len(rows))) and len(rows) in committed
    assert len({len(rows) for rows in seen}) > KILLS
    for read in READERS:
        assert sorted(read(directory)) == list(range(ENTRIES))
