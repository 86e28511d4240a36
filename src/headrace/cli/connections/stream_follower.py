"""Follow streams: read new entries, also after restarts of the server and deletion of streams."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator

import click
from redis.exceptions import ResponseError

from headrace.cli.connections.stream_client import PAGE_ENTRIES, RawEntry, StreamClient
from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.retrying import ReconnectDelay
from headrace.console.escaping import one_line
from headrace.errors import UsageError
from headrace.positions.entry_ids import EntryId, format_id, parse_id

BLOCK_MS = 1000  # of one XREAD, between checks for deleted streams
POLL_S = 0.1  # interval where one XREAD cannot wait for all streams


def follow(
    clients: list[StreamClient], positions: dict[str, EntryId]
) -> Iterator[tuple[str, RawEntry | None]]:
    """Yield entries as they are added, without end.

    The entries of a reply are followed by an empty name and None, so that the caller can flush its output.

    Args:
        clients: The clients of the streams.
        positions: The ID after which to read each stream; updated.

    Raises:
        HeadraceError: if the server rejects the requests, for example because of a wrong password.
    """
    follower = Follower(clients, positions)
    delay = ReconnectDelay(math.inf, lambda error: print_notice(f"connection lost, reconnecting: {error}"))
    while True:
        try:
            found = follower.read()
            if not found:
                follower.reset_deleted_streams()
            if delay.reported:
                print_notice("the server is back")
            delay.reset()
        except CONNECTION_ERRORS as error:
            for client in clients:
                client.close()
            delay.wait_or_raise(error)
            continue
        yield from found
        if found:
            yield "", None


class Follower:
    """A reader of several streams: by one blocking XREAD if all are on one server, otherwise by polling."""

    def __init__(self, clients: list[StreamClient], positions: dict[str, EntryId]) -> None:
        self.clients = clients
        self.positions = positions
        self.client_by_key = {client.key: client for client in clients}
        self.on_one_server = len(clients) == 1 or not clients[0].servers.is_cluster
        self.deleted_streams: set[str] = set()  # names of streams

    def read(self) -> list[tuple[str, RawEntry | None]]:
        """Return the entries after the positions; wait for a short time if there are none."""
        if self.on_one_server:
            return self._xread(self.clients, BLOCK_MS)
        found = [entry for client in self.clients for entry in self._xread([client], None)]
        if not found:
            time.sleep(POLL_S)
        return found

    def _xread(self, clients: list[StreamClient], block: int | None) -> list[tuple[str, RawEntry | None]]:
        words: list[bytes | str | int] = ["XREAD", "COUNT", PAGE_ENTRIES]
        words += ["BLOCK", block] if block is not None else []
        words += ["STREAMS", *(client.key for client in clients)]
        words += [format_id(self.positions[client.name]) for client in clients]
        try:
            reply = clients[0].call(*words)
        except ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise UsageError("a stream was replaced by a key of another type") from None
        found: list[tuple[str, RawEntry | None]] = []
        for key, entries in reply or ():
            name = self.client_by_key[key].name
            for entry_id, fields in entries:
                found.append((name, (entry_id.decode(), fields)))
            self.positions[name] = parse_id(entries[-1][0].decode())
        return found

    def reset_deleted_streams(self) -> None:
        """Reset the positions of streams that were deleted, or created again with lower IDs."""
        for client in self.clients:
            about = client.stream_info_or_none()
            if about is None:
                if client.name not in self.deleted_streams:
                    print_notice(f"stream {client.name!r} was deleted; waiting until it is created again")
                self.deleted_streams.add(client.name)
                self.positions[client.name] = (0, 0)
                continue
            last = parse_id(about["last-generated-id"].decode())
            if last < self.positions[client.name]:
                print_notice(
                    f"stream {client.name!r} was deleted and created again; reading it from its first entry"
                )
                self.positions[client.name] = (0, 0)
            self.deleted_streams.discard(client.name)


def print_notice(text: str) -> None:
    """Print a line on standard error, after flushing standard output."""
    sys.stdout.flush()
    click.echo(f"headrace: {one_line(text)}", err=True)
