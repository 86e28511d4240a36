"""A database: open() has the engine in this process, connect() speaks to a server; the rest is the same."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from headrace.api.backend import Link
from headrace.api.codecs.arguments import name_of
from headrace.api.codecs.codec import Codec, Raw
from headrace.api.local.clock import Clock, SystemClock
from headrace.api.local.engine_session import Conversation
from headrace.api.local.local_engine import Door
from headrace.api.local.storage import LibraryHost, Storage, directory
from headrace.api.stream import Stream
from headrace.commands.server_interface import STREAM_SETTINGS
from headrace.engine.engine import Engine
from headrace.errors import DatabaseClosed, HeadraceError, UsageError
from headrace.keyspace.settings import Settings
from headrace.persistence.aof.log import POLICIES

if TYPE_CHECKING:
    import redis
    import redis.asyncio

T = TypeVar("T")
Word = bytes | str | int | float

# Commands whose effect is on the connection.
STATEFUL = frozenset(
    b"MULTI EXEC DISCARD WATCH UNWATCH SELECT HELLO AUTH RESET QUIT MONITOR ASKING READONLY READWRITE SYNC"
    b" PSYNC SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE".split()
)
STATEFUL_CLIENT = frozenset(b"REPLY TRACKING CACHING SETNAME SETINFO NO-EVICT NO-TOUCH".split())

SCAN_COUNT = 1000  # keys a step

DOORS: weakref.WeakSet[Door] = weakref.WeakSet()  # for forks
ON_DISK: set[Door] = set()  # not closed yet: they are when the interpreter ends


@dataclass(frozen=True)
class DatabaseInfo:
    """What a database is, and how it fares."""

    path: str | None
    fsync: str | None  # None in memory
    keys: int
    log_bytes: int  # of all files
    unsynced_bytes: int  # written and not on the disk yet, or not even written
    trouble: str  # why the disk does not take what is written; "" when it does


class Database:
    """Streams by name. Safe to use from many threads; close() it, or use it in a `with`."""

    def __init__(self, link: Link, path: str | None = None) -> None:
        self.link = link
        self.path = path

    @overload
    def stream(self, name: str | bytes, codec: None = None) -> Stream[Raw]: ...
    @overload
    def stream(self, name: str | bytes, codec: Literal["text"]) -> Stream[dict[str, str]]: ...
    @overload
    def stream(self, name: str | bytes, codec: Literal["json"]) -> Stream[Any]: ...
    @overload
    def stream(self, name: str | bytes, codec: type[T]) -> Stream[T]: ...
    @overload
    def stream(self, name: str | bytes, codec: Codec[T]) -> Stream[T]: ...

    def stream(self, name: str | bytes, codec: Any = None) -> Stream[Any]:
        """The stream of that name, which need not be there yet.

        codec says what its values are: bytes (None), `"text"`, `"json"`, a dataclass or a model.
        """
        return Stream(self.link, name, codec)

    def streams(self, match: str | bytes = "*") -> list[Stream[Raw]]:
        """The streams there are whose names match a pattern such as `orders:*`, by name.

        All keys are looked at, in many small steps; in a cluster those of every node.
        """
        if self.link.far:
            with self._own_client() as far:
                found = set(far.scan_iter(match, count=SCAN_COUNT, _type="stream"))
        else:
            found, cursor = set(), b"0"
            options = (b"MATCH", name_of(match), b"COUNT", b"%d" % SCAN_COUNT, b"TYPE", b"stream")
            while True:
                cursor, names = self.link.execute(b"SCAN", cursor, *options)
                found.update(names)
                if cursor == b"0":
                    break
        return [Stream(self.link, name) for name in sorted(map(name_of, found))]

    @contextmanager
    def _own_client(self) -> Iterator[Any]:
        """A client of a server elsewhere; one that was made for this is closed."""
        client = self.client()
        try:
            yield client
        finally:
            if client is not getattr(self.link, "server", None):
                client.close()

    def execute(self, *words: Word) -> Any:
        """Any command, as on the wire: `db.execute("XLEN", "orders")`. Strings in the reply are bytes.

        UsageError for those that change a connection (MULTI, SUBSCRIBE, SELECT …): client() has its own.
        """
        argv = [word_of(word) for word in words]
        check_stateless(argv)
        return self.link.execute(*argv)

    def client(self, **options: Any) -> redis.Redis:
        """A redis-py `Redis` on this database; options are redis-py's own, `decode_responses=True` or so."""
        made: redis.Redis = import_module("headrace.api.local.redispy").client(self, **options)
        return made

    def async_client(self, **options: Any) -> redis.asyncio.Redis:
        """A `redis.asyncio.Redis` on this database."""
        made: redis.asyncio.Redis = import_module("headrace.api.local.async_redispy").async_client(
            self, **options
        )
        return made

    def connection_class(self) -> Any:
        """For a library that makes redis-py's connections itself: their class, bound to this database."""
        return import_module("headrace.api.local.redispy").connection_class(self)

    def async_connection_class(self) -> Any:
        """The same for redis.asyncio."""
        return import_module("headrace.api.local.async_redispy").connection_class(self)

    @property
    def durable(self) -> bool:
        """Whether a request that changes data waits for the disk."""
        return getattr(self.link, "durable", False)

    def conversation(self, on_answer: Callable[[], None] | None = None) -> Conversation:
        """A session with the engine, in bytes of the Redis protocol."""
        return Conversation(self._door("conversation()"), on_answer)

    def info(self) -> DatabaseInfo:
        """Where it is, how large, and whether the disk keeps up."""
        door = self._door("info()")
        keys = sum(len(database.values) for database in door.engine.keyspace.databases)
        storage = door.storage
        if storage is None:
            return DatabaseInfo(None, None, keys, 0, 0, "")
        log = storage.log
        return DatabaseInfo(
            self.path, storage.policy, keys, log.size, log.written - log.synced, storage.trouble
        )

    def compact(self) -> None:
        """Write the log anew, as short as it can be. It happens by itself when the log has doubled.

        Reads go on but for the moment in which memory is written out; writes wait. In memory it does nothing.
        """
        door = self._door("compact()")
        if door.refusal is not None:
            raise DatabaseClosed(door.refusal)
        if door.storage is not None:
            door.storage.compact()

    def _door(self, what: str) -> Door:
        if not isinstance(self.link, Door):
            raise HeadraceError(f"{what}: this database is a server elsewhere, ask it with execute()")
        return self.link

    def close(self) -> None:
        """Have everything on the disk and let go; who still waits gets a DatabaseClosed.

        NotOnDisk: the disk has not taken the end of it. Twice does nothing.
        """
        try:
            self.link.close()
        finally:
            ON_DISK.discard(self.link)

    def __repr__(self) -> str:
        door = self.link if isinstance(self.link, Door) else None
        if door is None:
            about = repr(str(getattr(self.link, "place", self.link)))
        elif door.storage is None:
            about = "in memory"
        else:
            about = f"{self.path!r}, fsync={door.storage.policy!r}"
        closed = door.refusal is not None if door is not None else getattr(self.link, "closed", False)
        return f"Database({about}{', closed' if closed else ''})"

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(
    path: str | os.PathLike[str] | None = None,
    *,
    fsync: Literal["always", "everysec", "no"] = "always",
    clock: Clock | None = None,
    **settings: int,
) -> Database:
    """A database in this process: in memory, or in the directory `path`, which is made if it is missing.

    fsync says when what was written survives a power cut: before the call returns (`always`; threads that
    write at the same time share a sync), a second or two later (`everysec`), or when the system likes (`no`).
    The end of the process alone loses nothing in any of them.

    settings are those of streams: `stream_node_max_bytes`, `stream_node_max_entries`, `stream_idmp_duration`,
    `stream_idmp_maxsize`. clock is for tests (`headrace.testing`).

    The files are those of a server: `headrace serve --dir path` takes over where this leaves off. One process
    has them at a time: HeadraceError says who has. HeadraceError, too, for files that cannot be read.
    """
    if fsync not in POLICIES:
        raise UsageError(f"fsync={fsync!r}: it is one of {', '.join(map(repr, POLICIES))}")
    storage = None if path is None else Storage(directory(path), fsync)
    return assemble(storage, clock if clock is not None else SystemClock(), settings_of(settings))


