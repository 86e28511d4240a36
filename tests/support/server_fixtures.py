"""Fixtures for conftest.py: real servers, and one Spark session for each module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.stream_server import StreamServer, running

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
    """An empty server. Each test that uses it runs with redis-server and with headrace."""
    running_server.client.flushall()
    return running_server


@pytest.fixture(scope="module")
def headrace_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamServer]:
    """A Headrace server, for commands that only it has."""
    with running("headrace", tmp_path_factory.mktemp("headrace")) as server:
        yield server


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores and a new warehouse."""
    from spark.spark_child import session  # PySpark is imported only by tests that use it

    made = session(str(tmp_path_factory.mktemp("warehouse")))
    yield made
    made.stop()
