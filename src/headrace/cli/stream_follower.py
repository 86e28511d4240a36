"""Read what is added to streams as it comes, through restarts of the server and deleted streams."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click
from redis.exceptions import RedisClusterException, ResponseError

from headrace.cli.stream_client import PAGE, RawEntry, StreamClient
from headrace.client.connection_errors import AUTH_ERRORS, CONNECTION_ERRORS
from headrace.client.retry import INITIAL_DELAY_S, MAX_DELAY_S
from headrace.console.escaping import one_line
from headrace.errors import UsageError
from headrace.spark.source.offsets import EntryId, format_id, parse_id

BLOCK_MS = 1000  # of one XREAD; after that a deleted stream is noticed
POLL_S = 0.1  # between looks at streams that no single XREAD can wait for


def follow(
    clients: list[StreamClient], positions: dict[str, EntryId]
) -> Iterator[tuple[str, RawEntry | None]]:
    """Return entries as they are added, without end.

    After the entries of one reply comes a pair of an empty name and None: the moment to flush.

    Args:
        clients: Of the streams.
        positions: For each stream the ID after which to read; kept current.

    Raises:
        HeadraceError: the server rejects the requests, as for a wrong password.
    """
    follower = Follower(clients, positions)
    pause = INITIAL_DELAY_S
    lost = False
    while True:
        try:
            found = follower.read()
            if not found:
                follower.check_streams()
            if lost:
                note("the server is back")
            lost, pause = False, INITIAL_DELAY_S
        except AUTH_ERRORS:
            raise
        except CONNECTION_ERRORS as error:
            if not lost:
                note(f"the server was lost, trying to find it again: {error}")
            lost = True
            follower.disconnect(error)
            time.sleep(pause)
            pause = min(2 * pause, MAX_DELAY_S)
            continue
        yield from found
        if found:
            yield "", None


class Follower:
    """Reads several streams, by one blocking XREAD where a single server has them all."""

    def __init__(self, clients: list[StreamClient], positions: dict[str, EntryId]) -> None:
        self.clients = clients
        self.positions = positions
        self.by_key = {client.key: client for client in clients}
        self.servers = clients[0].servers
        self.together = len(clients) == 1 or not self.servers.is_cluster
        self.gone: set[str] = set()  # streams that were deleted

    def disconnect(self, error: Exception) -> None:
        """Close connections that an error has made useless."""
        for client in self.clients:
            client.close()
        if isinstance(error, RedisClusterException):
            self.servers.close()  # none of the nodes it knows answers: begin again with those of the URL

    def read(self) -> list[tuple[str, RawEntry | None]]:
        """Return what came after the positions, waiting a little for it."""
        if self.together:
            return self._xread(self.clients, BLOCK_MS)
        found = [entry for client in self.clients for entry in self._xread([client], None)]
        if not found:
            time.sleep(POLL_S)
        return found

    def _xread(self, clients: list[StreamClient], block: int | None) -> list[tuple[str, RawEntry | None]]:
        words: list[bytes | str | int] = ["XREAD", "COUNT", PAGE]
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
            name = self.by_key[key].name
            for entry_id, fields in entries:
                found.append((name, (entry_id.decode(), fields)))
            self.positions[name] = parse_id(entries[-1][0].decode())
        return found

    def check_streams(self) -> None:
        """Begin again with streams that were deleted, or made again with lower IDs."""
        for client in self.clients:
            about = client.about_if_exists()
            if about is None:
                if client.name not in self.gone:
                    note(f"stream {client.name!r} was deleted; waiting for it to be made again")
                self.gone.add(client.name)
                self.positions[client.name] = (0, 0)
                continue
            last = parse_id(about["last-generated-id"].decode())
            if last < self.positions[client.name]:
                note(
                    f"stream {client.name!r} was deleted and made again: its entries follow from the first on"
                )
                self.positions[client.name] = (0, 0)
            self.gone.discard(client.name)


def note(text: str) -> None:
    """Tell on standard error, after what was printed so far."""
    sys.stdout.flush()
    click.echo(f"headrace: {one_line(text)}", err=True)
