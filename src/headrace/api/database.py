"""A database: open() runs the engine in this process, connect() uses a server. The API is the same."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from headrace.api.backend import Backend
from headrace.api.codecs.arguments import checked_replica_wait, encode_name
from headrace.api.codecs.codec import Codec, RawFields
from headrace.api.local.backup import write_backup
from headrace.api.local.clock import Clock, SystemClock
from headrace.api.local.directory import open_directory
from headrace.api.local.engine_session import EngineSession
from headrace.api.local.local_engine import LocalEngine
from headrace.api.local.storage import LibraryServerInterface, Storage
from headrace.api.rules import Retention
from headrace.api.stream import Stream
from headrace.commands.server_interface import STREAM_SETTINGS
from headrace.engine.engine import Engine
from headrace.errors import DatabaseClosed, HeadraceError, UsageError
from headrace.keyspace.settings import Settings
from headrace.memory_size import parse_memory
from headrace.persistence.aof.log import POLICIES
from headrace.persistence.cold.object_store import LOCAL_BYTES_DEFAULT_MAX
from headrace.streams.cold_run import CACHE_BYTES

if TYPE_CHECKING:
    import pyarrow as pa
    import redis
    import redis.asyncio

    from headrace.api.local.replica import Replica
    from headrace.api.remote_backend import RemoteBackend

T = TypeVar("T")
FieldValue = bytes | str | int | float

# Commands that change the state of the connection.
STATEFUL_COMMANDS = frozenset(
    b"MULTI EXEC DISCARD WATCH UNWATCH SELECT HELLO AUTH RESET QUIT MONITOR ASKING READONLY READWRITE SYNC"
    b" PSYNC SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE".split()
)
STATEFUL_CLIENT_SUBCOMMANDS = frozenset(b"REPLY TRACKING CACHING SETNAME SETINFO NO-EVICT NO-TOUCH".split())

SCAN_COUNT = 1000  # keys per step
CACHE_BYTES_MIN = 1 << 20  # several runs
BYTES_MAX = (1 << 63) - 1

OPEN_ENGINES: weakref.WeakSet[LocalEngine] = weakref.WeakSet()  # closed in a forked child
OPEN_DISK_ENGINES: set[LocalEngine] = set()  # closed when the interpreter exits


@dataclass(frozen=True)
class DatabaseInfo:
    """Location, size and state of a database in this process."""

    path: str | None
    fsync: str | None  # None in memory
    keys: int
    log_bytes: int  # size of all log files
    unsynced_bytes: int  # not synced yet, including bytes not written yet
    disk_error: str  # why the disk rejects writes; "" if it does not
    cold_entries: int = 0  # in files instead of in memory
    cold_bytes: int = 0  # of memory that they would take
    cold_error: str = ""  # why no others can be moved to files; "" if they can
    cold_store_files: int = 0  # of these files, in the object store
    cold_store_error: str = ""  # why the last upload or read failed; "" if it did not


class Database:
    """Streams by name. It is thread-safe. Close it with close() or a `with` statement."""

    def __init__(self, backend: Backend, path: str | None = None, replica: Replica | None = None) -> None:
        self.backend = backend
        self.path = path
        self.replica = replica  # of a copy of a server: open(replica_of=…); else None

    @overload
    def stream(
        self, name: str | bytes, codec: None = None, *, retention: Retention | None = ...
    ) -> Stream[RawFields]: ...
    @overload
    def stream(
        self, name: str | bytes, codec: Literal["text"], *, retention: Retention | None = ...
    ) -> Stream[dict[str, str]]: ...
    @overload
    def stream(
        self, name: str | bytes, codec: Literal["json"], *, retention: Retention | None = ...
    ) -> Stream[Any]: ...
    @overload
    def stream(
        self, name: str | bytes, codec: type[T], *, retention: Retention | None = ...
    ) -> Stream[T]: ...
    @overload
    def stream(
        self, name: str | bytes, codec: Codec[T], *, retention: Retention | None = ...
    ) -> Stream[T]: ...

    def stream(
        self, name: str | bytes, codec: Any = None, *, retention: Retention | None = None
    ) -> Stream[Any]:
        """Return the stream of that name. It need not exist yet.

        Args:
            name: the key of the stream; str is encoded as UTF-8.
            codec: how values are stored. None: fields as bytes; or `"text"`, `"json"`, a dataclass, a
                pydantic model or an object with encode() and decode().
            retention: rules for what the server keeps; setting them creates the stream. None: leave its
                rules unchanged. See Stream.set_retention().

        Raises:
            UsageError: if `name` is neither str nor bytes, or `retention` is invalid.
            NotSupported: if `retention` is given, and the server is not Headrace.
            CodecError: if the codec is invalid, or a class has an attribute that cannot be stored or would be
                lost.
        """
        found: Stream[Any] = Stream(self.backend, name, codec)
        if retention is not None:
            found.set_retention(retention)
        return found

    def streams(self, match: str | bytes = "*") -> list[Stream[RawFields]]:
        """Return the existing streams whose names match a glob pattern such as `orders:*`, sorted by name.

        This scans all keys in many small steps. In a cluster it scans every node.
        """
        remote = cast("RemoteBackend", self.backend)
        if self.backend.is_remote and remote.is_cluster:
            found = remote.scan_stream_keys(match, SCAN_COUNT)
        else:
            found, cursor = set(), b"0"
            options = (b"MATCH", encode_name(match), b"COUNT", b"%d" % SCAN_COUNT, b"TYPE", b"stream")
            while True:
                cursor, names = self.backend.request(b"SCAN", cursor, *options)
                found.update(names)
                if cursor == b"0":
                    break
        return [Stream(self.backend, name) for name in sorted(map(encode_name, found))]

    def sql(
        self,
        query: str,
        schemas: Mapping[str, pa.Schema] | None = None,
        *,
        archive: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        time_zone: str = "UTC",
    ) -> pa.Table:
        """Run a query in SQL over streams, with DuckDB in this process; return its rows as a pyarrow.Table.

        >>> db.sql("SELECT customer, sum(cents) FROM orders WHERE _timestamp > '2026-03-01' GROUP BY ALL")

        Each stream is a table of its name. A name that is not an identifier needs double quotes:
        `"orders:eu"`. The columns are the fields of the entries, and `_id`, `_timestamp`, `_sequence` and
        `_stream`. Their types are inferred from a sample of both ends of the stream. A value that does not
        fit the type is null, and counted in a warning of the logger `headrace.stream`.

        The query sees the entries that exist when it begins. Only the columns that it names are read, and
        only the times that its conditions on `_timestamp` allow. With `archive`, a table contains the
        archived entries and the later entries of the stream, each entry once.

        Args:
            query: one statement in the SQL of DuckDB.
            schemas: the columns of streams, by stream name, each like `schema` of Stream.to_arrow(). The
                columns of other streams are inferred.
            archive: an archive of `headrace archive`, a directory or a URL such as `s3://lake/orders`. The
                tables have the archive's column types. This needs the package deltalake.
            storage_options: the options of the archive's object store, such as `AWS_ENDPOINT_URL`.
            time_zone: the time zone of times without one.

        Raises:
            UsageError: if there is no such stream or archive, DuckDB rejects the query, or a package is not
                installed.
            HeadraceError: if the query fails, the archive cannot be read, or the stream was recreated since
                it was archived, or trimmed past its archive while it was read.
        """
        try:
            from headrace.api.sql import run_query
        except ModuleNotFoundError as error:
            if error.name not in ("duckdb", "pyarrow"):
                raise
            needed = "SQL on streams needs duckdb and pyarrow: pip install 'headrace[sql]'"
            raise UsageError(needed) from error

        def list_streams() -> list[str]:
            return [stream.name for stream in self.streams()]

        return run_query(
            self.backend, list_streams, query, schemas or {}, time_zone, archive, storage_options
        )

    def execute(self, *words: FieldValue) -> Any:
        """Execute any command and return its reply: `db.execute("XLEN", "orders")`.

        Args:
            words: the command and its arguments.

        Returns:
            The reply as in RESP2. Strings are bytes.

        Raises:
            CommandError: if the command is rejected.
            UsageError: for a command that changes the state of a connection, such as MULTI, SUBSCRIBE or
                SELECT. Use client(), which has connections of its own.
        """
        argv = [encode_argument(word) for word in words]
        if argv and b" " in argv[0]:
            raise UsageError("execute() takes the words separately, as in execute('XLEN', 'orders')")
        reject_stateful_command(argv)
        return self.backend.request(*argv)

    def client(self, **options: Any) -> redis.Redis:
        """Return a redis-py `Redis` client of this database.

        Args:
            options: redis-py's own options, such as `decode_responses=True`.

        Raises:
            UsageError: if there are options, and connect() was given a client. Without options, that client
                is returned.
        """
        from headrace.api.local import redispy

        return redispy.client(self, **options)

    def async_client(self, **options: Any) -> redis.asyncio.Redis:
        """Return a `redis.asyncio.Redis` client of this database.

        Args:
            options: redis-py's own options.

        Raises:
            UsageError: if connect() was given a client instead of a URL.
        """
        from headrace.api.local import async_redispy

        return async_redispy.async_client(self, **options)

    def connection_class(self) -> type[redis.UnixDomainSocketConnection]:
        """Return redis-py's connection class for this database, for libraries that make their own pool.

        Raises:
            UsageError: if the database is on a server.
        """
        from headrace.api.local import redispy

        return redispy.connection_class(self)

    def async_connection_class(self) -> type[redis.asyncio.UnixDomainSocketConnection]:
        """Return the connection class of redis.asyncio for this database.

        Raises:
            UsageError: if the database is on a server.
        """
        from headrace.api.local import async_redispy

        return async_redispy.connection_class(self)

    @property
    def durable(self) -> bool:
        """Whether a request that changes data waits for the disk."""
        return getattr(self.backend, "durable", False)

    def engine_session(self, on_reply: Callable[[], None] | None = None) -> EngineSession:
        """Open a session with the engine in this process, which exchanges bytes of the Redis protocol.

        Args:
            on_reply: called from any thread when there may be something to receive. It must not block, and
                must not call the database.

        Raises:
            HeadraceError: if the database is on a server.
        """
        return EngineSession(self._local_engine("engine_session()"), on_reply)

    def info(self) -> DatabaseInfo:
        """Return location, size and disk state.

        Raises:
            HeadraceError: if the database is on a server.
        """
        local_engine = self._local_engine("info()")
        keys = sum(len(database.values) for database in local_engine.engine.keyspace.databases)
        storage = local_engine.storage
        if storage is None:
            return DatabaseInfo(None, None, keys, 0, 0, "")
        log, cold, uploader = storage.log, local_engine.engine.cold_storage, storage.object_uploader
        return DatabaseInfo(
            self.path,
            storage.fsync_policy,
            keys,
            log.size,
            log.written - log.synced,
            log.reported_failure,
            0 if cold is None else cold.cache.cold_run_totals.entry_count,
            0 if cold is None else cold.cache.cold_run_totals.bytes_if_loaded,
            "" if cold is None else cold.last_error,
            0 if uploader is None else uploader.uploaded_files.totals()[0],
            "" if uploader is None else uploader.store_error,
        )

    def compact(self) -> None:
        """Rewrite the log to its shortest form.

        This also happens automatically when the log has doubled, to at least 64 MiB. Other threads can use
        the database meanwhile. In memory this does nothing.

        Raises:
            HeadraceError: if the rewrite failed, or the database is on a server, or closed before the end.
        """
        local_engine = self._open_local_engine("compact()")
        if local_engine.storage is not None:
            local_engine.storage.compact()

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy all data as they are now to a new directory; other threads can use the database meanwhile.

        `headrace.open(path)`, `headrace serve --dir <path>` and `redis-server --dir <path>` load the copy.
        The directory appears when the copy is complete and synced.

        Args:
            path: a directory that does not exist or is empty.

        Raises:
            UsageError: if the directory contains files, or its parent does not exist.
            HeadraceError: if the disk failed, or the database is on a server, or closed before the end.
        """
        write_backup(self._open_local_engine("backup()"), path)

    def _open_local_engine(self, what: str) -> LocalEngine:
        local_engine = self._local_engine(what)
        if local_engine.closed_reason is not None:
            raise DatabaseClosed(local_engine.closed_reason)
        return local_engine

    def _local_engine(self, what: str) -> LocalEngine:
        if not isinstance(self.backend, LocalEngine):
            raise HeadraceError(f"{what}: not available for a database on a server; use execute()")
        return self.backend

    def close(self) -> None:
        """Sync everything and release the directory, or close the connections. A second call does nothing.

        Calls that wait in other threads raise DatabaseClosed.

        Raises:
            NotOnDisk: if the disk rejected the last changes.
        """
        if self.replica is not None:
            self.replica.stop()
        try:
            self.backend.close()
        finally:
            OPEN_DISK_ENGINES.discard(self.backend)

    def __repr__(self) -> str:
        local_engine = self.backend if isinstance(self.backend, LocalEngine) else None
        if local_engine is None:
            about = repr(str(getattr(self.backend, "topology", self.backend)))
        elif local_engine.storage is None:
            about = "in memory"
        else:
            about = f"{self.path!r}, fsync={local_engine.storage.fsync_policy!r}"
        closed = (
            local_engine.closed_reason is not None
            if local_engine is not None
            else getattr(self.backend, "closed", False)
        )
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
    replica_of: str | None = None,
    skip_foreign_types: bool = False,
    hot_memory: int | str = 0,
    cold_cache_memory: int | str = CACHE_BYTES,
    cold_store: str | None = None,
    cold_local_bytes: int | str = LOCAL_BYTES_DEFAULT_MAX,
    **settings: int,
) -> Database:
    """Open a database in this process.

    The files are those of a server: `headrace serve --dir path` continues with them. One process uses a
    directory at a time.

    Args:
        path: the directory, which is created if it is missing; None for a database in memory.
        fsync: when a change survives a power cut: before the call returns (`"always"`; threads that write at
            the same time share a sync), one or two seconds later (`"everysec"`), or when the operating system
            writes it (`"no"`). A crash of the process alone loses nothing.
        clock: the clock of IDs, expiry and waits; for tests, see `headrace.testing`.
        replica_of: the URL of a server (`redis://`, `rediss://`, `unix://`, `sentinel://`) whose data this
            database copies and follows. It is read-only, and has all data once `db.replica.wait()` returns;
            `db.replica.status()` has its progress. Opened again after close(), it continues where it was
            if the server still has the changes since then; otherwise it copies all data again.
        skip_foreign_types: leave out keys of other types than streams and strings, in the directory of a
            Redis or at the server of `replica_of`. The next compact() removes these keys, so keep a copy of
            the directory. False: data with such keys are not opened, or not copied.
        hot_memory: bytes of data in memory, as a number or as text such as `"512mb"`. Beyond it the oldest
            entries of streams move to files of the directory, and are read from there. 0: no limit.
        cold_cache_memory: bytes of entries read from these files that are kept in memory, at least 1 MiB.
        cold_store: the URL of an object store to upload these files to, such as `"s3://bucket/prefix"`
            (also `gs://`, `az://`, `file://`). It needs `headrace[cloud]`; credentials are those of the
            environment.
        cold_local_bytes: bytes of these files that stay in the directory when the store has them.
        settings: `stream_node_max_bytes`, `stream_node_max_entries`, `stream_idmp_duration` (seconds) and
            `stream_idmp_maxsize` (requests per producer).

    Raises:
        HeadraceError: if another process has the directory (the text names it), or files cannot be read.
        UsageError: if an argument is invalid.
    """
    if fsync not in POLICIES:
        raise UsageError(f"fsync={fsync!r}: must be one of {', '.join(map(repr, POLICIES))}")
    hot_bytes = parse_memory_bytes("hot_memory", hot_memory, 0)
    cache_bytes = parse_memory_bytes("cold_cache_memory", cold_cache_memory, CACHE_BYTES_MIN)
    storage = None
    if path is not None:
        storage = Storage(
            open_directory(path),
            fsync,
            skip_foreign_types=skip_foreign_types,
            hot_memory=hot_bytes,
            cold_cache_memory=cache_bytes,
            cold_store=cold_store or "",
            cold_local_bytes=parse_memory_bytes("cold_local_bytes", cold_local_bytes, 0),
        )
    elif hot_bytes or cold_store:
        raise needs_directory_error(
            f"hot_memory={hot_memory!r}" if hot_bytes else f"cold_store={cold_store!r}"
        )
    database = build_database(
        storage, clock if clock is not None else SystemClock(), parse_stream_settings(settings)
    )
    if replica_of is not None:
        start_replica(database, replica_of, skip_foreign_types)
    return database


