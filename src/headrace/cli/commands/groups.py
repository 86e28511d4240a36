"""`headrace groups`: list the consumer groups of a stream and their lag."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.connections.stream_client import StreamClient, clients_of
from headrace.cli.options.completion import complete_streams
from headrace.cli.options.server_options import url_option
from headrace.cli.output.printing import bytes_to_json, print_json, print_table
from headrace.client.servers import servers_at
from headrace.console import styles
from headrace.console.escaping import printable
from headrace.console.server_stats import ConsumerStats, consumer_stats

LOST_TITLES = ("lost unread", "lost pending")
TITLES = ("group", "consumers", "lag", "pending", "oldest pending", "last delivered")
COLUMN_DROP_ORDER = ("last delivered", "consumers", "oldest pending")
CONSUMER_TITLES = ("group", "consumer", "pending", "idle")


@click.command(
    "groups",
    epilog="""\b
Examples:
  headrace groups orders
  headrace groups --consumers orders
  headrace groups --json orders | jq 'select(.lag > 1000)'
""",
)
@click.argument("stream", shell_complete=complete_streams)
@click.option("--consumers", "by_consumer", is_flag=True, help="Print a line per consumer.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per group, with its consumers.")
@url_option
def command(stream: str, by_consumer: bool, as_json: bool, url: str) -> None:
    """List the consumer groups of a stream: consumers, lag, pending entries.

    The lag is the number of entries not delivered to the group yet; a dash if the server does not know it.
    Entries that were removed before the group had read or processed them are shown if there are any.
    """
    with servers_at(url) as servers, clients_of(servers, [stream]) as [client]:
        groups = client.groups()
        consumers = {group["name"]: consumers_of(client, group["name"]) for group in groups}
        idle_ms = {group["name"]: oldest_idle_ms(client, group["name"]) for group in groups}
    if as_json:
        for group in groups:
            print_json(group_json_object(group, consumers[group["name"]], idle_ms[group["name"]]))
    elif not groups:
        click.echo(f"stream {printable(stream)} has no groups", err=True)
    elif by_consumer:
        rows = [
            [name, consumer.name, consumer.pending, styles.format_age(consumer.idle_ms)]
            for name, members in consumers.items()
            for consumer in members
        ]
        print_table(CONSUMER_TITLES, rows, right=("pending", "idle"))
    else:
        titles: tuple[str, ...] = TITLES
        rows = [group_row(group, idle_ms[group["name"]]) for group in groups]
        if any(any(lost_entry_counts(group)) for group in groups):
            titles = (*TITLES, *LOST_TITLES)
            rows = [[*row, *lost_entry_counts(group)] for row, group in zip(rows, groups, strict=True)]
        print_table(titles, rows, (*TITLES[1:5], *LOST_TITLES), COLUMN_DROP_ORDER)


def consumers_of(client: StreamClient, group: bytes) -> list[ConsumerStats]:
    """Return the consumers of a group."""
    return list(consumer_stats(client.call("XINFO", "CONSUMERS", client.key, group)))


def oldest_idle_ms(client: StreamClient, group: bytes) -> int | None:
    """Return the milliseconds since the first pending entry was last delivered.

    None if no entry is pending, or if XNACK released the first one.
    """
    first = client.call("XPENDING", client.key, group, "-", "+", 1)
    return first[0][2] if first and first[0][2] >= 0 else None


def lost_entry_counts(group: dict[str, Any]) -> tuple[int, int]:
    """Return how many unread and pending entries were removed; 0 if the server does not count them."""
    return group.get("lost-unread", 0), group.get("lost-pending", 0)


def group_row(group: dict[str, Any], idle_ms: int | None) -> list[object]:
    """Return the cells of a group's row; servers before Redis 7 do not report the lag."""
    idle = None if idle_ms is None else styles.format_age(idle_ms)
    lag, last = group.get("lag"), group["last-delivered-id"]
    return [group["name"], group["consumers"], lag, group["pending"], idle, last]


def group_json_object(
    group: dict[str, Any], consumers: list[ConsumerStats], idle_ms: int | None
) -> dict[str, Any]:
    """Return a group as a JSON object."""
    return {
        "group": bytes_to_json(group["name"]),
        "lag": group.get("lag"),
        "pending": group["pending"],
        "oldest_pending_idle_ms": idle_ms,
        "last_delivered_id": group["last-delivered-id"].decode(),
        "entries_read": group.get("entries-read"),
        "lost_unread": lost_entry_counts(group)[0],
        "lost_pending": lost_entry_counts(group)[1],
        "consumers": [
            {"consumer": bytes_to_json(each.name), "pending": each.pending, "idle_ms": each.idle_ms}
            for each in consumers
        ],
    }
