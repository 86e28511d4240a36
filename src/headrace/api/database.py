"""A database: open() has the engine in this process, connect() speaks to a server; the rest is the same."""

from __future__ import annotations

from importlib import import_module
from types import TracebackType
from typing import Any

from headrace.api.clock import Clock, SystemClock
from headrace.api.conversation import Conversation
from headrace.api.door import Door
from headrace.api.link import Link
from headrace.commands.host import Host
from headrace.engine.engine import Engine
from headrace.errors import HeadraceError
from headrace.keyspace.settings import Settings

Word = bytes | str | int | float


class Database:
    """Streams by name. Safe to use from many threads; close() it, or use it in a `with`."""

    def __init__(self, link: Link, path: str | None = None) -> None:
        self.link = link
        self.path = path

    def stream(self, name: str | bytes, codec: Any = None) -> Any:
        """The stream of that name, which need not be there yet."""
        module = import_module("headrace.api.stream")
        return module.Stream(self.link, name, codec)

    def execute(self, *words: Word) -> Any:
        """Any command, as on the wire: `db.execute("XLEN", "orders")`. Strings in the reply are bytes."""
        return self.link.execute(*(word_of(word) for word in words))

    def client(self, **options: Any) -> Any:
        """A redis-py `Redis` on this database."""
        return import_module("headrace.api.bridge").client(self, **options)

    def async_client(self, **options: Any) -> Any:
        """A `redis.asyncio.Redis` on this database."""
        return import_module("headrace.api.async_bridge").async_client(self, **options)

    @property
    def durable(self) -> bool:
        """Whether a request that changes data waits for the disk."""
        return getattr(self.link, "durable", False)

    def conversation(self, on_answer: Callable[[], None] | None = None) -> Conversation:
        """A session with the engine, in bytes of the Redis protocol."""
        if not isinstance(self.link, Door):
            raise HeadraceError(
                "a conversation is with the engine in this process; this database is elsewhere"
            )
        return Conversation(self.link, on_answer)

    def close(self) -> None:
        """Have everything on the disk and let go; who still waits gets a DatabaseClosed."""
        self.link.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(path: str | None = None, *, fsync: str = "always", clock: Clock | None = None) -> Database:
    """A database in this process: in the directory `path`, or in memory."""
    if path is not None:
        raise HeadraceError("not built yet")
    settings = Settings()
    engine = Engine(settings, Host(settings))
    return Database(Door(engine, clock if clock is not None else SystemClock()), path)


def connect(url: str, **options: Any) -> Database:
    """A database on a server: Headrace, Redis or Valkey, by the URL that redis-py knows."""
    return Database(import_module("headrace.api.remote").RemoteLink(url, **options))


def word_of(value: Word) -> bytes:
    """A word of a command."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else str(value).encode()
