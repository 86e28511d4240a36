"""The real redis-servers for the tests of this folder: the installed one, and a newer one of a package.

`make test` runs every test beside the installed server, and every SAMPLE-th of them beside the newer one too;
the others are slow ones. Tests that ask for `peer_8` are about what only the newer server knows.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

import pytest

from conformance.peer import Peer
from support.redis_programs import KINDS, PACKAGED, redis_program, version_of
from support.redis_server import redis_server

SAMPLE = 7


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what is not in the sample of the newer server. Each function has a test in it."""
    seen: collections.Counter[str] = collections.Counter()
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("peer") == PACKAGED:
            function = item.nodeid.partition("[")[0]
            if seen[function] % SAMPLE:
                item.add_marker("slow")
            seen[function] += 1


def start_peer(kind: str) -> Iterator[Peer]:
    """A redis-server of this kind, and the tests' connection to it."""
    with redis_server(kind=kind) as port:
        running = Peer(port, version_of(redis_program(kind)))
        yield running
        running.control.close()


@pytest.fixture(scope="session", params=KINDS, ids=["installed", "packaged"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    yield from start_peer(request.param)


@pytest.fixture(scope="session")
def peer_8() -> Iterator[Peer]:
    yield from start_peer(PACKAGED)
