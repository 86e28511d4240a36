"""`headrace tail`: print the last entries of streams, and follow them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import islice

import click

from headrace.cli.connections.stream_client import StreamClient, clients_of
from headrace.cli.connections.stream_follower import follow
from headrace.cli.options.completion import complete_streams
from headrace.cli.options.entry_times import parse_first_id
from headrace.cli.options.server_options import url_option
from headrace.cli.output.entry_printer import EntryPrinter
from headrace.cli.output.pending_entries import print_pending_entries
from headrace.client.servers import servers_at
from headrace.errors import UsageError
from headrace.positions.entry_ids import EntryId, parse_id

LAST_COUNT_DEFAULT = 10  # entries of each stream


@click.command(
    "tail",
    epilog="""\b
Examples:
  headrace tail orders
  headrace tail -f -n 0 orders payments
  headrace tail --from 2026-03-01T09:30 --json orders > orders.jsonl
  headrace tail --from 15min orders
  headrace tail --group billing orders
""",
)
@click.argument("streams", nargs=-1, required=True, metavar="STREAM...", shell_complete=complete_streams)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Print the last N entries of each stream.  [default: {LAST_COUNT_DEFAULT}]",
)
@click.option("-f", "--follow", "following", is_flag=True, help="Continue with new entries until Ctrl-C.")
@click.option(
    "--from",
    "begin",
    metavar="ID|TIME",
    help="Print all entries from this ID or time (UTC) on; 15min: of the last 15 minutes.",
)
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="Exit after N entries.")
@click.option(
    "--group", metavar="GROUP", help="Print the oldest pending entries of this group, without claiming them."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per entry.")
@url_option
def command(
    streams: tuple[str, ...],
    last: int | None,
    following: bool,
    begin: str | None,
    count: int | None,
    group: str | None,
    as_json: bool,
    url: str,
) -> None:
    """Print the last entries of streams, oldest first; with -f continue with new entries.

    Several streams are merged in the order of their IDs. -f reconnects after a restart of the server.
    """
    if last is not None and begin is not None:
        raise UsageError("-n and --from exclude each other; --count limits the entries of --from")
    if group is not None and (following or begin is not None):
        raise UsageError("--group prints pending entries: leave out -f and --from")
    names = list(dict.fromkeys(streams))
    printer = EntryPrinter(as_json, len(names) > 1, count)
    interrupts = suppress(KeyboardInterrupt) if following else nullcontext()  # Ctrl-C ends -f as usual
    with interrupts, servers_at(url) as servers, clients_of(servers, names) as clients:
        if group is not None:
            print_pending_entries(clients, group, LAST_COUNT_DEFAULT if last is None else last, printer)
            return
        first = None if begin is None else parse_first_id(begin)
        positions = {client.name: client.last_id() for client in clients}
        found = heapq.merge(
            *(
                existing_entries(
                    client, positions[client.name], first, LAST_COUNT_DEFAULT if last is None else last
                )
                for client in clients
            ),
            key=lambda entry: parse_id(entry[1]),
        )
        for stream, entry_id, fields in islice(found, count):
            printer.show(stream, (entry_id, fields))
        printer.flush()
        if following and not printer.is_done:
            follow_streams(clients, positions, printer)


def existing_entries(
    client: StreamClient, upto: EntryId, first: EntryId | None, last: int
) -> Iterator[tuple[str, str, list[bytes] | None]]:
    """Yield the entries of a stream from `first` on, or the `last` ones, up to and including `upto`."""
    if first is None:
        first = client.id_of_nth_newest(last, upto) if last else None
    if first is not None and first <= upto:
        for entry_id, fields in client.range(first, upto):
            yield client.name, entry_id, fields


def follow_streams(clients: list[StreamClient], positions: dict[str, EntryId], printer: EntryPrinter) -> None:
    """Print the entries after the positions until the printer has printed enough."""
    for stream, entry in follow(clients, positions):
        if entry is None:  # the end of a reply
            printer.flush()
            continue
        printer.show(stream, entry)
        if printer.is_done:
            break
    printer.flush()
