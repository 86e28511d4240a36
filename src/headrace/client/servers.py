"""The servers at a URL: requests about streams, and connections to the servers that own the streams.

    planning    client()                 redis-py's, which finds the owners of keys
                request_each(streams)    one round trip per shard, however many streams
    data        open_raw(stream)         a connection to the server that owns the stream

Error replies that ask for another server, or for the same one later, are raised as a lost connection
(ServerUnavailable): MOVED, ASK, TRYAGAIN, CLUSTERDOWN, LOADING, READONLY, MASTERDOWN. The next open_raw()
looks for the owner again. So failovers need no code anywhere else.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import AskError, RedisClusterException
from redis.retry import Retry

from headrace.client.connection import RawConnection
from headrace.client.connection_errors import (
    CODE_BY_UNAVAILABLE_ERROR,
    CONNECTION_ERRORS,
    ServerUnavailable,
    explain_connection_errors,
)
from headrace.client.replicas import ReadReplicaTopology
from headrace.client.retrying import retry_while_lost
from headrace.client.stream_names import stream_key, stream_name
from headrace.client.topology import CONNECTION_SETTINGS, NO_RETRY, Cluster, Topology, topology_of_url
from headrace.client.url import parse_server_url, without_password
from headrace.errors import UsageError

REDISPY_RETRIES = 6  # of redis-py's own, with waits of 0.1 to 2 s between
SCAN_COUNT = 1000
STREAM_POLL_S = 0.1  # between checks of streams that no single XREAD can wait for

T = TypeVar("T")


def redispy_retry() -> Retry:
    """Return redis-py's retry policy for lost connections.

    A timeout is not retried: it has taken SOCKET_TIMEOUT_S, and the server may be slow for a reason.
    """
    lost = tuple(error for error in CONNECTION_ERRORS if error is not redis.TimeoutError)
    return Retry(ExponentialBackoff(cap=2, base=0.1), REDISPY_RETRIES, supported_errors=lost)


@contextmanager
def servers_at(url: str) -> Iterator[Servers]:
    """Yield the servers at a URL and close them. Raises HeadraceError, without a retry, if one is lost."""
    with Servers(url, reconnect_timeout=0) as servers, explain_connection_errors(url):
        yield servers


class Servers:
    """The servers at one URL (see client.url). Connects when first used. A pickle has only the arguments.

    reconnect_timeout: seconds to wait for a lost server; None: the default of the topology, enough for
        a restart or a failover.
    read_from: "primary", or "replica" for requests that only read.
    """

    def __init__(self, url: str, reconnect_timeout: float | None = None, read_from: str = "primary") -> None:
        self.url = url
        self.reads_replica = read_from == "replica"
        self._arguments = (url, reconnect_timeout, read_from)
        parsed, shown = parse_server_url(url), without_password(url)
        for name in ("protocol", "decode_responses"):
            value = CONNECTION_SETTINGS[name]
            if str(parsed.settings.get(name, value)) != str(value):
                raise UsageError(f"{shown}: leave {name} out of the URL; it is always {value}")
        # redis-py's client of a cluster has retries of its own. Others would exceed a timeout that is given.
        retry = redispy_retry() if parsed.kind != "cluster" and reconnect_timeout is None else None
        self._topology: Topology = (
            ReadReplicaTopology(parsed, shown)
            if self.reads_replica
            else topology_of_url(parsed, shown, retry)
        )
        default = self._topology.reconnect_timeout
        self.reconnect_timeout = default if reconnect_timeout is None else reconnect_timeout
        self._owners_are_fresh = True  # the table of owners was read since it was last relied upon
        self._ask_targets: dict[str, tuple[str, int]] = {}  # streams on the move, and where to ASK for them

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Servers], tuple[str, float | None, str]]:
        return Servers, self._arguments

    def __repr__(self) -> str:
        return f"Servers({without_password(self.url)!r})"

    @property
    def is_cluster(self) -> bool:
        """Whether streams may belong to several servers."""
        return isinstance(self._topology, Cluster)

    def client(self) -> Any:
        """Return redis-py's client. For a cluster, the client finds the node of each key."""
        return self._topology.client()

    def close(self) -> None:
        """Close the connections of the client, but not those of open_raw(). The client may be used again."""
        self._topology.close()
        self._owners_are_fresh = True  # the next client reads them

    def with_retries(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; repeat it while servers are lost, for `reconnect_timeout` seconds."""

        def attempt() -> T:
            try:
                return work()
            except RedisClusterException:
                self.close()  # none of the nodes it knows replies: start from those of the URL
                raise
            except CONNECTION_ERRORS:
                if self.reads_replica:
                    self._topology.refresh()  # another replica may do
                raise
            except AskError as redirect:  # redis-py follows it, but in a transaction it does not
                self._topology.on_redirect()
                raise ServerUnavailable(str(redirect)) from redirect

        return retry_while_lost(self.reconnect_timeout, attempt)

    def request_many(
        self,
        streams: Iterable[str],
        enqueue: Callable[[Any, str], object],
        reached: Mapping[str, str] | None = None,
    ) -> dict[str, list[Any]]:
        """Return the replies about many streams, errors among them, after one round trip per shard.

        Args:
            enqueue: called with a redis-py pipeline and a stream, queues read-only commands; they may be sent
                twice.
            reached: by stream, an ID that a replica must have. Then the last command that enqueue() queues
                for the stream must be XINFO STREAM. The call waits for a replica that is behind; see
                ReadReplicaTopology.require_caught_up().
        """
        streams = tuple(streams)
        counts: dict[str, int] = {}

        def work() -> dict[str, list[Any]]:
            pipe = self.client().pipeline(transaction=False)
            for stream in streams:
                before = len(pipe)
                enqueue(pipe, stream)
                counts[stream] = len(pipe) - before
            replies: list[Any] = pipe.execute(raise_on_error=False) if len(pipe) else []
            for reply in replies:
                if isinstance(reply, (AskError, *CONNECTION_ERRORS)):  # MovedError is an AskError
                    raise reply
            each = iter(replies)
            found = {stream: [next(each) for _ in range(n)] for stream, n in counts.items()}
            if reached and isinstance(self._topology, ReadReplicaTopology):
                infos = {stream: found[stream][-1] for stream in reached if stream in found}
                self._topology.require_caught_up(
                    {s: i["last-generated-id"].decode() for s, i in infos.items() if isinstance(i, dict)},
                    {stream: reached[stream] for stream in infos},
                )
            return found

        return self.with_retries(work)

    def request_each(self, streams: Iterable[str], enqueue: Callable[[Any, str], object]) -> dict[str, Any]:
        """Send one command per stream, like request_many(); return the reply or error of each stream."""
        return {stream: replies[0] for stream, replies in self.request_many(streams, enqueue).items()}

    def wait_for_replica(self, reached: Mapping[str, str]) -> None:
        """Wait until the replica has these IDs of streams, as far as its primary has them.

        Does nothing if the primary is read. Raises ServerUnavailable after `reconnect_timeout` seconds.
        """
        if self.reads_replica and reached:
            self.request_many(reached, lambda pipe, s: pipe.xinfo_stream(stream_key(s)), reached)

    def iter_streams(self) -> Iterator[str]:
        """Yield the names of all streams as the servers list them; a name may come twice."""
        return map(stream_name, self.client().scan_iter(count=SCAN_COUNT, _type="stream"))

    def matching_streams(self, pattern: str | re.Pattern[str]) -> list[str]:
        """Return the streams, on all shards, whose whole names match (see client.stream_names); sorted."""
        matches = (re.compile(pattern, re.DOTALL) if isinstance(pattern, str) else pattern).fullmatch
        names = self.with_retries(lambda: set(self.iter_streams()))
        return sorted(name for name in names if matches(name))

    def wait_for_entries(self, after: Mapping[str, str], milliseconds: int) -> bool:
        """Wait until a stream has an entry after its ID, but not longer than `milliseconds`.

        No single XREAD can wait for streams of several slots of a cluster. For such streams, the call only
        sleeps for a moment.

        Args:
            after: an ID for each stream.

        Returns:
            False if no stream has such an entry; True if one has, or may have.
        """
        if not after:
            time.sleep(milliseconds / 1000)
            return False
        positions = {stream_key(stream): entry_id for stream, entry_id in after.items()}
        if len(set(map(self._topology.slot_of, positions))) > 1:
            time.sleep(min(milliseconds / 1000, STREAM_POLL_S))
            return True
        return bool(self.with_retries(lambda: self.client().xread(positions, count=1, block=milliseconds)))

    def owner_node_name(self, stream: str) -> str:
        """Return the name of the node that owns the stream, "" without a cluster.

        Streams of one owner may share a connection.
        """
        return self.with_retries(lambda: self._topology.owner_node_name(stream_key(stream)))

    def open_raw(self, stream: str, reached: str | None = None) -> RawConnection:
        """Open a connection to the server that owns the stream.

        Retries for `reconnect_timeout` seconds while there is no owner, or it cannot be reached.

        Args:
            reached: an ID of the stream that a replica must have, as in request_many().
        """

        def work() -> RawConnection:
            connection = RawConnection(self, stream)
            if reached is not None and isinstance(self._topology, ReadReplicaTopology):
                try:
                    last_id = connection.last_generated_id()
                    found = {} if last_id is None else {stream: last_id}
                    self._topology.require_caught_up(found, {stream: reached})
                except BaseException:
                    connection.close()
                    raise
            return connection

        return self.with_retries(work)

    def open_connection(self, stream: str) -> tuple[redis.Connection, bool]:
        """Open a connection to the owner of the stream, without a retry.

        Returns:
            The connection, and whether each request on it needs an ASKING before.
        """
        target = self._ask_targets.pop(stream, None)
        if target:
            pool = self._topology.pool_for_address(target)
        else:
            if self.is_cluster and not self._owners_are_fresh:
                self._topology.refresh()
            self._owners_are_fresh = False
            pool = self._topology.pool_for_key(stream_key(stream))
        connection = pool.connection_class(**pool.connection_kwargs | {"retry": NO_RETRY})
        connection.connect()
        return connection, target is not None

    def raise_if_unavailable(self, stream: str, error: str, follow_ask: bool = True) -> None:
        """Raise ServerUnavailable if an error reply asks for another server, or for the same one later.

        Args:
            follow_ask: the next connection will send single commands, so it may go where ASK points. False:
                the caller must retry until the slot has moved.
        """
        kind, _, rest = error.partition(" ")
        if kind not in CODE_BY_UNAVAILABLE_ERROR.values():
            return
        if kind in ("MOVED", "ASK"):
            self._topology.on_redirect()
        if kind == "ASK" and follow_ask:
            host, _, port = rest.rpartition(" ")[2].rpartition(":")
            if host:  # a server that does not know its name cannot be asked before the move is over
                self._ask_targets[stream] = (host, int(port))
        raise ServerUnavailable(error)
