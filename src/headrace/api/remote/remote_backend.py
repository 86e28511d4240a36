"""The far link: a server elsewhere, or several, through redis-py's connections.

    not sent yet         no connection could be made     tried again, whatever it is
    sent, no answer      it may have been carried out    tried again if that does no harm, else ConnectionLost
    refused: elsewhere   MOVED, READONLY, LOADING ...    tried again, there or later

What does no harm twice: reads; removals and acknowledgements, whose count may then come out too small; XADD
with an idempotent ID. For all else ConnectionLost is raised, and says so, for only the caller knows what to
do: an entry that is added again may be there twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from headrace.api.backend import Bell, Stop
from headrace.api.codecs.arguments import shown
from headrace.api.codecs.field_encoding import words_of
from headrace.api.remote.server_errors import as_error
from headrace.api.remote.topology import place_of
from headrace.errors import CommandError, ConnectionLost, DatabaseClosed, HeadraceError
from headrace.retry import CONNECTION_ERRORS, ReconnectDelay

POLL_S = 0.1  # between looks at a Stop
BLOCK_S = 10.0  # a read that waits for longer is asked again, so that a dead connection is noticed

ELSEWHERE = (AskError, MovedError, TryAgainError, ClusterDownError, ReadOnlyError, BusyLoadingError)
DENIED = (AuthenticationError, AuthorizationError)

READS = frozenset(
    b"XRANGE XREVRANGE XLEN XREAD XINFO XPENDING PING TIME EXISTS TYPE TTL PTTL GET MGET SCAN INFO".split()
)
HARMLESS = frozenset(b"XACK XACKDEL XDEL XDELEX XTRIM XGROUP XSETID XCFGSET DEL UNLINK EXPIRE".split())
SECOND_WORD = frozenset(b"XINFO XGROUP OBJECT MEMORY".split())  # their key comes behind a subcommand
KEYLESS = frozenset(b"PING TIME INFO CONFIG CLIENT SCAN KEYS DBSIZE FLUSHALL FLUSHDB COMMAND".split())


class RemoteLink:
    """A link to the servers at a URL (see headrace.server_url), or of a redis-py client.

    patience   seconds to wait for a lost server, by default as long as a restart or a failover may take. The
               first connection is not waited for: who calls learns at once that nobody is there.

    Errors: ConnectionLost; its maybe_executed tells whether the server may have carried out the request.
    """

    far = True

    def __init__(self, server: Any, *, patience: float | None = None) -> None:
        self.server = server
        self.place = place_of(server)
        self.patience = self.place.patience if patience is None else patience
        self._met = False  # the server has answered before
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closed

    def __repr__(self) -> str:
        return f"RemoteLink({self.place!r})"

    def execute(self, *words: bytes) -> Any:
        """One command; its reply."""
        return raised(self._carry_out(key_of(words), [words], is_repeatable(words))[0])

    def execute_all(self, requests: Sequence[Sequence[bytes]], atomic: bool = False) -> list[Any]:
        """Many commands in one round trip, one a server; a refusal stands in its place in the list."""
        if not requests:
            return []
        again = all(map(is_repeatable, requests))
        if atomic:
            if len({self.place.slot(key_of(words)) for words in requests}) > 1:
                raise as_error("CROSSSLOT the keys of a transaction are not in one slot of the cluster")
            whole = [(b"MULTI",), *requests, (b"EXEC",)]
            *queued, replies = self._carry_out(key_of(requests[0]), whole, again)
            if isinstance(replies, CommandError):
                raise next((one for one in queued if isinstance(one, CommandError)), replies)
            return [refusal(one) if isinstance(one, redis.RedisError) else one for one in replies]
        found: list[Any] = [None] * len(requests)
        for key, numbers in self._by_owner(requests).items():
            replies = self._carry_out(key, [requests[n] for n in numbers], again)
            for n, reply in zip(numbers, replies, strict=True):
                found[n] = reply
        return found

    def wait(self, words: Sequence[bytes], seconds: float | None, stop: Stop | None = None) -> Any:
        """A read that waits; None when there was nothing. Looks at stop ten times a second."""
        at = words.index(b"STREAMS")
        end = None if seconds is None else time.monotonic() + seconds
        longest = POLL_S if stop is not None else BLOCK_S
        if self.place.timeout is not None:
            longest = min(longest, self.place.timeout / 2)
        while stop is None or not stop.is_set():
            left = longest if end is None else min(longest, end - time.monotonic())
            block = (b"BLOCK", b"%d" % max(1, round(left * 1000))) if left > 0 else ()
            reply = self.execute(*words[:at], *block, *words[at:])
            if reply is not None or not block:
                return reply
        return None

    def add(
        self, key: bytes, id: bytes, fields: Mapping[Any, Any], options: Sequence[bytes] = ()
    ) -> bytes | None:
        """XADD; the new ID. ConnectionLost may mean that the entry is there; with IDMP it is tried again."""
        words = (b"XADD", key, *options, id, *words_of(fields))
        reply: bytes | None = raised(self._carry_out(key, [words], again=b"IDMP" in options)[0])
        return reply

    def add_many(
        self, key: bytes, entries: Iterable[Mapping[Any, Any]], options: Sequence[bytes] = ()
    ) -> list[bytes]:
        """An XADD each, as one transaction in one round trip; the IDs."""
        requests = [(b"XADD", key, *options, b"*", *words_of(fields)) for fields in entries]
        return [raised(reply) for reply in self.execute_all(requests, atomic=len(requests) > 1)]

    def now_ms(self) -> int:
        """The clock of this machine."""
        return time.time_ns() // 1_000_000

    def pause(self, seconds: float, stop: Stop | None = None) -> bool:
        """Sleep; True if stop ended it."""
        if stop is None:
            time.sleep(max(0.0, seconds))
            return False
        bell = Bell()
        stop.listen(bell)
        try:
            bell.wait(seconds)
        finally:
            stop.forget(bell)
        return stop.is_set()

    def close(self) -> None:
        """Close all connections; who still waits gets a DatabaseClosed."""
        self._closed = True
        self.place.close()

    # How requests get there.

    def _by_owner(self, requests: Sequence[Sequence[bytes]]) -> dict[bytes | None, list[int]]:
        """The numbers of requests that may share a connection, by a key of theirs."""
        owners: dict[int, bytes | None] = {}
        found: dict[bytes | None, list[int]] = {}
        for n, words in enumerate(requests):
            key = key_of(words)
            try:
                owner = id(self.place.pool(key))
            except CONNECTION_ERRORS:  # asked again, with more patience, when it is this one's turn
                owner = n
            found.setdefault(owners.setdefault(owner, key), []).append(n)
        return found

    def _carry_out(self, key: bytes | None, requests: Sequence[Sequence[bytes]], again: bool) -> list[Any]:
        """The replies, refusals as CommandErrors among them; asked again where it is safe and hopeful."""
        patience = ReconnectDelay(self.patience if self._met else 0)
        asked: tuple[str, int] | None = None
        maybe_executed = False
        while True:
            try:
                replies = self._attempt(key, requests, asked)
            except _Unanswered as lost:
                maybe_executed = maybe_executed or lost.sent
                if self._closed or (lost.sent and not again):
                    raise self._lost(requests, lost.cause, maybe_executed) from lost.cause
                failure = lost.cause
            else:
                if not self._met:
                    self._met = True
                    patience = ReconnectDelay(self.patience)
                moved = next((reply for reply in replies if isinstance(reply, ELSEWHERE)), None)
                if moved is None:
                    return [refusal(one) if isinstance(one, redis.RedisError) else one for one in replies]
                if len(replies) > 1 and requests[0][0] != b"MULTI":
                    return self._each_elsewhere(requests, replies)
                if isinstance(moved, AskError):  # MovedError is one
                    self.place.sent_elsewhere()
                failure = moved
                asked = (moved.host, moved.port) if type(moved) is AskError else None
            try:
                patience.wait(failure)
            except DENIED as denied:
                raise refusal(denied) from None
            except CONNECTION_ERRORS + ELSEWHERE as given_up:
                raise self._lost(requests, given_up, maybe_executed) from given_up
            if asked is None:
                self.place.look_again()

    def _each_elsewhere(self, requests: Sequence[Sequence[bytes]], replies: list[Any]) -> list[Any]:
        """Of several requests some were refused because another server is to be asked: ask it for those."""
        found = []
        for words, reply in zip(requests, replies, strict=True):
            if isinstance(reply, ELSEWHERE):
                found += self._carry_out(key_of(words), [words], is_repeatable(words))
            else:
                found.append(refusal(reply) if isinstance(reply, redis.RedisError) else reply)
        return found

    def _attempt(
        self, key: bytes | None, requests: Sequence[Sequence[bytes]], asked: tuple[str, int] | None
    ) -> list[Any]:
        """Send all, read all replies; what the server refused stands among them as redis-py's exception."""
        try:
            if self._closed:
                raise redis.ConnectionError("the database is closed")
            pool = self.place.pool(key) if asked is None else self.place.pool_at(asked)
            connection = pool.get_connection()
        except CONNECTION_ERRORS as cause:
            raise _Unanswered(cause, sent=False) from cause
        except ResponseError as refused:  # while the connection was made: there is no such database, say
            raise refusal(refused) from None
        words = requests if asked is None else [(b"ASKING",), *requests]
        try:
            replies = _conversation(connection, words)
        except CONNECTION_ERRORS as cause:
            raise _Unanswered(cause, sent=True) from cause
        finally:
            pool.release(connection)
        return replies if asked is None else replies[1:]

    def _lost(
        self, requests: Sequence[Sequence[bytes]], cause: Exception, maybe_executed: bool
    ) -> HeadraceError:
        if self._closed:
            return DatabaseClosed(f"the database on {self.place!r} was closed")
        name = shown(requests[requests[0][0] == b"MULTI"][0])
        why = str(cause).rstrip(".")
        if not maybe_executed:
            return ConnectionLost(f"{self.place!r} cannot be reached: {why}. {name} was not carried out.")
        return ConnectionLost(
            f"{self.place!r} was lost before it answered: {why}. {name} may have been carried out, or not.",
            True,
        )


