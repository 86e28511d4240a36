"""Servers: who owns a stream, and connections there. One server, a master that Sentinels name, or a cluster.

    planning    client()        redis-py's, which finds the owners of keys by itself
                ask(streams)    one round trip a shard, however many streams
    data        wire(stream)    raw bytes to and from the server that owns the stream

Whatever says that another server is to be asked, or the same one later, counts as a lost connection: MOVED,
ASK, TRYAGAIN, CLUSTERDOWN, LOADING, READONLY, MASTERDOWN. Who loses a connection asks for another one, and
wire() asks again who owns the stream. So failovers need no code of their own anywhere else.
"""

from __future__ import annotations

import logging
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import AskError, MovedError, RedisClusterException
from redis.retry import Retry
from redis.sentinel import Sentinel

from headrace.client.retry import CONNECTION_ERRORS as CONNECTION_ERRORS
from headrace.client.retry import retry_while_lost
from headrace.client.stream_names import stream_key, stream_name
from headrace.client.url import cluster_node_error, parse_server_url, without_password
from headrace.errors import HeadraceError, UsageError

TIMEOUT_S = 30.0  # a server that says nothing for so long is taken for dead
RESTART_TIMEOUT_S = 20.0  # how long to wait for a server that is restarted
# or for a failover: Sentinels wait 30 s before they act, clusters 15 s
FAILOVER_TIMEOUT_S = 90.0
REDISPY_RETRIES = 6  # of redis-py's own, with waits of 0.1 to 2 s between
SCAN_COUNT = 1000
POLL_S = 0.1  # between looks at streams that no single XREAD can wait for
FIXED_SETTINGS = {"protocol": 2, "decode_responses": False}  # how replies are read here
OK_REPLY = b"+OK\r\n"
TRANSIENT_ERRORS = {"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN"}

T = TypeVar("T")
log = logging.getLogger(__name__)


class ServerUnavailable(redis.ConnectionError):
    """The server that answered is not the one to ask, or not now. Open a new connection."""


class StreamReadError(HeadraceError):
    """The server refuses what was asked of a stream."""

    def __init__(self, stream: str, error: Exception) -> None:
        super().__init__(f"Cannot read the stream {stream!r}: {error}")


def redispy_retry() -> Retry:
    """How often, and how patiently, redis-py makes a lost connection again.

    A timeout is not retried: it has taken TIMEOUT_S, and the server may have a reason.
    """
    lost = tuple(error for error in CONNECTION_ERRORS if error is not redis.TimeoutError)
    return Retry(ExponentialBackoff(cap=2, base=0.1), REDISPY_RETRIES, supported_errors=lost)


