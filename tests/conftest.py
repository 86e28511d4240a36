"""Fixtures and settings of all tests.

- a real redis-server on a free port, for tests that only need a server to talk to
- Hypothesis without deadlines: no test fails because a machine is slow
- Python's recursion limit as it is at the start
- SIGINT handled as in a foreground job: a shell starts background jobs with SIGINT ignored
- the order of the tests, and the markers that tests/conftest.py sets or reads
"""

import gc
import logging
import os
import pathlib
import signal
import sys
import warnings
from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, settings

from support.redis_server import redis_server

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("patient"), derandomize=True)
settings.load_profile("patient" if "HEADRACE_RANDOM" in os.environ else "repeatable")

TESTS = pathlib.Path(__file__).parent
RECURSION_LIMIT = sys.getrecursionlimit()  # of Python, as most programs have it

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Tests of data structures and commands: `make test` runs them interpreted, where each index is checked, and
# `make test-all` compiled. All others run once, as installed.
UNIT_PACKAGES = {
    "arrow",
    "commands",
    "engine",
    "fuzz",
    "keyspace",
    "models",
    "persistence",
    "resp",
    "streams",
    "structures",
}


def is_long_variant(item: pytest.Item) -> bool:
    """Return whether the test runs against another server than the one that its marker `mainly` names."""
    marker = item.get_closest_marker("mainly")
    return marker is not None and marker.args[0] not in item.name.partition("[")[2]


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    """Look for units in their folders only: the others import PySpark, in each worker."""
    units = config.option.markexpr.startswith("unit ")
    elsewhere = collection_path.parent == TESTS and collection_path.name not in UNIT_PACKAGES
    return True if units and elsewhere else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of units, deselect the long variants, and start the slow tests first."""
    for item in items:
        once = item.get_closest_marker("whole") or item.get_closest_marker("compiled")
        if item.path.parent.name in UNIT_PACKAGES and not once:
            item.add_marker("unit")
    if not os.environ.get("HEADRACE_LONG"):
        deselected = [item for item in items if is_long_variant(item)]
        items[:] = [item for item in items if not is_long_variant(item)]
        if deselected:
            deselected[0].config.hook.pytest_deselected(items=deselected)
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("slow", "whole")])


@pytest.fixture(autouse=True)
def log_propagates() -> None:
    """A server in this process keeps its log to itself; the next test may look at the log with caplog."""
    logging.getLogger("headrace").propagate = True


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """As pytest's, after tasks of earlier tests were deleted: asyncio logs about some of them then."""
    gc.collect()
    return caplog


@pytest.fixture(autouse=True)
def usual_recursion_limit() -> None:
    """Tests of deep input expect Python's limit, which Hypothesis, among others, raises in this process."""
    if sys.getrecursionlimit() != RECURSION_LIMIT:
        sys.setrecursionlimit(RECURSION_LIMIT)


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    with redis_server() as port:
        yield f"redis://127.0.0.1:{port}"


@pytest.fixture
def client(server_url: str) -> Iterator[redis.Redis]:
    """A client of the server, which is empty."""
    with redis.Redis.from_url(server_url, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture(scope="module", autouse=True)
def no_spark_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """There is one Spark session a process: a module that leaves its own would be the next one's trouble."""
    yield
    spark = sys.modules.get("pyspark")
    left = None if spark is None else spark.SparkContext._active_spark_context
    if left is not None:
        warnings.warn(f"{request.node.name} left a Spark session", stacklevel=1)
        left.stop()
