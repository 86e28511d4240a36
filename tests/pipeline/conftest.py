"""Real servers for the jobs: each test that asks for stream_server runs against redis-server and headrace."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent / "spark"))

from stream_server import StreamServer, free_port, start_server


@pytest.fixture(scope="session", params=["redis", "headrace"])
def running_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamServer]:
    port = free_port()
    process = start_server(request.param, port, tmp_path_factory.mktemp(request.param))
    yield StreamServer(port)
    process.terminate()
    process.wait(10)


@pytest.fixture
def stream_server(running_server: StreamServer) -> StreamServer:
    """An empty server."""
    running_server.client.flushall()
    return running_server