class Servers:
    """The servers at one URL (see client.url). Connects when first used; pickled as nothing but the URL.

    patience: seconds to wait for a lost server; by default what a restart or a failover may take.
    """

    def __init__(self, url: str, reconnect_timeout: float | None = None) -> None:
        self.url = url
        self._server_url = parse_server_url(url)
        for name, value in FIXED_SETTINGS.items():
            if str(self._server_url.settings.get(name, value)) != str(value):
                raise UsageError(
                    f"{without_password(url)}: leave {name} out of the URL; it is always {value}"
                )
        self._given_timeout = reconnect_timeout
        default = RESTART_TIMEOUT_S if self._server_url.kind == "standalone" else FAILOVER_TIMEOUT_S
        self.reconnect_timeout = default if reconnect_timeout is None else reconnect_timeout
        self._client: Any = None
        self._owners_are_fresh = False  # the table of owners was read since it was last relied upon
        self._ask_targets: dict[str, tuple[str, int]] = {}  # streams on the move, and where to ASK for them

    def __reduce__(self) -> tuple[type[Servers], tuple[str, float | None]]:
        return Servers, (self.url, self._given_timeout)

    def __repr__(self) -> str:
        return f"Servers({without_password(self.url)!r})"

    def client(self) -> Any:
        """redis-py's client, made once. That of a cluster finds the node of a key by itself."""
        if self._client is None:
            self._client = self._connect()
            self._owners_are_fresh = True
        return self._client

    def _connect(self) -> Any:
        server = self._server_url
        common = {"protocol": 2, "socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
        settings = common | server.settings
        retrying = {"retry": redispy_retry()} if self.reconnect_timeout else {}
        if server.kind == "cluster":
            nodes = [ClusterNode(host, port) for host, port in server.hosts]  # type: ignore[no-untyped-call]
            return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **settings)
        if server.kind == "sentinel":
            # Of a Sentinel that does not reply nothing is expected: the next one is asked.
            sentinel_settings = common | {"retry": Retry(NoBackoff(), 0)} | server.sentinel_settings
            sentinels = Sentinel(server.hosts, sentinel_kwargs=sentinel_settings)  # type: ignore[no-untyped-call]
            return sentinels.master_for(  # type: ignore[no-untyped-call]
                server.service, redis_connect_func=_require_master, **retrying | settings
            )
        return redis.Redis.from_url(self.url, **common, **retrying)

    def close(self) -> None:
        """Close the connections of the client; wires are closed by who opened them. May be used again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def with_retries(self, work: Callable[[], T]) -> T:
        """What work returns; done again when servers are lost, for as long as a failover may take."""

        def attempt() -> T:
            try:
                return work()
            except RedisClusterException:
                self.close()  # none of the nodes it knows replies: begin again with those of the URL
                raise
            except AskError as redirect:  # redis-py follows it, but in a transaction it does not
                if self._server_url.kind != "cluster":
                    raise cluster_node_error(self.url) from redirect
                raise ServerUnavailable(str(redirect)) from redirect

        return retry_while_lost(self.reconnect_timeout, attempt)

    def request_many(
        self, streams: Iterable[str], enqueue: Callable[[Any, str], object]
    ) -> dict[str, list[Any]]:
        """Ask about many streams in one round trip a shard; the replies of each, errors among them.

        enqueue(pipe, stream) queues read-only commands on a redis-py pipeline; they may be sent twice.
        """
        streams = tuple(streams)
        counts: dict[str, int] = {}

        def work() -> list[Any]:
            pipe = self.client().pipeline(transaction=False)
            for stream in streams:
                before = len(pipe)
                enqueue(pipe, stream)
                counts[stream] = len(pipe) - before
            replies: list[Any] = pipe.execute(raise_on_error=False) if len(pipe) else []
            for reply in replies:
                if isinstance(reply, CONNECTION_ERRORS):
                    raise reply
                if isinstance(reply, MovedError):
                    raise cluster_node_error(self.url)
            return replies

        replies = iter(self.with_retries(work))
        return {stream: [next(replies) for _ in range(n)] for stream, n in counts.items()}

    def request(self, streams: Iterable[str], enqueue: Callable[[Any, str], object]) -> dict[str, Any]:
        """ask_each() for a put that queues one command: the reply for each stream, or its error."""
        return {stream: replies[0] for stream, replies in self.request_many(streams, enqueue).items()}

    def scan(self, pattern: str | re.Pattern[str]) -> list[str]:
        """The streams, on all shards, whose whole names, as stream_names writes them, match; sorted."""
        matches = (re.compile(pattern, re.DOTALL) if isinstance(pattern, str) else pattern).fullmatch

        def work() -> set[bytes]:
            return set(self.client().scan_iter(count=SCAN_COUNT, _type="stream"))

        return sorted(name for name in map(stream_name, self.with_retries(work)) if matches(name))

    def wait_for_entries(self, after: Mapping[str, str], milliseconds: int) -> bool:
        """Return when a stream has an entry after the ID given, or when time is over, or in between.

        No one XREAD can wait for streams of several slots; then this is a short sleep. False if there is
        certainly no such entry.
        """
        client = self.client()
        if not after:
            time.sleep(milliseconds / 1000)
            return False
        if (
            self._server_url.kind == "cluster"
            and len({client.keyslot(stream_key(stream)) for stream in after}) > 1
        ):
            time.sleep(min(milliseconds / 1000, POLL_S))
            return True
        positions = {stream_key(stream): entry_id for stream, entry_id in after.items()}
        return bool(self.with_retries(lambda: self.client().xread(positions, count=1, block=milliseconds)))

    def owner(self, stream: str) -> str:
        """Return the name of the node that owns the stream; streams of one owner may share a connection."""
        if self._server_url.kind != "cluster":
            return ""
        node = self.with_retries(lambda: self.client().get_node_from_key(stream_key(stream)))
        return str(node.name) if node else ""

    def open_raw(self, stream: str) -> RawConnection:
        """A new connection to the server that owns the stream; waits while none does."""
        return self.with_retries(lambda: RawConnection(self, stream))

    def open_connection(self, stream: str) -> tuple[redis.Connection, bool]:
        """An open connection to the owner of the stream, and whether each request must say ASKING."""
        client = self.client()
        target = self._ask_targets.pop(stream, None)
        if target:
            pool = client.nodes_manager.create_redis_node(
                *target, **client.get_connection_kwargs()
            ).connection_pool
        elif self._server_url.kind == "cluster":
            if not self._owners_are_fresh:
                client.nodes_manager.initialize()
            self._owners_are_fresh = False
            node = client.get_node_from_key(stream_key(stream))
            if node is None:
                raise ServerUnavailable(f"no server owns the slot of {stream!r}")
            pool = client.get_redis_connection(node).connection_pool
        else:
            pool = client.connection_pool
        connection = pool.connection_class(**pool.connection_kwargs | {"retry": Retry(NoBackoff(), 0)})
        connection.connect()
        return connection, target is not None

    def raise_if_unavailable(self, stream: str, error: str) -> None:
        """Raise Moved if the error that a server answered means: another server, or the same one later."""
        kind, _, rest = error.partition(" ")
        if kind not in TRANSIENT_ERRORS:
            return
        if kind in ("MOVED", "ASK") and self._server_url.kind != "cluster":
            raise cluster_node_error(self.url)
        if kind == "ASK":
            host, _, port = rest.rpartition(" ")[2].rpartition(":")
            if host:  # a server that does not know its name cannot be asked before the move is over
                self._ask_targets[stream] = (host, int(port))
        raise ServerUnavailable(error)


def _require_master(connection: Any) -> None:
    """What a connection begins with where Sentinels are: what they say may be older than a failover."""
    connection.on_connect()
    connection.send_command("ROLE")
    if connection.read_response()[0] != b"master":
        raise ServerUnavailable("the server is a replica")


class RawConnection:
    """One connection, opened by redis-py (TLS, login, database), whose replies we read as raw bytes.

    Who gets one of CONNECTION_ERRORS from it closes it and asks Servers for another.
    """

    def __init__(self, servers: Servers, stream: str) -> None:
        self._servers = servers
        self._stream = stream
        self._connection: Any
        self._connection, self._asking = self._servers.open_connection(stream)
        self._socket: socket.socket = self._connection._sock
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._asking_reply_bytes = 0  # bytes to come that reply ASKING

    def send(self, *arguments: bytes | int) -> None:
        """Send one command; its reply comes in through receive()."""
        self.send_encoded(*self._connection.pack_command(*arguments))

    def send_encoded(self, *commands: bytes | bytearray | memoryview) -> None:
        """Send commands that are encoded already.

        While a stream moves between the nodes of a cluster this must be one command, or one transaction.
        """
        if self._asking:
            commands = (b"*1\r\n$6\r\nASKING\r\n", *commands)
            self._asking_reply_bytes += len(OK_REPLY)
        self._connection.send_packed_command(commands, check_health=False)

    def wait_readable(self, seconds: float) -> bool:
        """Wait for something to receive; False if there is nothing after so many seconds."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(self._poll.poll(seconds * 1000))

    def receive(self, buffer: bytearray | memoryview) -> int:
        """Read what has arrived into buffer, waiting for the first byte; how many bytes there are."""
        while True:
            n = self._socket.recv_into(buffer)
            if n == 0:
                raise redis.ConnectionError("the server closed the connection")
            skipped = min(n, self._asking_reply_bytes)
            if skipped:
                self._asking_reply_bytes -= skipped
                n -= skipped
                buffer[:n] = buffer[skipped : skipped + n]
            if n:
                return n

    def raise_if_unavailable(self, error: object) -> None:
        """Raise Moved if an error that the server answered means that this wire is of no more use."""
        self._servers.raise_if_unavailable(self._stream, str(error))

    def close(self) -> None:
        """Close the socket; also when a reply is still on its way."""
        self._connection.disconnect()