def assemble(storage: Storage | None, clock: Clock, settings: Settings) -> Database:
    """A database of its parts; what the storage has is loaded."""
    host = LibraryHost(settings)
    engine = Engine(settings, host)
    door = Door(engine, clock)
    if storage is not None:
        storage.load(engine, clock.now_ms())
        storage.attach(door)
        door.storage = host.storage = storage
        ON_DISK.add(door)
    DOORS.add(door)
    return Database(door, None if storage is None else getattr(storage.files, "root", None))


def settings_of(given: dict[str, int]) -> Settings:
    """The settings, each within its limits; UsageError."""
    settings = Settings()
    limits = {field: (least, most) for field, least, most in STREAM_SETTINGS.values()}
    for name, value in given.items():
        if name not in limits:
            raise UsageError(f"{name}: there is no such setting; there are {', '.join(sorted(limits))}")
        least, most = limits[name]
        if not (isinstance(value, int) and least <= value <= most):
            raise UsageError(f"{name}={value!r}: it is from {least} to {most}")
        setattr(settings, name, value)
    return settings


def connect(url: str | redis.Redis | redis.RedisCluster, *, patience: float | None = None) -> Database:
    """A database on a server: Headrace, Redis or Valkey, by the URL that redis-py knows.

    In its place may stand a client of redis-py, whose settings are taken over. patience is how many seconds a
    lost server is waited for, by default as long as a restart or a failover may take; that nobody is there in
    the first place is said at once.
    """
    if isinstance(url, str) and "://" not in url:
        raise UsageError(
            f"{url!r} is not a server's address, such as redis://127.0.0.1:7777;"
            " for a directory of this machine use headrace.open()"
        )
    return Database(import_module("headrace.api.remote.remote_backend").RemoteLink(url, patience=patience))


