"""Read the pending entries of a group without claiming them, and print them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from headrace.cli.connections.stream_client import StreamClient, name_bytes
from headrace.cli.output.entry_printer import EntryPrinter
from headrace.cli.output.printing import MISSING_CELL, bytes_to_json
from headrace.console import styles
from headrace.console.escaping import printable
from headrace.plurals import plural
from headrace.positions.entry_ids import format_id, next_id, parse_id

PAGE_ENTRIES = 100  # entries per request


@dataclass(frozen=True)
class PendingEntry:
    """A pending entry as XPENDING reports it.

    Attributes:
        id: The ID of the entry.
        consumer: The owner; None if the entry was given back (XNACK).
        idle_ms: Time since the last delivery; None if the entry was given back.
        deliveries: Number of deliveries.
    """

    id: str
    consumer: bytes | None
    idle_ms: int | None
    deliveries: int

    def json_members(self) -> dict[str, object]:
        """Return the members of its JSON object, without the ID."""
        consumer = None if self.consumer is None else bytes_to_json(self.consumer)
        return {"consumer": consumer, "idle_ms": self.idle_ms, "deliveries": self.deliveries}

    def idle_text(self) -> str:
        """Return the time since the last delivery as text."""
        return MISSING_CELL if self.idle_ms is None else styles.format_age(self.idle_ms)


def pending_entries(
    client: StreamClient, group: str, *, consumer: str | None = None, idle_ms: int = 0
) -> Iterator[PendingEntry]:
    """Yield the pending entries of a group in the order of their IDs, read page by page.

    Args:
        client: The client of the stream.
        group: The name of an existing group.
        consumer: Return only entries of this consumer.
        idle_ms: Return only entries whose last delivery was at least this many milliseconds ago.
    """
    start = "-"
    while True:
        words: list[bytes | str | int] = ["XPENDING", client.key, name_bytes(group)]
        words += ["IDLE", idle_ms] if idle_ms else []
        words += [start, "+", PAGE_ENTRIES, *([] if consumer is None else [name_bytes(consumer)])]
        page = client.call(*words)
        for entry_id, owner, idle, deliveries in page:
            yield PendingEntry(entry_id.decode(), owner or None, None if idle < 0 else idle, deliveries)
        if len(page) < PAGE_ENTRIES:
            return
        start = format_id(next_id(parse_id(page[-1][0].decode())))


def print_pending_entries(clients: list[StreamClient], group: str, limit: int, printer: EntryPrinter) -> None:
    """Print the oldest pending entries of a group with their fields, and the number of others."""
    totals = {client.name: client.group(group)["pending"] for client in clients}
    for client in clients:
        shown = 0
        page: list[PendingEntry] = []
        for pending in pending_entries(client, group) if limit else ():
            page.append(pending)
            if len(page) == min(PAGE_ENTRIES, limit - shown):
                shown += print_page(client, page, printer)
                page = []
            if shown == limit or printer.is_done:
                break
        shown += print_page(client, page, printer)
        printer.flush()
        if printer.is_done:
            return
        left = totals[client.name] - shown
        if left > 0:
            number = plural(left, "more pending entry")
            click.echo(f"… {number} in {printable(client.name)}; -n shows more", err=True)


def print_page(client: StreamClient, page: list[PendingEntry], printer: EntryPrinter) -> int:
    """Print pending entries with their fields; return the number printed."""
    if not page:
        return 0
    replies = client.send_pipeline([("XRANGE", client.key, pending.id, pending.id) for pending in page])
    shown = 0
    for pending, reply in zip(page, replies, strict=True):
        if isinstance(reply, Exception):
            raise reply
        if printer.is_done:
            break
        fields = reply[0][1] if reply else None
        owner = MISSING_CELL if pending.consumer is None else printable(pending.consumer)
        times = plural(pending.deliveries, "delivery")
        notes = (f"{owner}, idle {pending.idle_text()}, {times}:",)
        printer.show(client.name, (pending.id, fields), *notes, about=pending.json_members())
        shown += 1
    return shown
