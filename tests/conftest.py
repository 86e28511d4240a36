"""A real redis-server for tests that only need one to talk to: on a free port, gone afterwards.

And nothing that fails because a machine is slow: neither an example of Hypothesis's nor the making of one.
Nor because tests run in the background, where a shell has its programs ignore ^C: what tests start heeds it.
"""

import logging
import signal
import sys
import warnings
from collections.abc import Iterator

import pytest
import redis
from hypothesis import HealthCheck, settings

from redis_server import redis_server

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Packages that are not compiled.
PLAIN_PACKAGES = {"bench", "cli", "client", "console", "examples", "pipeline"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of plain Python, and begin with the slow ones: no long file is left to the end."""
    for item in items:
        if item.path.parent.name in PLAIN_PACKAGES:
            item.add_marker("plain")
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("slow", "whole")])


@pytest.fixture(autouse=True)
def log_propagates() -> None:
    """A server in this process keeps its log to itself; the next test may look at the log with caplog."""
    logging.getLogger("headrace").propagate = True


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
