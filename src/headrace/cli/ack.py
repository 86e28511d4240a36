"""`headrace ack`: acknowledge entries for a group."""

from __future__ import annotations

import click

from headrace.cli.completion import complete_streams
from headrace.cli.output import print_json
from headrace.cli.stream_client import checked_ids, clients_of, name_bytes
from headrace.cli.streams import url_option
from headrace.client.servers import servers_at
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.standard_input import standard_input
from headrace.plurals import plural

FROM_STDIN = "-"
AT_ONCE = 1000  # in one pipeline
NAMED_MAX = 10  # IDs in an error message


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
@click.option("--json", "as_json", is_flag=True, help="Print the IDs: acknowledged and missing.")
@url_option
def command(stream: str, group: str, ids: tuple[str, ...], as_json: bool, url: str) -> None:
    """Acknowledge entries for a group, and print how many; the ID - reads IDs from standard input.

    The exit code is 1 if one of them was not pending.
    """
    wanted = list(dict.fromkeys(checked_ids(words_of(ids))))
    if not wanted:
        raise UsageError("there are no IDs on standard input")
    done: list[str] = []
    missing: list[str] = []
    with servers_at(url) as servers, clients_of(servers, [stream]) as [client]:
        client.group(group)
        for start in range(0, len(wanted), AT_ONCE):
            part = wanted[start : start + AT_ONCE]
            replies = client.pipeline([("XACK", client.key, name_bytes(group), each) for each in part])
            for each, reply in zip(part, replies, strict=True):
                if isinstance(reply, Exception):
                    number = plural(len(done), "entry")
                    raise HeadraceError(f"the server rejected {each}: {reply}; {number} acknowledged")
                (done if reply else missing).append(each)
    if as_json:
        print_json({"acknowledged": done, "missing": missing})
    else:
        click.echo(f"{len(done)} acknowledged")
    if missing:
        more = f" and {len(missing) - NAMED_MAX:,} more" if len(missing) > NAMED_MAX else ""
        listed = ", ".join(missing[:NAMED_MAX])
        raise HeadraceError(f"not pending in group {group!r}: {listed}{more}")


def words_of(ids: tuple[str, ...]) -> list[str]:
    """Return the IDs as they were given, those of standard input in place of a dash."""
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
