"""`headrace replay` as a process, against a real server."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import time

import pytest
import redis

from headrace.cli.main import main
from support.archives import ArchiveMaker

pytestmark = pytest.mark.whole

FIRST = 1_577_836_800_000  # 2020-01-01


@pytest.fixture
def stream(client: redis.Redis) -> redis.Redis:
    """A stream `s` of 200 entries, one each 20 ms."""
    with client.pipeline(transaction=False) as pipe:
        for number in range(200):
            pipe.xadd("s", {"n": number}, id=f"{FIRST + number * 20}-0")
        pipe.execute()
    return client


def replay(url: str, *more: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "headrace",
        "replay",
        "--stream",
        "s",
        "--into",
        "t",
        "--url",
        url,
        *more,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    output, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "")
    return output


def numbers(client: redis.Redis, stream: str = "t") -> list[int]:
    return [int(fields["n"]) for _, fields in client.xrange(stream)]


def test_a_replay_prints_a_report(server_url: str, stream: redis.Redis, tmp_path: pathlib.Path) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("s", [(f"{FIRST - 1000 + n}-0", {"n": n - 10}) for n in range(10)])
    output = finished(replay(server_url, "--archive", str(maker.directory), "--to", f"{FIRST + 1980}"))
    assert "110 entries added to stream t with the IDs they had" in output
    assert "Their times are 2019-12-31 23:59:59 to 2020-01-01 00:00:01" in output
    assert numbers(stream) == list(range(-10, 100))
    output = finished(replay(server_url, "--from", "2020-01-01T00:00:03.980Z"))
    assert "1 entry added to stream t with new IDs" in output
    assert numbers(stream)[110:] == [199]


def test_ctrl_c_leaves_whole_entries_and_the_same_command_continues(
    server_url: str, stream: redis.Redis
) -> None:
    process = replay(server_url, "--speed", "0.5", "--new-ids")
    deadline = time.monotonic() + 60
    while stream.xlen("t") < 20:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert error.strip() == "headrace: interrupted"
    assert "; the same command continues" in output
    there = stream.xlen("t")
    assert 20 <= there < 200 and f"{there} entries added, up to {FIRST + (there - 1) * 20}-0" in output

    output = finished(replay(server_url, "--new-ids"))
    assert f"Continued after {FIRST + (there - 1) * 20}-0" in output
    assert numbers(stream) == list(range(200))
    output = finished(replay(server_url, "--new-ids"))
    assert "is complete up to" in output and "--restart replays it again" in output
    assert numbers(stream) == list(range(200))
    stream.xadd("s", {"n": 200})
    output = finished(replay(server_url, "--new-ids"))
    assert f"Newer entries are not part of it: --from {FIRST + 199 * 20}-1 replays them" in output
    finished(replay(server_url, "--new-ids", "--from", f"{FIRST + 199 * 20}-1"))
    assert numbers(stream) == list(range(201))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--speed", "fast"), "--speed fast"),
        (("--speed", "0"), "--speed 0"),
        (("--from", "yesterday"), "neither an ID nor a time: 'yesterday'"),
        (("--speed", "-1"), "--speed -1"),
        (("--speed", "nan"), "--speed nan"),
        (("--from", "2020-01-02", "--to", "2020-01-01"), "--from 2020-01-02 is not before --to 2020-01-01"),
        (("--from", "2020-01-02", "--to", "2020-01-02"), "--from 2020-01-02 is not before --to 2020-01-02"),
        (("--to", "0-0"), "--from 0-0 is not before --to 0-0"),
        (("--archive-only",), "--archive-only needs an --archive"),
        (("--into", "s"), "--into s is the stream itself: --new-ids adds its entries once more"),
        (("--archive", "/nowhere"), "/nowhere: there is no archive"),
    ],
)
def test_bad_input_prints_one_line_and_exits_with_2(
    server_url: str, client: redis.Redis, more: tuple[str, ...], message: str
) -> None:
    process = replay(server_url, *more)
    output, error = process.communicate(timeout=60)
    assert (process.returncode, output) == (2, "")
    assert error.startswith("headrace: ") and message in error and error.count("\n") == 1
    assert client.keys() == []


def test_an_archive_is_not_replayed_into_its_own_stream_unless_asked_for(
    server_url: str, stream: redis.Redis, tmp_path: pathlib.Path
) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("s", [(f"{FIRST + n * 20}-0", {"n": n}) for n in range(200)])
    for more in ((), ("--archive-only",), ("--to-url", server_url)):
        process = replay(server_url, "--into", "s", "--archive", str(maker.directory), *more)
        output, error = process.communicate(timeout=60)
        assert (process.returncode, output) == (2, "") and "--into s is the stream itself" in error
    assert numbers(stream, "s") == list(range(200))


def test_a_long_name_is_printed_in_one_line_and_suggested_for_a_typo(
    server_url: str, stream: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    into = "copy" * 30
    assert main(["replay", "--stream", "s", "--into", into, "--url", server_url]) == 0
    assert f"200 entries added to stream {into} with the IDs they had" in capsys.readouterr().out
    assert main(["replay", "--stream", into[1:], "--into", "t", "--url", server_url]) == 2
    assert (
        f"there is no stream {into[1:]!r} in {server_url}; did you mean {into!r}?" in capsys.readouterr().err
    )
