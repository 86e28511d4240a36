"""A program whose background sync fails and that is then killed: everything acknowledged is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from support.failing_sync import FailingSync
from support.waiting import wait_until

pytestmark = pytest.mark.whole

PROGRAM = Path(__file__).with_name("adding_program.py")
ADDING_THREADS = 4


@pytest.mark.parametrize("fsync", ["everysec", "no"])
@pytest.mark.parametrize("recovers", [False, True], ids=["killed at once", "killed after the rewrite"])
def test_a_kill_after_a_failed_background_sync_loses_nothing(tmp_path, fsync, recovers):
    failing = FailingSync(tmp_path)
    output = tmp_path / "output"
    data = tmp_path / "data"
    environment = os.environ | failing.environment
    environment["PYTHONPATH"] = str(Path(headrace.__file__).parent.parent)
    with output.open("wb") as file:
        command = [sys.executable, str(PROGRAM), str(data), fsync]
        process = subprocess.Popen(command, stdout=file, env=environment)
    try:
        wait_until(lambda: output.read_bytes().count(b"added") > 200 and b"acked" in output.read_bytes())
        failing.begin()
        wait_until(lambda: output.read_bytes().count(b"refused") == ADDING_THREADS)
        if recovers:
            failing.end()
            before = sorted(data.rglob("*.base.rdb"))
            wait_until(lambda: sorted(data.rglob("*.base.rdb")) != before)
    finally:
        process.kill()
        process.wait()
    lines = [line.split() for line in output.read_bytes().splitlines()]
    with headrace.open(data) as db:
        there = {entry[0] for entry in db.execute("XRANGE", "s", "-", "+")}
        pending = {entry[0] for entry in db.execute("XPENDING", "s", "g", "-", "+", 1_000_000)}
    added = {line[1] for line in lines if line[0] == b"added"}
    acknowledged = {line[1] for line in lines if line[0] == b"acked"}
    assert not added - there
    assert not acknowledged & pending
