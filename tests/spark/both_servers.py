"""The fixture stream_server, for conftest.py: who asks for it runs against redis-server and headrace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
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
    """An empty server; every test that asks for it runs against redis-server and against headrace."""
    running_server.client.flushall()
    return running_server
