"""A task's memory does not depend on how long its range is: it has 512 MB, and takes far less.

A million entries; ten with HEADRACE_LONG=1 in the environment.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from support.stream_server import StreamServer

pytestmark = [pytest.mark.whole, pytest.mark.slow]

ENTRIES = {"short": 200_000, "long": 10_000_000 if os.environ.get("HEADRACE_LONG") else 1_000_000}
TEXT = "x" * 100
MORE = 48 << 20  # bytes that a worker may grow by: less than half of what the longer stream's text has


def fill(server: StreamServer) -> None:
    command = ["redis-cli", "-p", str(server.port), "--pipe"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as pipe:
        assert pipe.stdin is not None
        for stream, count in ENTRIES.items():
            for n in range(count):
                pipe.stdin.write(
                    b"XADD %s %d-0 n %d text %s\r\n" % (stream.encode(), n + 1, n, TEXT.encode())
                )


@pytest.mark.mainly("redis")
def test_a_long_stream_takes_no_more_memory_than_a_short_one(
    stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    fill(stream_server)
    ways = ["resp"]
    if stream_server.client.execute_command("COMMAND INFO", "XARROW")[0] is not None:
        ways.append("arrow")
    words = [
        sys.executable,
        str(pathlib.Path(__file__).with_name("memory_child.py")),
        stream_server.url,
        str(tmp_path),
        *ways,
    ]
    with (tmp_path / "log").open("wb") as log:
        ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=log, timeout=600)
    assert ran.returncode == 0, (tmp_path / "log").read_text(errors="replace")[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert list(found) == ways
    for short, long in found.values():
        assert short[:2] == [ENTRIES["short"], sum(range(ENTRIES["short"]))]
        assert long[:2] == [ENTRIES["long"], sum(range(ENTRIES["long"]))]
        assert long[2] - short[2] < MORE, found
