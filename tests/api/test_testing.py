"""The fixtures that projects get: an empty database each, a clock that moves it, a client that shares it."""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import sys
import threading
import tomllib
from typing import Any

import pytest
import redis

import headrace
from headrace.api.local.clock import ManualClock

pytest_plugins = ["pytester", "headrace.testing"]


def wait_for_sleeper(clock: ManualClock, asleep: threading.Thread) -> None:
    while not clock.sleeping_threads():
        assert asleep.is_alive(), "it never slept"


def test_a_minute_passes_when_the_test_says_so(headrace_db: Any, headrace_clock: ManualClock) -> None:
    orders = headrace_db.stream("orders")
    first, second = orders.add({"n": 1}), orders.add({"n": 2})
    assert first.ms == second.ms == headrace_clock.now_ms()
    headrace_clock.advance(minutes=1)
    assert orders.add({"n": 3}).ms == first.ms + 60_000


def test_a_stream_expires(headrace_db: Any, headrace_clock: ManualClock) -> None:
    orders = headrace_db.stream("orders")
    orders.add({"n": 1})
    headrace_db.execute("PEXPIRE", "orders", 600_000)
    headrace_clock.advance(minutes=9.99)
    assert len(orders) == 1
    headrace_clock.advance(minutes=0.02)
    assert len(orders) == 0


def test_what_a_consumer_left_behind_can_be_claimed(headrace_db: Any, headrace_clock: ManualClock) -> None:
    headrace_db.stream("orders").add({"n": 1})
    headrace_db.execute("XGROUP", "CREATE", "orders", "billing", "0")
    headrace_db.execute("XREADGROUP", "GROUP", "billing", "dead", "STREAMS", "orders", ">")
    claim = ("XAUTOCLAIM", "orders", "billing", "alive", 600_000, 0)
    assert headrace_db.execute(*claim)[1] == []
    headrace_clock.advance(minutes=10)
    ((_, fields),) = headrace_db.execute(*claim)[1]
    assert fields == [b"n", b"1"]


def test_a_blocked_read_ends_when_its_time_has_come(headrace_db: Any, headrace_clock: ManualClock) -> None:
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(headrace_db.stream("orders").read(block=30)))
    reader.start()
    wait_for_sleeper(headrace_clock, reader)
    headrace_clock.advance(seconds=29)
    assert reader.is_alive()
    headrace_clock.advance(seconds=1)
    reader.join(10)
    assert found == [[]]


def test_the_client_sees_what_the_database_holds(headrace_db: Any, headrace_client: redis.Redis) -> None:
    headrace_db.stream("orders").add({"item": "pear"})
    ((_, fields),) = headrace_client.xrange("orders")
    assert fields == {"item": "pear"}
    headrace_client.xadd("orders", {"item": "fig"})
    assert len(headrace_db.stream("orders")) == 2


def test_each_test_has_a_database_of_its_own(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The path that this process has may be a relative one.
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(headrace.__file__).parents[1]))
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("n", range(3))
        def test_it_is_empty(headrace_db, headrace_client, headrace_clock, n):
            assert headrace_client.dbsize() == 0
            headrace_client.set("n", n)
            headrace_clock.advance(days=n)

        def test_it_is_closed_afterwards(headrace_db):
            global kept
            kept = headrace_db

        def test_as_this_one_sees():
            with pytest.raises(Exception) as closed:
                kept.execute("PING")
            assert "closed" in str(closed.value)
        """
    )
    pytester.runpytest_subprocess("-p", "headrace.testing").assert_outcomes(passed=5)


def test_whoever_has_the_package_has_the_fixtures() -> None:
    """As pytest finds them: by the entry point that pyproject.toml declares."""
    project = tomllib.loads((pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"]["pytest11"]
    assert declared == {"headrace.testing": "headrace.testing"}, "the same name as by -p: never twice"


def test_the_plugin_loads_nothing_that_a_stranger_would_wait_for() -> None:
    code = "import sys, headrace.testing; print(*sorted(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(said.stdout.split())
    assert "headrace.api.local.clock" in loaded
    heavy = {"redis", "asyncio", "headrace.engine.engine", "headrace.api.database", "pyspark", "rich"}
    assert not heavy & loaded - baseline()


def baseline() -> set[str]:
    """What pytest itself loads."""
    code = "import sys, pytest; print(*sys.modules)"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_without_pytest_it_is_two_lines() -> None:
    clock = importlib.import_module("headrace.testing").ManualClock()
    with headrace.open(clock=clock) as db:
        clock.advance(hours=1)
        assert db.stream("orders").add({"n": 1}).ms == clock.now_ms()
