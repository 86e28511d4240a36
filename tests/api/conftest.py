"""The fixture `database`: every test that asks for it runs near, on a Headrace server and on redis-server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

import headrace
from headrace.api.backend import Stop
from headrace.api.local.clock import ManualClock
from support.headrace_server import headrace_server

SECONDS_MAX = 20.0  # for what happens at once unless something is broken


@pytest.fixture(scope="session")
def headrace_url() -> Iterator[str]:
    """A Headrace server for the tests of this folder, in a thread."""
    with headrace_server() as port:
        yield f"redis://127.0.0.1:{port}"


@pytest.fixture(params=["near", "headrace", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    """Where `database` is."""
    return str(request.param)


@pytest.fixture
def database(kind: str, request: pytest.FixtureRequest) -> Iterator[headrace.Database]:
    """An empty database: in this process, on a Headrace server, and on redis-server."""
    if kind == "near":
        with headrace.open() as db:
            yield db
        return
    with headrace.connect(
        request.getfixturevalue("headrace_url" if kind == "headrace" else "server_url")
    ) as db:
        db.execute("FLUSHALL")
        yield db


@pytest.fixture
def clock() -> ManualClock:
    """It stands until the test turns it."""
    return ManualClock(1_000_000)


@pytest.fixture
def db(clock: ManualClock) -> Iterator[headrace.Database]:
    """An empty database in this process, by that clock."""
    with headrace.open(clock=clock) as db:
        yield db


class Aside:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._outcome: list[tuple[bool, object]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome.append((True, self._call()))
        except BaseException as error:
            self._outcome.append((False, error))

    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> object:
        """What it returned, or the exception that ended it is raised here."""
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), "it should have ended by now"
        good, outcome = self._outcome[0]
        if not good:
            assert isinstance(outcome, BaseException)
            raise outcome
        return outcome


@pytest.fixture
def aside() -> Callable[[Callable[[], object]], Aside]:
    """aside(call) runs a call in a thread; .result() is what came of it."""
    return Aside


@pytest.fixture
def stop() -> Iterator[Stop]:
    """A Stop that is set at the end, whatever happens."""
    stop = Stop()
    yield stop
    stop.set()