def start_replica(database: Database, url: str, skip_foreign_types: bool) -> None:
    """Make a database in this process a replica of a server, and start it.

    Raises UsageError if the URL is invalid; the database is closed then.
    """
    from headrace.api.local.replica import Replica

    try:
        database.replica = Replica(database._local_engine("replica_of"), url, skip_foreign_types)
    except BaseException:
        database.close()
        raise
    database.replica.start()


def build_database(storage: Storage | None, clock: Clock, settings: Settings) -> Database:
    """Make a database with an engine in this process; load the files of `storage`, if there are any."""
    host = LibraryServerInterface(settings)
    engine = Engine(settings, host)
    local_engine = LocalEngine(engine, clock)
    if storage is not None:
        storage.load(engine, clock.now_ms())
        local_engine.storage = storage
        storage.attach(local_engine)
        host.storage = storage
        OPEN_DISK_ENGINES.add(local_engine)
    OPEN_ENGINES.add(local_engine)
    return Database(local_engine, None if storage is None else getattr(storage.files, "root", None))


def needs_directory_error(what: str) -> UsageError:
    """Return the error for an argument that a database in memory cannot have."""
    return UsageError(
        f"{what}: a database in memory has no files to which entries could move; "
        'open a directory, as in open("data", hot_memory=…)'
    )


