"""How long a lost server is waited for."""

from __future__ import annotations

import pytest
import redis

from headrace.client import retrying
from headrace.client.retrying import ReconnectDelay


def test_pauses_double_and_start_again_after_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(retrying.time, "sleep", sleep)
    monkeypatch.setattr(retrying.time, "monotonic", lambda: now[0])
    lost = redis.ConnectionError("gone")

    def failing() -> None:
        raise lost

    with pytest.raises(redis.ConnectionError, match="gone"):
        retrying.retry_while_lost(10, failing)
    assert sum(naps) == pytest.approx(10) and naps == sorted(naps[:-1]) + naps[-1:]
    waiting = ReconnectDelay(10)
    for _ in range(3):
        waiting.wait_or_raise(lost)
    waiting.reset()
    waiting.wait_or_raise(lost)
    assert naps[-1] == naps[0] < naps[-2]