class _Unanswered(Exception):
    """No answer came. sent: whether any of the request may have reached the server."""

    def __init__(self, cause: Exception, sent: bool) -> None:
        super().__init__()
        self.cause = cause
        self.sent = sent


def _conversation(connection: Any, requests: Sequence[Sequence[bytes]]) -> list[Any]:
    """The replies to requests that are sent all at once. Whatever goes wrong closes the connection."""
    try:
        connection.send_packed_command(connection.pack_commands(requests))
        replies = []
        for _ in requests:
            try:
                replies.append(connection.read_response())
            except (ResponseError, BusyLoadingError, *DENIED) as refused:
                replies.append(refused)
        return replies
    except BaseException:
        connection.disconnect()
        raise


def key_of(words: Sequence[bytes]) -> bytes | None:
    """The first key of a request, by which the server that owns it is found."""
    name = words[0].upper()
    if name in KEYLESS or len(words) < 2:
        return None
    if name in (b"XREAD", b"XREADGROUP"):
        return words[words.index(b"STREAMS") + 1]
    if name in (b"EVAL", b"EVALSHA"):
        return words[3] if len(words) > 3 and words[2] != b"0" else None
    return words[2 if name in SECOND_WORD and len(words) > 2 else 1]


def is_repeatable(words: Sequence[bytes]) -> bool:
    """Whether a request that was carried out may be carried out again."""
    name = words[0].upper()
    if name == b"XCLAIM":  # of entries however fresh, and without counting a delivery
        return b"JUSTID" in words and words[4] == b"0"
    return name in READS or name in HARMLESS


def refusal(error: Exception) -> CommandError:
    """A server's error with its code, of which redis-py has made a class."""
    code = getattr(error, "status_code", None)
    return as_error(f"{code} {error}" if code else str(error))


def raised(reply: Any) -> Any:
    """The reply, unless it is a refusal."""
    if isinstance(reply, CommandError):
        raise reply
    return reply
