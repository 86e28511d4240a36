"""The remote backend: one or more servers, through redis-py's connections.

headrace.client.retrying says what is retried when a connection is lost.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import redis
from redis.exceptions import AskError, ReadOnlyError, ResponseError

from headrace.api.backend import Stop, Wakeup, ids_or_raise
from headrace.api.codecs.arguments import decode_name
from headrace.api.codecs.field_encoding import encode_fields
from headrace.client.connection import exchange
from headrace.client.connection_errors import (
    AUTH_ERRORS,
    CONNECTION_ERRORS,
    UNAVAILABLE_ERRORS,
    ServerUnavailable,
    as_command_error,
    connection_advice,
    is_role_change_error,
    protocol_error,
    readonly_error_text,
)
from headrace.client.interruptible import (
    WakeupSocket,
    WakeupSocketPool,
    exchange_until_woken,
    may_unblock,
)
from headrace.client.replicas import ReadReplicaTopology
from headrace.client.reply_shapes import check_reply
from headrace.client.retrying import ReconnectDelay, is_repeatable
from headrace.client.server_errors import command_error
from headrace.client.topology import Cluster, topology_of
from headrace.client.url import parse_server_url, without_password
from headrace.errors import (
    AccessDenied,
    CommandError,
    ConnectionLost,
    DatabaseClosed,
    HeadraceError,
    NotReplicated,
    UnexpectedReply,
    UsageError,
)

POLL_S = 0.1  # between checks of a Stop, if the user may not send CLIENT UNBLOCK
OFFSET_ADVANCE_CHANNEL = b"headrace:wait"  # a message to it advances the replication offset for WAIT
BLOCKING_READ_MAX_S = 10.0  # a longer read is repeated, so that a dead connection is noticed

# What redis-py raises while it connects to a program that is no Redis server.
NOT_REDIS_ERRORS = (redis.InvalidResponse, TypeError, ValueError, LookupError, AttributeError)

COMMANDS_WITH_SUBCOMMAND = frozenset(b"XINFO XGROUP OBJECT MEMORY".split())  # their key follows a subcommand
KEYLESS_COMMANDS = frozenset(
    b"PING TIME INFO CONFIG CLIENT SCAN KEYS DBSIZE FLUSHALL FLUSHDB COMMAND".split()
)


class ReplicaWait(NamedTuple):
    """How many replicas must have a write, and how long to wait for them."""

    replicas: int
    seconds: float


class RemoteBackend:
    """A backend on the servers of a URL (see headrace.client.url) or of a redis-py client.

    ConnectionLost.maybe_executed tells whether the server may have executed the request.

    Args:
        server: the URL or the client.
        reconnect_timeout: seconds to retry when a server is lost; None: enough for a restart (20 s), or for
            a failover with Sentinels or in a cluster (90 s). The first connection is not retried.
        replica_wait: what add() and add_many() wait for after each call; None: nothing.
        read_from: "replica": `reading_backend` is a backend on a replica.

    Raises:
        UsageError: if `server` is neither a valid URL nor a redis-py client; or if read_from is "replica" and
            `server` is a client or a cluster.
    """

    is_remote = True

    def __init__(
        self,
        server: Any,
        *,
        reconnect_timeout: float | None = None,
        replica_wait: ReplicaWait | None = None,
        read_from: str = "primary",
    ) -> None:
        self.url_or_client = server
        self.topology = topology_of(server)
        self.replica_wait = replica_wait
        self.reconnect_timeout = (
            self.topology.reconnect_timeout if reconnect_timeout is None else reconnect_timeout
        )
        self._closed = False
        self._wakeups = WakeupSocketPool()
        self.reading_backend: RemoteBackend = self if read_from == "primary" else self._replica_reader()

    def _replica_reader(self) -> RemoteBackend:
        """Return a backend for requests that only read, on a replica."""
        if not isinstance(self.url_or_client, str):
            raise UsageError("read_from='replica' needs the server's URL: connect() was given a client")
        reader = copy.copy(self)
        reader.topology = ReadReplicaTopology(
            parse_server_url(self.url_or_client), without_password(self.url_or_client)
        )
        reader.reading_backend = reader
        return reader

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    def __repr__(self) -> str:
        return f"RemoteBackend({self.topology!r})"

    @property
    def is_cluster(self) -> bool:
        """Whether streams may belong to several servers."""
        return isinstance(self.topology, Cluster)

    def scan_stream_keys(self, match: str | bytes, count: int) -> set[bytes]:
        """Return the streams on all nodes of a cluster whose names match a glob pattern."""
        try:
            client = self.topology.client()
            return set(client.scan_iter(match, count=count, _type="stream"))
        except ResponseError as rejected:
            raise as_command_error(rejected) from None
        except (redis.RedisError, *CONNECTION_ERRORS) as lost:
            raise self._connection_lost_error(None, [(b"SCAN",)], lost, False) from lost

    def request(self, *words: bytes) -> Any:
        """Execute one command and return its reply."""
        return reply_or_raise(
            self._send_with_retries(first_key_of_request(words), [words], is_repeatable(words))[0]
        )

    def request_all(self, requests: Sequence[Sequence[bytes]], atomic: bool = False) -> list[Any]:
        """Execute many commands, with one round trip per server. Errors are elements of the returned list."""
        if not requests:
            return []
        repeatable = all(map(is_repeatable, requests))
        if atomic:
            if len({self.topology.slot_of(first_key_of_request(words)) for words in requests}) > 1:
                raise command_error("CROSSSLOT the keys of a transaction are not in one slot of the cluster")
            return _transaction_replies(self._send_transaction(requests, repeatable))
        found: list[Any] = [None] * len(requests)
        for key, numbers in self._by_owner(requests).items():
            replies = self._send_with_retries(key, [requests[n] for n in numbers], repeatable)
            for n, reply in zip(numbers, replies, strict=True):
                found[n] = reply
        return found

    def execute_blocking_read(
        self, words: Sequence[bytes], seconds: float | None, stop: Stop | None = None
    ) -> Any:
        """Execute a read that waits. Returns None after a timeout, or when `stop` is set.

        The thread sleeps until the server replies; `stop` wakes it, see headrace.client.interruptible. If the
        user may not send CLIENT UNBLOCK, `stop` is checked ten times a second.
        """
        if stop is None:
            return self._repeat_blocking_read(words, seconds, None, None)
        wakeup = self._wakeups.take()
        stop.add_wakeup(wakeup)
        try:
            return self._repeat_blocking_read(words, seconds, stop, wakeup)
        finally:
            stop.remove_wakeup(wakeup)
            self._wakeups.give_back(wakeup)

    def _repeat_blocking_read(
        self, words: Sequence[bytes], seconds: float | None, stop: Stop | None, wakeup: WakeupSocket | None
    ) -> Any:
        at = words.index(b"STREAMS")
        end = None if seconds is None else time.monotonic() + seconds
        while stop is None or not stop.is_set():
            longest = BLOCKING_READ_MAX_S if stop is None or self.topology.unblock_works else POLL_S
            if self.topology.timeout is not None:
                longest = min(longest, self.topology.timeout / 2)
            left = longest if end is None else min(longest, end - time.monotonic())
            block = (b"BLOCK", b"%d" % max(1, round(left * 1000))) if left > 0 else ()
            request = (*words[:at], *block, *words[at:])
            replies = self._send_with_retries(
                first_key_of_request(request), [request], is_repeatable(request), wakeup if block else None
            )
            reply = reply_or_raise(replies[0])
            if reply is not None or not block:
                return reply
        return None

    def add(
        self, key: bytes, id: bytes, fields: Mapping[Any, Any], options: Sequence[bytes] = ()
    ) -> bytes | None:
        """Execute XADD; return the ID, or None if NOMKSTREAM or IFLAST prevented the add.

        With IDMP the request is retried when the reply is lost.
        """
        words = (b"XADD", key, *options, id, *encode_fields(fields))
        idempotent = b"IDMP" in options
        if idempotent and self.replica_wait is not None:
            return self._add_once_and_wait(key, words)
        added, *waited = self._send_with_retries(key, [words, *self._wait_requests()], repeatable=idempotent)
        reply: bytes | None = reply_or_raise(added)
        if reply is not None:
            self._check_replicas([reply], waited)
        return reply

    def _add_once_and_wait(self, key: bytes, words: tuple[bytes, ...]) -> bytes | None:
        """Execute XADD with IDMP, and wait for replicas, also if the entry is a duplicate.

        WAIT is about what this connection has written, and a duplicate writes nothing. So a message without
        receivers is written before WAIT. A user that may not send it still adds: the server's time before
        XADD says whether the entry is new, which WAIT then covers. A duplicate is not confirmed.
        """
        requests = [(b"TIME",), words, (b"PUBLISH", OFFSET_ADVANCE_CHANNEL, b""), *self._wait_requests()]
        time_before, added, published, waited = self._send_with_retries(key, requests, repeatable=True)
        reply: bytes | None = reply_or_raise(added)
        if reply is not None:
            uncovered = None
            if isinstance(published, CommandError) and not _is_added_since(reply, time_before):
                uncovered = published
            self._check_replicas([reply], [waited], uncovered)
        return reply

    def add_many(
        self, key: bytes, entries: Iterable[Mapping[Any, Any]], options: Sequence[bytes] = ()
    ) -> list[bytes]:
        """Execute one XADD for each entry, as a transaction in one round trip; return the IDs.

        Raises the first error if entries are rejected, with `stored_ids`.
        """
        requests = [(b"XADD", key, *options, b"*", *encode_fields(fields)) for fields in entries]
        if not requests or self.replica_wait is None:
            return ids_or_raise(self.request_all(requests, atomic=len(requests) > 1))
        replies = self._send_transaction(requests, False, self._wait_requests())
        end = len(requests) + 2
        ids = ids_or_raise(_transaction_replies(replies[:end]))
        self._check_replicas(ids, replies[end:])
        return ids

    def without_retries(self) -> RemoteBackend:
        """Return a backend on the same connections that does not wait for a server that is away."""
        impatient = copy.copy(self)
        impatient.reconnect_timeout = 0
        return impatient

    def with_replica_wait(self, replicas: int, seconds: float) -> RemoteBackend:
        """Return a backend on the same connections whose writes wait `seconds` for `replicas` replicas."""
        waiting = copy.copy(self)
        waiting.replica_wait = ReplicaWait(replicas, seconds)
        return waiting

    def _wait_requests(self) -> list[tuple[bytes, ...]]:
        """Return the requests, after a write, that wait for replicas."""
        wait = self.replica_wait
        if wait is None:
            return []
        if self.topology.timeout is not None and wait.seconds >= self.topology.timeout:
            raise UsageError(
                f"a timeout of {wait.seconds} s for replicas: it must be less than that of the connection,"
                f" {self.topology.timeout} s"
            )
        words = (b"WAIT", b"%d" % wait.replicas, b"%d" % max(1, round(wait.seconds * 1000)))
        return [words]

    def _check_replicas(
        self, ids: list[bytes], replies: list[Any], uncovered: CommandError | None = None
    ) -> None:
        """Raise NotReplicated unless the replies to _wait_requests() confirm the entries.

        In that case the server may be a former primary, so the next request looks for the primary again.
        uncovered: why WAIT was not about these entries. A stored entry is never reported as rejected: if the
        user may not send WAIT, no replica has confirmed it.
        """
        wait = self.replica_wait
        if wait is None:
            return
        confirmed = 0
        denied = next((reply for reply in replies if isinstance(reply, AccessDenied)), uncovered)
        if denied is None and not any(map(is_role_change_error, replies)):
            confirmed = [reply_or_raise(reply) for reply in replies][-1]
        if confirmed < wait.replicas:
            self.topology.refresh()
            reason = f"replicas could not be asked: {denied}" if denied else ""
            raise NotReplicated(ids, confirmed, wait.replicas, reason) from denied

    def now_ms(self) -> int:
        """Return the time of this machine, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def slot_of(self, key: bytes) -> int:
        """Return the slot of a key; 0 without a cluster. One command can only read streams of one slot."""
        return self.topology.slot_of(key)

    def sleep(self, seconds: float, stop: Stop | None = None) -> bool:
        """Sleep. Returns True if stop ended the sleep."""
        if stop is None:
            time.sleep(max(0.0, seconds))
            return False
        wakeup = Wakeup()
        stop.add_wakeup(wakeup)
        try:
            wakeup.wait(seconds)
        finally:
            stop.remove_wakeup(wakeup)
        return stop.is_set()

    def close(self) -> None:
        """Close all connections. Calls that wait in other threads raise DatabaseClosed."""
        self._closed = True
        self.topology.close()
        self._wakeups.close()
        if self.reading_backend is not self:
            self.reading_backend.close()

    # Sending requests.

    def _by_owner(self, requests: Sequence[Sequence[bytes]]) -> dict[bytes | None, list[int]]:
        """Return the indexes of requests that may share a connection, by one of their keys."""
        owners: dict[str, bytes | None] = {}
        found: dict[bytes | None, list[int]] = {}
        for n, words in enumerate(requests):
            key = first_key_of_request(words)
            try:
                owner = self.topology.owner_node_name(key)
            except CONNECTION_ERRORS:  # retried when this request is sent
                owner = f"unknown {n}"
            found.setdefault(owners.setdefault(owner, key), []).append(n)
        return found

    def _send_with_retries(
        self,
        key: bytes | None,
        requests: Sequence[Sequence[bytes]],
        repeatable: bool,
        wakeup: WakeupSocket | None = None,
    ) -> list[Any]:
        """Return the replies, including errors as CommandErrors. Retries where that is safe.

        wakeup: ends a request that blocks.
        """
        delay = ReconnectDelay(self.reconnect_timeout if self.topology.was_connected else 0)
        asked: tuple[str, int] | None = None
        maybe_executed = False
        while True:
            try:
                replies = self._send_once(key, requests, asked, wakeup)
            except _NoReply as lost:
                maybe_executed = maybe_executed or lost.sent
                if self._closed or (lost.sent and not repeatable):
                    raise self._connection_lost_error(
                        key, requests, lost.cause, maybe_executed
                    ) from lost.cause
                failure = lost.cause
            else:
                if not self.topology.was_connected:
                    self.topology.was_connected = True
                    delay = ReconnectDelay(self.reconnect_timeout)
                moved = next((reply for reply in replies if isinstance(reply, UNAVAILABLE_ERRORS)), None)
                if moved is None:
                    return [
                        as_command_error(one) if isinstance(one, redis.RedisError) else one for one in replies
                    ]
                if len(replies) > 1 and requests[0][0] != b"MULTI" and requests[-1][0] != b"WAIT":
                    return self._resend_redirected(requests, replies)
                if isinstance(moved, AskError):  # MovedError is one
                    self.topology.on_redirect()
                failure = moved
                asked = (moved.host, moved.port) if type(moved) is AskError else None
            try:
                delay.wait_or_raise(failure)
            except AUTH_ERRORS as denied:
                raise as_command_error(denied) from None
            except CONNECTION_ERRORS + UNAVAILABLE_ERRORS as given_up:
                raise self._connection_lost_error(key, requests, given_up, maybe_executed) from given_up
            if asked is None:
                self.topology.refresh()

    def _send_transaction(
        self,
        requests: Sequence[Sequence[bytes]],
        repeatable: bool,
        after: Sequence[Sequence[bytes]] = (),
    ) -> list[Any]:
        """Send a transaction, and requests after it, in one round trip; return all replies.

        If the server rejects MULTI, it executes each of the requests at once. So the first transaction is
        preceded by an empty one, which fails if the user may not send MULTI and EXEC.
        """
        key = first_key_of_request(requests[0])
        if not self.topology.transactions_work:
            _transaction_replies(self._send_with_retries(key, [(b"MULTI",), (b"EXEC",)], repeatable=True))
            self.topology.transactions_work = True
        whole = [(b"MULTI",), *requests, (b"EXEC",), *after]
        return self._send_with_retries(key, whole, repeatable)

    def _resend_redirected(self, requests: Sequence[Sequence[bytes]], replies: list[Any]) -> list[Any]:
        """Send those requests again that were redirected to another server; return all replies."""
        found = []
        for words, reply in zip(requests, replies, strict=True):
            if isinstance(reply, UNAVAILABLE_ERRORS):
                found += self._send_with_retries(first_key_of_request(words), [words], is_repeatable(words))
            else:
                found.append(as_command_error(reply) if isinstance(reply, redis.RedisError) else reply)
        return found

    def _send_once(
        self,
        key: bytes | None,
        requests: Sequence[Sequence[bytes]],
        asked: tuple[str, int] | None,
        wakeup: WakeupSocket | None = None,
    ) -> list[Any]:
        """Send all requests and read all replies; error replies are exceptions of redis-py in the list."""
        try:
            if self._closed:
                raise redis.ConnectionError("the database is closed")
            pool = self.topology.pool_for_key(key) if asked is None else self.topology.pool_for_address(asked)
            connection = pool.get_connection()
        except redis.MaxConnectionsError:
            raise UsageError(
                f"all {pool.max_connections} connections of the client are in use: each follower, and each"
                " waiting reader, takes one. Give connect() a URL, or a client with a larger max_connections"
            ) from None
        except CONNECTION_ERRORS as cause:
            raise _NoReply(cause, sent=False) from cause
        except ResponseError as refused:  # while connecting: the database number does not exist, for example
            raise as_command_error(refused) from None
        except NOT_REDIS_ERRORS as wrong:
            raise protocol_error(repr(self.topology), wrong) from wrong
        words = requests if asked is None else [(b"ASKING",), *requests]
        try:
            if wakeup is not None and asked is None and self._may_unblock(connection):
                silence = BLOCKING_READ_MAX_S + (self.topology.timeout or BLOCKING_READ_MAX_S)
                replies = [exchange_until_woken(pool, connection, requests[0], wakeup, silence)]
            else:
                replies = exchange(connection, words)
        except CONNECTION_ERRORS as cause:
            raise _NoReply(cause, sent=True) from cause
        except redis.InvalidResponse as wrong:
            raise protocol_error(repr(self.topology), wrong) from wrong
        finally:
            pool.release(connection)
        if requests[0][0] != b"MULTI":  # else most replies are QUEUED
            for request, reply in zip(words, replies, strict=True):
                check_reply(repr(self.topology), request, reply)
        return replies if asked is None else replies[1:]

    def _may_unblock(self, connection: Any) -> bool:
        """Return whether the user may send CLIENT UNBLOCK; the server is asked once."""
        if self.topology.unblock_works is None:
            self.topology.unblock_works = may_unblock(connection)
        return self.topology.unblock_works

    def _describe_replica(self, key: bytes | None) -> str:
        """Return a description of the key's server, which replied READONLY."""
        try:
            [info] = self._send_once(key, [(b"INFO", b"replication")], None)
        except (_NoReply, HeadraceError):
            info = None
        return readonly_error_text(info)

    def _connection_lost_error(
        self,
        key: bytes | None,
        requests: Sequence[Sequence[bytes]],
        cause: Exception,
        maybe_executed: bool,
    ) -> HeadraceError:
        if self._closed:
            return DatabaseClosed(f"the database on {self.topology!r} was closed")
        name = decode_name(requests[requests[0][0] in (b"MULTI", b"TIME") and len(requests) > 1][0])
        why = str(cause).rstrip(".")
        if isinstance(cause, ReadOnlyError) and not maybe_executed:
            text = f"{self.topology!r}: {self._describe_replica(key)}. {name} was not executed."
            return ConnectionLost(text)
        replied = self.topology.was_connected or isinstance(cause, (ServerUnavailable, *UNAVAILABLE_ERRORS))
        if not replied and isinstance(self.url_or_client, str):
            why += f"; {connection_advice(self.url_or_client, cause)}"
        why += "" if why.endswith("?") else "."
        if not maybe_executed:
            return ConnectionLost(f"{self.topology!r} cannot be reached: {why} {name} was not executed.")
        return ConnectionLost(
            f"{self.topology!r} was lost before it replied: {why} {name} may have been executed or not.",
            True,
        )


