"""Fixtures for conftest.py: real servers to read and write streams, and one Spark session a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from stream_server import StreamServer, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", params=["redis", "headrace"])
def running_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamServer]:
    with running(request.param, tmp_path_factory.mktemp(request.param)) as server:
        yield server


@pytest.fixture
def stream_server(running_server: StreamServer) -> StreamServer:
    """An empty server; every test that asks for it runs against redis-server and against headrace."""
    running_server.client.flushall()
    return running_server


@pytest.fixture(scope="module")
def headrace_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamServer]:
    """Headrace, for what no other server can do."""
    with running("headrace", tmp_path_factory.mktemp("headrace")) as server:
        yield server


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two cores in a warehouse of its own."""
    from spark_child import session  # Spark is only loaded where it is wanted

    made = session(str(tmp_path_factory.mktemp("warehouse")))
    yield made
    made.stop()
