"""`headrace archive` as a process, against a real server."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.dataset
import pytest
import redis
from deltalake import DeltaTable

from headrace.archive.creation import create_or_open
from headrace.archive.location import archive_location
from headrace.archive.watermark import lowest_published_id
from support.archives import counted_entries

pytestmark = [pytest.mark.whole, pytest.mark.slow]

ENTRIES = 20_000
STEP_MS = 60_000
STARTING = "Starting Spark…\n"


@pytest.fixture
def stream(client: redis.Redis) -> redis.Redis:
    """A stream `s` of an entry a minute from 2020 on."""
    with client.pipeline(transaction=False) as pipeline:
        for number in range(ENTRIES):
            pipeline.xadd(
                "s", {"n": number, "odd": number % 2}, id=f"{1_577_836_800_000 + number * STEP_MS}-0"
            )
        pipeline.execute()
    return client


def archive(
    url: str, directory: Path, *more: str, streams: tuple[str, ...] = ("--stream", "s")
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headrace", "archive", *streams, "--to", str(directory)]
    # A killed process cannot tidy up: what it leaves is left in the test's own directory.
    environment = os.environ | {"TMPDIR": str(directory.parent)}
    return subprocess.Popen(
        [*command, "--url", url, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )


def finished(process: subprocess.Popen[str]) -> str:
    """The output of a process that must succeed and announce nothing but Spark on stderr."""
    output, error = process.communicate(timeout=500)
    assert (process.returncode, error) == (0, STARTING)
    return output


def test_an_archive_that_was_killed_and_run_again_is_exact(
    tmp_path: Path, server_url: str, stream: redis.Redis
) -> None:
    directory = tmp_path / "archive"
    process = archive(server_url, directory, "--fields", "n INT, odd INT", "--batch", "4000")
    deadline = time.monotonic() + 300
    while not (directory / "_delta_log" / f"{2:020}.json").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=10)

    output = finished(archive(server_url, directory, "--fields", "n INT, odd INT", "--batch", "4000"))
    assert f"The archive holds {ENTRIES:,} entries of 14 days" in output
    assert len(counted_entries(directory)) == counted_entries(directory).total() == ENTRIES

    stream.xadd("s", {"n": ENTRIES, "odd": 0})
    output = finished(archive(server_url, directory, "--fields", "n INT, odd INT"))
    assert "1 entry written" in output
    assert f"holds {ENTRIES + 1:,} entries of 15 days" in output


def test_fields_are_maps_by_default_and_days_begin_in_the_given_time_zone(
    tmp_path: Path, server_url: str, client: redis.Redis
) -> None:
    client.xadd("s", {"a": "1", "b": "é"}, id="1577880000000-7")  # 2020-01-01T12:00:00Z
    output = finished(archive(server_url, tmp_path / "archive", "--time-zone", "Pacific/Auckland"))
    assert "holds 1 entry of 1 day" in output
    table = pyarrow.dataset.dataset(tmp_path / "archive" / "stream=s" / "date=2020-01-02").to_table()
    assert table.select(["id", "sequence", "fields"]).to_pylist() == [
        {"id": "1577880000000-7", "sequence": 7, "fields": [("a", "1"), ("b", "é")]}
    ]
    other = archive(server_url, tmp_path / "archive", "--fields", "a INT")
    _, error = other.communicate(timeout=400)
    assert other.returncode == 2
    error = error.removeprefix(STARTING)
    assert (
        error.startswith("headrace: ") and "other fields (all in one map)" in error and error.count("\n") == 1
    )


def test_follow_archives_streams_that_match_a_pattern_until_sigterm(
    tmp_path: Path, server_url: str, client: redis.Redis
) -> None:
    client.xadd("orders.a", {"n": 1, "day": "2020-01-01"}, id="1577880000000-0")
    fields = "infer, day STRING, note STRING"
    words = ["--pattern", r"orders\..*", "--fields", fields, "--follow", "--every", "0.1"]
    process = archive(server_url, tmp_path / "archive", *words, streams=())

    def archived(stream: str, entry_id: str) -> None:
        deadline = time.monotonic() + 300
        while lowest_published_id(client, stream) != entry_id:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)

    archived("orders.a", "1577880000000-0")
    client.xadd("orders.b", {"n": 2}, id="1577880000001-0")
    archived("orders.b", "1577880000001-0")
    process.send_signal(signal.SIGTERM)
    output = finished(process)
    assert "Fields: `n` BIGINT, `day` STRING, `note` STRING" in output and "2 entries written" in output
    table = DeltaTable(tmp_path / "archive").to_pyarrow_table()
    rows = table.sort_by("id").select(["stream", "n", "day", "note", "_exact"]).to_pylist()
    assert rows == [
        {"stream": "orders.a", "n": 1, "day": "2020-01-01", "note": None, "_exact": None},
        {"stream": "orders.b", "n": 2, "day": None, "note": None, "_exact": None},
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no streams given: use --stream"),
        (("--stream", "missing"), "there is no stream 'missing'"),
        (("--pattern", "missing"), "no stream matches 'missing'"),
        (("--stream", "s", "--fields", "infer"), "there are no entries to infer fields from"),
    ],
)
def test_bad_input_prints_one_line_and_exits_with_2(
    words: tuple[str, ...], message: str, tmp_path: Path, server_url: str, client: redis.Redis
) -> None:
    client.xgroup_create("s", "g", mkstream=True)
    process = archive(server_url, tmp_path / "archive", *words, streams=())
    output, error = process.communicate(timeout=400)
    assert (process.returncode, output, error.count("\n")) == (2, "", 1)
    assert error.startswith("headrace: ") and message in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fields", "n"], "not a list of columns"),
        (["--fields", "date INT"], "cannot be a column"),
        (["--fields", "n INT"], "was written with other fields"),
        (["--time-zone", "Asia/Tokyo"], "has days of time zone UTC"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(
    tmp_path: Path, server_url: str, client: redis.Redis, options: list[str], message: str
) -> None:
    client.xadd("s", {"n": 1})
    create_or_open(archive_location(tmp_path), None, "UTC")
    output, error = archive(server_url, tmp_path, *options).communicate(timeout=60)
    assert message in error and STARTING not in error and output == ""
