"""Servers: who owns a stream, and connections there. One server, a master that Sentinels name, or a cluster.

    planning    client()        redis-py's, which finds the owners of keys by itself
                ask(streams)    one round trip a shard, however many streams
    data        wire(stream)    raw bytes to and from the server that owns the stream

Whatever says that another server is to be asked, or the same one later, counts as a lost connection: MOVED,
ASK, TRYAGAIN, CLUSTERDOWN, LOADING, READONLY, MASTERDOWN. Who loses a connection asks for a wire anew, and
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

from headrace.errors import HeadraceError, UsageError
from headrace.retry import CONNECTION_ERRORS as CONNECTION_ERRORS
from headrace.retry import retry_while_lost
from headrace.server_url import cluster_node_error, parse_server_url, without_password
from headrace.spark.stream_names import key, name_of

TIMEOUT_S = 30.0  # a server that says nothing for so long is taken for dead
RESTART_S = 20.0  # how long to wait for a server that is restarted
FAILOVER_S = 90.0  # or for another to take its place: Sentinels look for 30 s before they act, clusters 15 s
RETRIES = 6  # of redis-py's own, with waits of 0.1 to 2 s between
SCAN_COUNT = 1000
POLL_S = 0.1  # between looks at streams that no single XREAD can wait for
FIXED = {"protocol": 2, "decode_responses": False}  # how replies are read here
OKAY = b"+OK\r\n"
ELSEWHERE = {"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN"}

T = TypeVar("T")
log = logging.getLogger(__name__)


class Moved(redis.ConnectionError):
    """The server that answered is not the one to ask, or not now. Open a new wire."""


class StreamRefused(HeadraceError):
    """The server refuses what was asked of a stream."""

    def __init__(self, stream: str, refused: Exception) -> None:
        super().__init__(f"Cannot read the stream {stream!r}: {refused}")


def retry() -> Retry:
    """How often, and how patiently, redis-py makes a lost connection again.

    A timeout is not retried: it has taken TIMEOUT_S, and the server may have a reason.
    """
    lost = tuple(error for error in CONNECTION_ERRORS if error is not redis.TimeoutError)
    return Retry(ExponentialBackoff(cap=2, base=0.1), RETRIES, supported_errors=lost)


class Servers:
    """The servers at one URL (see server_url). Connects when first used; pickled as nothing but the URL.

    patience: seconds to wait for a lost server; by default what a restart or a failover may take.
    """

    def __init__(self, url: str, patience: float | None = None) -> None:
        self.url = url
        self._place = parse_server_url(url)
        for name, value in FIXED.items():
            if str(self._place.settings.get(name, value)) != str(value):
                raise UsageError(
                    f"{without_password(url)}: leave {name} out of the URL; it is always {value}"
                )
        self._given = patience
        usual = RESTART_S if self._place.kind == "standalone" else FAILOVER_S
        self.patience = usual if patience is None else patience
        self._client: Any = None
        self._looked = False  # the table of owners was read since it was last relied upon
        self._asked: dict[str, tuple[str, int]] = {}  # streams on the move, and where to ASK for them

    def __reduce__(self) -> tuple[type[Servers], tuple[str, float | None]]:
        return Servers, (self.url, self._given)

    def __repr__(self) -> str:
        return f"Servers({without_password(self.url)!r})"

    def client(self) -> Any:
        """redis-py's client, made once. That of a cluster finds the node of a key by itself."""
        if self._client is None:
            self._client = self._connect()
            self._looked = True
        return self._client

    def _connect(self) -> Any:
        place = self._place
        common = {"protocol": 2, "socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
        settings = common | place.settings
        again = {"retry": retry()} if self.patience else {}
        if place.kind == "cluster":
            nodes = [ClusterNode(host, port) for host, port in place.hosts]  # type: ignore[no-untyped-call]
            return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **settings)
        if place.kind == "sentinel":
            # Of a Sentinel that does not answer nothing is expected: the next one is asked.
            theirs = common | {"retry": Retry(NoBackoff(), 0)} | place.sentinel_settings
            sentinels = Sentinel(place.hosts, sentinel_kwargs=theirs)  # type: ignore[no-untyped-call]
            return sentinels.master_for(  # type: ignore[no-untyped-call]
                place.service, redis_connect_func=_master_only, **again | settings
            )
        return redis.Redis.from_url(self.url, **common, **again)

    def close(self) -> None:
        """Close the connections of the client; wires are closed by who opened them. May be used again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def patiently(self, work: Callable[[], T]) -> T:
        """What work returns; done again when servers are lost, for as long as a failover may take."""

        def attempt() -> T:
            try:
                return work()
            except RedisClusterException:
                self.close()  # none of the nodes it knows answers: begin again with those of the URL
                raise
            except AskError as moving:  # redis-py follows it, but in a transaction it does not
                if self._place.kind != "cluster":
                    raise cluster_node_error(self.url) from moving
                raise Moved(str(moving)) from moving

        return retry_while_lost(self.patience, attempt)

    def ask_each(self, streams: Iterable[str], put: Callable[[Any, str], object]) -> dict[str, list[Any]]:
        """Ask about many streams in one round trip a shard; the answers of each, errors among them.

        put(pipe, stream) queues commands on a redis-py pipeline. They may be sent more than once: only reads.
        """
        streams = tuple(streams)
        counts: dict[str, int] = {}

        def work() -> list[Any]:
            pipe = self.client().pipeline(transaction=False)
            for stream in streams:
                before = len(pipe)
                put(pipe, stream)
                counts[stream] = len(pipe) - before
            answers: list[Any] = pipe.execute(raise_on_error=False) if len(pipe) else []
            for answer in answers:
                if isinstance(answer, CONNECTION_ERRORS):
                    raise answer
                if isinstance(answer, MovedError):
                    raise cluster_node_error(self.url)
            return answers

        answers = iter(self.patiently(work))
        return {stream: [next(answers) for _ in range(n)] for stream, n in counts.items()}

    def ask(self, streams: Iterable[str], put: Callable[[Any, str], object]) -> dict[str, Any]:
        """ask_each() for a put that queues one command: the answer for each stream, or its error."""
        return {stream: answers[0] for stream, answers in self.ask_each(streams, put).items()}

    def scan(self, pattern: str | re.Pattern[str]) -> list[str]:
        """The streams, on all shards, whose whole names, as stream_names writes them, match; sorted."""
        matches = (re.compile(pattern, re.DOTALL) if isinstance(pattern, str) else pattern).fullmatch

        def work() -> set[bytes]:
            return set(self.client().scan_iter(count=SCAN_COUNT, _type="stream"))

        return sorted(name for name in map(name_of, self.patiently(work)) if matches(name))

    def wait(self, after: Mapping[str, str], milliseconds: int) -> bool:
        """Return when a stream has an entry after the ID given, or when time is over, or in between.

        No one XREAD can wait for streams of several slots; then this is a short sleep. False if there is
        certainly no such entry.
        """
        client = self.client()
        if not after:
            time.sleep(milliseconds / 1000)
            return False
        if self._place.kind == "cluster" and len({client.keyslot(key(stream)) for stream in after}) > 1:
            time.sleep(min(milliseconds / 1000, POLL_S))
            return True
        places = {key(stream): entry_id for stream, entry_id in after.items()}
        return bool(self.patiently(lambda: self.client().xread(places, count=1, block=milliseconds)))

    def owner(self, stream: str) -> str:
        """The server that owns the stream, as far as is known: streams with equal owners may share a wire."""
        if self._place.kind != "cluster":
            return ""
        node = self.patiently(lambda: self.client().get_node_from_key(key(stream)))
        return str(node.name) if node else ""

    def wire(self, stream: str) -> Wire:
        """A new connection to the server that owns the stream; waits while none does."""
        return self.patiently(lambda: Wire(self, stream))

    def connection(self, stream: str) -> tuple[redis.Connection, bool]:
        """An open connection to the owner of the stream, and whether each request must say ASKING."""
        client = self.client()
        asked = self._asked.pop(stream, None)
        if asked:
            pool = client.nodes_manager.create_redis_node(
                *asked, **client.get_connection_kwargs()
            ).connection_pool
        elif self._place.kind == "cluster":
            if not self._looked:
                client.nodes_manager.initialize()
            self._looked = False
            node = client.get_node_from_key(key(stream))
            if node is None:
                raise Moved(f"no server owns the slot of {stream!r}")
            pool = client.get_redis_connection(node).connection_pool
        else:
            pool = client.connection_pool
        made = pool.connection_class(**pool.connection_kwargs | {"retry": Retry(NoBackoff(), 0)})
        made.connect()
        return made, asked is not None

    def elsewhere(self, stream: str, refused: str) -> None:
        """Raise Moved if the error that a server answered means: another server, or the same one later."""
        kind, _, rest = refused.partition(" ")
        if kind not in ELSEWHERE:
            return
        if kind in ("MOVED", "ASK") and self._place.kind != "cluster":
            raise cluster_node_error(self.url)
        if kind == "ASK":
            host, _, port = rest.rpartition(" ")[2].rpartition(":")
            if host:  # a server that does not know its name cannot be asked before the move is over
                self._asked[stream] = (host, int(port))
        raise Moved(refused)


def _master_only(connection: Any) -> None:
    """What a connection begins with where Sentinels are: what they say may be older than a failover."""
    connection.on_connect()
    connection.send_command("ROLE")
    if connection.read_response()[0] != b"master":
        raise Moved("the server is a replica")


class Wire:
    """One connection, opened by redis-py (TLS, login, database), whose answers we read as raw bytes.

    Who gets one of CONNECTION_ERRORS from it closes it and asks Servers for another.
    """

    def __init__(self, servers: Servers, stream: str) -> None:
        self._servers = servers
        self._stream = stream
        self._connection: Any
        self._connection, self._asking = self._servers.connection(stream)
        self._socket: socket.socket = self._connection._sock
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._okays = 0  # bytes to come that answer ASKING

    def send(self, *words: bytes | int) -> None:
        """Send one command; its answer comes in through receive()."""
        self.send_raw(*self._connection.pack_command(*words))

    def send_raw(self, *commands: bytes | bytearray | memoryview) -> None:
        """Send commands that are encoded already.

        While a stream moves between the nodes of a cluster this must be one command, or one transaction.
        """
        if self._asking:
            commands = (b"*1\r\n$6\r\nASKING\r\n", *commands)
            self._okays += len(OKAY)
        self._connection.send_packed_command(commands, check_health=False)

    def readable(self, seconds: float) -> bool:
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
            okays = min(n, self._okays)
            if okays:
                self._okays -= okays
                n -= okays
                buffer[:n] = buffer[okays : okays + n]
            if n:
                return n

    def moved(self, refused: object) -> None:
        """Raise Moved if an error that the server answered means that this wire is of no more use."""
        self._servers.elsewhere(self._stream, str(refused))

    def close(self) -> None:
        """Close the socket; also when an answer is still on its way."""
        self._connection.disconnect()
