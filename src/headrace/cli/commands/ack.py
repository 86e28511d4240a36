"""`headrace ack`: acknowledge entries for a group."""

from __future__ import annotations

import click

from headrace.cli.connections.stream_client import clients_of, complete_ids, name_bytes
from headrace.cli.options.completion import complete_streams
from headrace.cli.options.server_options import url_option
from headrace.cli.output.printing import print_json
from headrace.client.servers import servers_at
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.shared.standard_input import standard_input
from headrace.plurals import plural

FROM_STDIN = "-"
IDS_PER_PIPELINE = 1000
IDS_SHOWN_MAX = 10  # in an error message


@click.command(
    "ack",
    epilog="""\b
Examples:
  headrace ack orders billing 1763676000000-0 1763676000001-0
  headrace pending --json orders billing | jq -r .id | headrace ack orders billing -
  headrace ack --json orders billing 1763676000000-0
""",
)
@click.argument("stream", shell_complete=complete_streams)
@click.argument("group")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--json", "as_json", is_flag=True, help="Print the acknowledged and the missing IDs as JSON.")
@url_option
def command(stream: str, group: str, ids: tuple[str, ...], as_json: bool, url: str) -> None:
    """Acknowledge entries for a group and print their number.

    The ID - reads IDs from standard input. The exit code is 1 if an entry was not pending.
    """
    given = list(dict.fromkeys(complete_ids(read_ids(ids))))
    if not given:
        raise UsageError("there are no IDs on standard input")
    acknowledged: list[str] = []
    missing: list[str] = []
    with servers_at(url) as servers, clients_of(servers, [stream]) as [client]:
        client.group(group)
        for start in range(0, len(given), IDS_PER_PIPELINE):
            part = given[start : start + IDS_PER_PIPELINE]
            replies = client.send_pipeline([("XACK", client.key, name_bytes(group), each) for each in part])
            for each, reply in zip(part, replies, strict=True):
                if isinstance(reply, Exception):
                    number = plural(len(acknowledged), "entry")
                    raise HeadraceError(f"the server rejected {each}: {reply}; {number} acknowledged")
                (acknowledged if reply else missing).append(each)
    if as_json:
        print_json({"acknowledged": acknowledged, "missing": missing})
    else:
        click.echo(f"{len(acknowledged)} acknowledged")
    if missing:
        more = f" and {len(missing) - IDS_SHOWN_MAX:,} more" if len(missing) > IDS_SHOWN_MAX else ""
        listed = ", ".join(missing[:IDS_SHOWN_MAX])
        raise HeadraceError(f"not pending in group {group!r}: {listed}{more}")


def read_ids(ids: tuple[str, ...]) -> list[str]:
    """Return the IDs as text; a dash is replaced by those on standard input."""
    if FROM_STDIN not in ids:
        return list(ids)
    found: list[str] = []
    for each in ids:
        found += (
            standard_input().read().decode(errors="backslashreplace").split()
            if each == FROM_STDIN
            else [each]
        )
    return found
