"""What a test sees of a running server: that something comes about, and what INFO says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SECONDS_MAX = 30.0


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for what another thread, or process, is about to do."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def info(client: Any) -> dict[str, str]:
    """The fields of INFO persistence."""
    lines = client.request("INFO", "persistence").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
