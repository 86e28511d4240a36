"""A clock before 1970: IDs stay small, and time goes on."""

from __future__ import annotations

import time

from headrace.api.local.clock import SystemClock
from headrace.engine.engine import Engine


def test_ids_made_before_1970_go_on_from_the_last_one():
    engine = Engine()
    session = engine.create_session()
    for now in (-5_000_000, -4_999_999, 0):
        engine.execute(session, [b"XADD", b"s", b"*", b"f", b"v"], now)
    assert session.reply.take() == b"$3\r\n0-1\r\n$3\r\n0-2\r\n$3\r\n0-3\r\n"
    engine.execute(session, [b"XADD", b"s", b"*", b"f", b"v"], 1_700_000_000_000)
    assert session.reply.take() == b"$15\r\n1700000000000-0\r\n"


def test_the_library_counts_on_when_the_clock_is_before_1970(monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: -86_400_000_000_000)
    clock = SystemClock()
    first = clock.now_ms()
    assert 0 <= first <= clock.now_ms() <= time.monotonic_ns() // 1_000_000