def parse_memory_bytes(name: str, size: int | str, least: int) -> int:
    """Return a number of bytes, which may be text with a unit. Raises UsageError if it is invalid."""
    try:
        found = parse_memory(size) if isinstance(size, str) else size
    except ValueError:
        found = None
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= BYTES_MAX:
        raise UsageError(
            f"{name}={size!r}: must be a number of bytes of at least {least}, or text such as '512mb'"
        )
    return found


def parse_stream_settings(given: dict[str, int]) -> Settings:
    """Return the settings. Raises UsageError for an unknown name or a value out of range."""
    settings = Settings()
    limits = {field: (least, most) for field, least, most in STREAM_SETTINGS.values()}
    for name, value in given.items():
        if name not in limits:
            raise UsageError(f"{name}: unknown setting; valid are {', '.join(sorted(limits))}")
        least, most = limits[name]
        if not (isinstance(value, int) and least <= value <= most):
            raise UsageError(f"{name}={value!r}: must be an integer from {least} to {most}")
        setattr(settings, name, value)
    return settings


def connect(
    url: str | redis.Redis | redis.RedisCluster,
    *,
    reconnect_timeout: float | None = None,
    wait_replicas: int | None = None,
    replicas_timeout: float = 1.0,
    read_from: Literal["primary", "replica"] = "primary",
) -> Database:
    """Return a database on a server: Headrace, Redis or Valkey. The first request opens the connection.

    Args:
        url: `redis://`, `rediss://`, `unix://`, `sentinel://` or `cluster://`; or a client of redis-py, whose
            settings are used.
        reconnect_timeout: seconds to retry when a server is lost. None: 20 for one server, 90 with Sentinel
            or a cluster, enough for a restart or a failover. The first connection is never retried.
        wait_replicas: after each add() and add_many(), wait until this many replicas have the entries; raise
            NotReplicated if that takes longer than `replicas_timeout`. None: do not wait.
        replicas_timeout: seconds to wait for the replicas.
        read_from: `"replica"`: read entries from a replica (range, follow, len and so on). It may be behind:
            an entry that was just added may be missing. Writes and groups use the primary.

    Raises:
        UsageError: if the URL or another argument is invalid.
    """
    if isinstance(url, str) and "://" not in url:
        raise UsageError(
            f"{url!r} is not a server's address, such as redis://127.0.0.1:7777;"
            " for a directory of this machine use headrace.open()"
        )
    from headrace.api.remote_backend import RemoteBackend, ReplicaWait

    if read_from not in ("primary", "replica"):
        raise UsageError(f"read_from={read_from!r}: must be 'primary' or 'replica'")
    wait = None
    if wait_replicas is not None:
        wait = ReplicaWait(*checked_replica_wait(wait_replicas, replicas_timeout, "replicas_timeout"))
    return Database(
        RemoteBackend(url, reconnect_timeout=reconnect_timeout, replica_wait=wait, read_from=read_from)
    )