def word_of(value: Word) -> bytes:
    """A word of a command. UsageError for what is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value).encode()
    return name_of(value)  # type: ignore[arg-type]


def check_stateless(argv: list[bytes]) -> None:
    """UsageError for what would leave a connection in a state that whoever comes next has not asked for."""
    if not argv:
        raise UsageError("execute() takes the words of a command: execute('XLEN', 'orders')")
    name, of_client = argv[0].upper(), b"".join(argv[1:2]).upper()
    if name in STATEFUL or (name == b"CLIENT" and of_client in STATEFUL_CLIENT):
        shown = " ".join(word.decode("utf-8", "replace") for word in argv[: 1 + (name == b"CLIENT")])
        raise UsageError(f"{shown} changes a connection, and execute() has none of its own: use client()")


def close_all() -> None:
    """The interpreter ends: what is on disk is synced."""
    for door in list(ON_DISK):
        with suppress(HeadraceError):  # it was logged when it began
            door.close()
    ON_DISK.clear()


def forked() -> None:
    """Close every database in the child of a fork: they belong to the parent."""
    for door in list(DOORS):
        if door.refusal is None:
            door.forked(after_fork(door))
    ON_DISK.clear()


def after_fork(door: Door) -> str:
    """Say what the child of a fork can do for data that its parent has open."""
    if door.storage is None:
        return (
            "this database in memory belongs to the process that this one was forked from: open a new one "
            "here, with headrace.open(), or share one through a server (headrace serve, headrace.connect())"
        )
    path = getattr(door.storage.files, "root", "the directory")
    return (
        f"{path} is open in the process that this one was forked from, and one process has it at a time: "
        "open it here when that process has closed it, or share it through a server: `headrace serve --dir "
        f"{path}`, and headrace.connect() in every process"
    )


atexit.register(close_all)
os.register_at_fork(after_in_child=forked)
