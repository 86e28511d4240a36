"""A connection to the server of a stream, which returns replies unchanged.

redis-py converts entries to dictionaries, which lose fields of the same name. It also retries a command after
a lost connection, which may add an entry twice. Here a reply is bytes, integers and lists. A command is sent
again only if the server replied that it did not execute it (a failover, or a cluster moving a slot).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import redis
from redis.exceptions import ResponseError

from headrace.client.connection import RawConnection, Words
from headrace.client.connection_errors import (
    UNAVAILABLE_ERRORS,
    ServerUnavailable,
    error_reply_text,
    readonly_error_text,
)
from headrace.client.reply_shapes import check_reply
from headrace.client.retrying import ReconnectDelay
from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.console.server_stats import dict_from_flat
from headrace.errors import UsageError
from headrace.pipeline.shared.stream_selection import no_such_stream_error
from headrace.positions.entry_ids import EntryId, format_id, next_id, parse_id, previous_id
from headrace.suggestions import suggestion_suffix

RawEntry = tuple[str, list[bytes] | None]  # ID; flat list of names and values, None if deleted

UNAVAILABLE_TIMEOUT_S = 5.0  # how long to retry a command that the server did not execute
PAGE_ENTRIES = 500  # entries per reply


def name_bytes(name: str) -> bytes:
    """Return a name from the command line as the bytes that were typed."""
    return name.encode(errors="surrogateescape")


class PipelineNotExecuted(ServerUnavailable):
    """The server did not execute some commands of a pipeline, although they were sent again for a while.

    Attributes:
        replies: The replies to the commands that were executed, in order.
    """

    def __init__(self, text: str, replies: list[Any]) -> None:
        super().__init__(text)
        self.replies = replies


class StreamClient:
    """A connection to the server that has the stream, opened on first use and again after a failover."""

    def __init__(self, servers: Servers, name: str) -> None:
        self.servers = servers
        self.name = name
        self.key = stream_key(name)
        self._connection: RawConnection | None = None

    def close(self) -> None:
        """Close the connection; the next command opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def connect(self) -> None:
        """Open the connection now: if that fails, no command was sent."""
        delay = ReconnectDelay(UNAVAILABLE_TIMEOUT_S)
        while self._connection is None:
            try:
                self._connection = self.servers.open_raw(self.name)
            except ServerUnavailable as error:
                delay.wait_or_raise(error)

    def call(self, *words: bytes | str | int) -> Any:
        """Send one command and return its reply.

        Raises:
            redis.ResponseError: if the server rejects it.
            PipelineNotExecuted: if the server did not execute it, such as a write to a replica.
            redis.ConnectionError: if the connection was lost; the command may have been executed.
        """
        [reply] = self.send_pipeline([words])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def send_pipeline(self, commands: Sequence[Words]) -> list[Any]:
        """Send commands together and return their replies in order, including errors.

        Raises:
            PipelineNotExecuted: if the server did not execute some of them, such as writes to a replica.
            redis.ConnectionError: if the connection was lost; some commands may have been executed.
        """
        replies: list[Any] = [None] * len(commands)
        left = list(range(len(commands)))
        delay = ReconnectDelay(UNAVAILABLE_TIMEOUT_S)
        while True:
            try:
                for number, reply in zip(left, self._exchange([commands[n] for n in left]), strict=True):
                    check_reply(self.servers.url, commands[number], reply)
                    replies[number] = reply
                left = [number for number in left if isinstance(replies[number], UNAVAILABLE_ERRORS)]
                if not left:
                    return replies
                self.servers.raise_if_unavailable(self.name, error_reply_text(replies[left[0]]))
            except ServerUnavailable as error:
                self.close()
                try:
                    delay.wait_or_raise(error)
                except ServerUnavailable:
                    executed = [reply for number, reply in enumerate(replies) if number not in left]
                    raise PipelineNotExecuted(self._describe_error(error), executed) from error
            except BaseException:
                self.close()  # replies may still be on their way
                raise

    def _describe_error(self, error: ServerUnavailable) -> str:
        """Return the text of the error, with the address of the primary if the server is a replica."""
        if not str(error).startswith("READONLY"):
            return str(error)
        info = None
        with suppress(OSError, redis.RedisError):
            [info] = self._exchange([("INFO", "replication")])
        return readonly_error_text(info)

    def _exchange(self, commands: list[Words]) -> list[Any]:
        if self._connection is None:
            self._connection = self.servers.open_raw(self.name)
        return self._connection.exchange(commands)

    def stream_info(self) -> dict[str, Any]:
        """Return the reply of XINFO STREAM. UsageError if the stream does not exist."""
        found = self.stream_info_or_none()
        if found is None:
            raise no_such_stream_error(self.servers, self.name)
        return found

    def stream_info_or_none(self) -> dict[str, Any] | None:
        """Return the reply of XINFO STREAM; None if there is no such key. UsageError for other types."""
        try:
            return dict_from_flat(self.call("XINFO", "STREAM", self.key))
        except ResponseError as error:
            if "no such key" in str(error).lower():
                return None
            if str(error).startswith("WRONGTYPE") or "wrong kind of value" in str(error):
                raise UsageError(f"{self.name!r} is not a stream") from None
            raise

    def last_id(self) -> EntryId:
        """Return the last generated ID of the stream."""
        return parse_id(self.stream_info()["last-generated-id"].decode())

    def range(self, first: EntryId, last: EntryId) -> Iterator[RawEntry]:
        """Yield the entries between two IDs, both included, read page by page."""
        start = format_id(first)
        while True:
            page = self.call("XRANGE", self.key, start, format_id(last), "COUNT", PAGE_ENTRIES)
            for entry_id, fields in page:
                yield entry_id.decode(), fields
            if len(page) < PAGE_ENTRIES:
                return
            following = next_id(parse_id(page[-1][0].decode()))
            if following > last:
                return
            start = format_id(following)

    def id_of_nth_newest(self, count: int, upto: EntryId) -> EntryId | None:
        """Return the ID of the count-th last entry, or of the first one if there are fewer; None without any.

        Args:
            count: Number of entries from that ID on, at least 1.
            upto: The largest ID to consider.
        """
        found, end = None, format_id(upto)
        while count > 0:
            page = self.call("XREVRANGE", self.key, end, "-", "COUNT", min(count, PAGE_ENTRIES))
            if not page:
                break
            found = parse_id(page[-1][0].decode())
            count -= len(page)
            if found == (0, 0) or len(page) < PAGE_ENTRIES:
                break
            end = format_id(previous_id(found))
        return found

    def groups(self) -> list[dict[str, Any]]:
        """Return the reply of XINFO GROUPS. UsageError if the stream does not exist."""
        self.stream_info()
        return [dict_from_flat(group) for group in self.call("XINFO", "GROUPS", self.key)]

    def group(self, name: str) -> dict[str, Any]:
        """Return the reply of XINFO GROUPS for one group. UsageError if it does not exist."""
        groups = {group["name"]: group for group in self.groups()}
        if name_bytes(name) not in groups:
            known = [found.decode(errors="surrogateescape") for found in groups]
            hint = suggestion_suffix(name, known) or (
                f"; it has {', '.join(map(repr, known))}" if known else ""
            )
            raise UsageError(f"stream {self.name!r} has no group {name!r}{hint}")
        return groups[name_bytes(name)]


@contextmanager
def clients_of(servers: Servers, names: Sequence[str]) -> Iterator[list[StreamClient]]:
    """Yield a client per stream; close them at the end."""
    clients = [StreamClient(servers, name) for name in names]
    try:
        yield clients
    finally:
        for client in clients:
            with suppress(OSError, redis.RedisError):
                client.close()


def complete_ids(texts: Sequence[str]) -> list[str]:
    """Return complete entry IDs, such as 5-0 for 5. UsageError if one is not an ID."""
    try:
        return [format_id(parse_id(text)) for text in texts]
    except ValueError as error:
        raise UsageError(f"{error}; expected one such as 1763676000000-0") from None