def encode_argument(value: FieldValue) -> bytes:
    """Return an argument of a command as bytes. Raises UsageError for other types."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value).encode()
    return encode_name(value)  # type: ignore[arg-type]


def reject_stateful_command(argv: list[bytes]) -> None:
    """Raise UsageError for a command that would change the state of a shared connection."""
    if not argv:
        raise UsageError("execute() needs a command: execute('XLEN', 'orders')")
    name, of_client = argv[0].upper(), b"".join(argv[1:2]).upper()
    if name in STATEFUL_COMMANDS or (name == b"CLIENT" and of_client in STATEFUL_CLIENT_SUBCOMMANDS):
        command = " ".join(word.decode("utf-8", "replace") for word in argv[: 1 + (name == b"CLIENT")])
        raise UsageError(
            f"{command} changes the state of a connection, and execute() has none of its own: use client()"
        )


def close_all_on_disk() -> None:
    """Sync and close every database on disk when the interpreter exits."""
    for local_engine in list(OPEN_DISK_ENGINES):
        with suppress(HeadraceError):  # logged when it began
            local_engine.close()
    OPEN_DISK_ENGINES.clear()


def close_all_after_fork() -> None:
    """Close all databases in a forked child: they belong to the parent."""
    for local_engine in list(OPEN_ENGINES):
        if local_engine.closed_reason is None:
            local_engine.close_after_fork(after_fork_message(local_engine))
    OPEN_DISK_ENGINES.clear()


def after_fork_message(local_engine: LocalEngine) -> str:
    """Return what a forked child can do instead of using its parent's database."""
    if local_engine.storage is None:
        return (
            "this database in memory belongs to the process that this one was forked from: open a new one "
            "here, with headrace.open(), or share one through a server (headrace serve, headrace.connect())"
        )
    path = getattr(local_engine.storage.files, "root", "the directory")
    return (
        f"{path} is open in the process that this one was forked from, and one process has it at a time: "
        "open it here when that process has closed it, or share it through a server: `headrace serve --dir "
        f"{path}`, and headrace.connect() in every process"
    )


atexit.register(close_all_on_disk)
os.register_at_fork(after_in_child=close_all_after_fork)
