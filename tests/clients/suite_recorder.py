"""A plugin of pytest for redis-py's own tests: writes the result of each test to the file SUITE_RESULTS."""

from __future__ import annotations

import json
import os
import tracemalloc
from typing import Any

import pytest

results: dict[str, list[str]] = {}  # outcome and message by the test's ID

# redis-py's tests trace allocations all the time, which makes them several times as slow.
tracemalloc.start = lambda *frames: None  # type: ignore[assignment]
tracemalloc.stop = lambda: None  # type: ignore[assignment]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the worst outcome of the phases of a test."""
    if report.when == "call" or report.outcome != "passed":
        longer: Any = report.longrepr
        message = longer[2] if isinstance(longer, tuple) else str(longer or "")
        results.setdefault(report.nodeid, [report.outcome, message[-2000:]])


def pytest_sessionfinish() -> None:
    with open(os.environ["SUITE_RESULTS"], "w") as file:
        json.dump(results, file)
