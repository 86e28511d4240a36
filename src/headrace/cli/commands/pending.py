"""`headrace pending`: list the entries that a group has not acknowledged."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from headrace.cli.connections.stream_client import clients_of, name_bytes
from headrace.cli.options.completion import complete_streams
from headrace.cli.options.server_options import url_option
from headrace.cli.output.pending_entries import pending_entries
from headrace.cli.output.printing import print_json, print_table
from headrace.client.servers import servers_at
from headrace.console.escaping import printable
from headrace.console.server_stats import consumer_stats
from headrace.errors import UsageError
from headrace.pipeline.shared.durations import parse_duration_ms
from headrace.suggestions import suggestion_suffix

LISTED_COUNT_DEFAULT = 100
TITLES = ("id", "consumer", "idle", "deliveries")


@click.command(
    "pending",
    epilog="""\b
Examples:
  headrace pending orders billing
  headrace pending --idle 10min --consumer worker-3 orders billing
  headrace pending --all --json orders billing | jq -r .id | headrace ack orders billing -
""",
)
@click.argument("stream", shell_complete=complete_streams)
@click.argument("group")
@click.option("--consumer", metavar="NAME", help="List only entries of this consumer.")
@click.option("--idle", metavar="TIME", help="List only entries idle for at least this long: 45s, 30min, 2h.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"List at most N entries.  [default: {LISTED_COUNT_DEFAULT}]",
)
@click.option("--all", "everything", is_flag=True, help="List all pending entries.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per entry.")
@url_option
def command(
    stream: str,
    group: str,
    consumer: str | None,
    idle: str | None,
    count: int | None,
    everything: bool,
    as_json: bool,
    url: str,
) -> None:
    """List the pending entries of a group by ID: consumer, time since the last delivery, deliveries."""
    if everything and count is not None:
        raise UsageError("-n and --all exclude each other")
    count = LISTED_COUNT_DEFAULT if count is None else count
    idle_ms = 0 if idle is None else parse_duration_ms(idle)
    with servers_at(url) as servers, clients_of(servers, [stream]) as [client]:
        client.group(group)
        if consumer is not None:
            members = client.call("XINFO", "CONSUMERS", client.key, name_bytes(group))
            check_consumer(group, consumer, members)
        found = pending_entries(client, group, consumer=consumer, idle_ms=idle_ms)
        shown = list(found if everything else islice(found, count + 1))
    is_cut = not everything and len(shown) > count
    if is_cut:
        shown.pop()
    if as_json:
        for each in shown:
            print_json({"id": each.id, **each.json_members()})
    elif shown:
        rows = [[each.id, each.consumer, each.idle_text(), each.deliveries] for each in shown]
        print_table(TITLES, rows, right=("idle", "deliveries"), dropped=("deliveries",))
    else:
        click.echo(
            f"group {printable(group)} has no {'matching ' if idle or consumer else ''}pending entries",
            err=True,
        )
    if is_cut:
        click.echo(f"… there are more; -n shows more than {count:,}, --all shows all", err=True)


def check_consumer(group: str, name: str, members: list[Any]) -> None:
    """Raise UsageError if the group has no consumer of that name."""
    known = [member.name.decode(errors="surrogateescape") for member in consumer_stats(members)]
    if name not in known:
        raise UsageError(f"group {group!r} has no consumer {name!r}{suggestion_suffix(name, known)}")
