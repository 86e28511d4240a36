"""A real redis-server for the tests of this folder; they are skipped only where none is installed."""

import pytest
from peer import Peer

from redis_server import redis_server


@pytest.fixture(scope="session")
def peer():
    with redis_server() as port:
        running = Peer(port)
        yield running
        running.control.close()