def _is_added_since(id: bytes, time_reply: Any) -> bool:
    """Return whether an entry was added at or after the moment of a reply to TIME."""
    if isinstance(time_reply, CommandError):
        return False
    seconds, microseconds = map(int, time_reply)
    return int(id.partition(b"-")[0]) >= seconds * 1000 + microseconds // 1000


def _transaction_replies(replies: list[Any]) -> list[Any]:
    """Return the replies of the commands between MULTI and EXEC.

    Raises CommandError if none was executed, or if they were executed without a transaction.
    """
    *queued, executed = replies
    if isinstance(queued[0], CommandError) and any(not isinstance(one, CommandError) for one in queued[1:]):
        raise type(queued[0])(f"{queued[0]}. The commands were executed one by one: allow MULTI and EXEC")
    if isinstance(executed, CommandError):
        raise next((one for one in queued if isinstance(one, CommandError)), executed)
    if not isinstance(executed, list) or len(executed) != len(queued) - 1:
        raise UnexpectedReply(f"a reply to EXEC is not one of Redis: {executed!r:.60}; is it a Redis server?")
    return [as_command_error(one) if isinstance(one, redis.RedisError) else one for one in executed]


class _NoReply(Exception):
    """No reply arrived. sent: whether the server may have received any of the request."""

    def __init__(self, cause: Exception, sent: bool) -> None:
        super().__init__()
        self.cause = cause
        self.sent = sent


def first_key_of_request(words: Sequence[bytes]) -> bytes | None:
    """Return the first key of a request, which determines the server; None if it has none."""
    name = words[0].upper()
    if name in KEYLESS_COMMANDS or len(words) < 2:
        return None
    if name in (b"XREAD", b"XREADGROUP"):
        return words[words.index(b"STREAMS") + 1]
    if name in (b"EVAL", b"EVALSHA"):
        return words[3] if len(words) > 3 and words[2] != b"0" else None
    return words[2 if name in COMMANDS_WITH_SUBCOMMAND and len(words) > 2 else 1]


def reply_or_raise(reply: Any) -> Any:
    """Return the reply; raise it if it is an error."""
    if isinstance(reply, CommandError):
        raise reply
    return reply
