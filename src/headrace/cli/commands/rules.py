"""`headrace rules`: show, set and explain the rules of a stream and its groups."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
import redis

from headrace.cli.connections.stream_client import StreamClient, clients_of, name_bytes
from headrace.cli.options.completion import complete_streams
from headrace.cli.options.server_options import url_option
from headrace.cli.output.printing import print_json, print_table
from headrace.client.servers import Servers, servers_at
from headrace.console.escaping import printable
from headrace.console.server_stats import dict_from_flat
from headrace.errors import UsageError
from headrace.pipeline.shared.durations import format_duration, parse_duration_ms
from headrace.pipeline.shared.stream_selection import no_such_stream_error
from headrace.streams.rules import GroupRules, RuleDeclaration, Rules, StreamRules
from headrace.suggestions import suggestion_suffix

TITLES = ("of", "rule", "value", "what the server does")
MILLISECONDS_UNIT = "milliseconds"
EXAMINED_PENDING_MAX = 10_000  # entries of a group that are looked at
# An entry with a delivery time of at most this was released: real times are later.
RELEASED_DELIVERY_TIME_MS_MAX = 1000


@click.command(
    "rules",
    epilog="""\b
Examples:
  headrace rules orders
  headrace rules --set MAX-AGE=7d --set KEEP-UNACKED=1 orders
  headrace rules --group billing --set LEASE=30s --set MAX-DELIVERIES=5 orders
  headrace rules --remove MAX-AGE orders
""",
)
@click.argument("stream", shell_complete=complete_streams)
@click.option("--group", help="Set the rules of this consumer group, not those of the stream.")
@click.option("--set", "given", multiple=True, metavar="RULE=VALUE", help="Set a rule; times as in 30s, 7d.")
@click.option("--remove", multiple=True, metavar="RULE", help="Remove a rule.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@url_option
def command(
    stream: str, group: str | None, given: tuple[str, ...], remove: tuple[str, ...], as_json: bool, url: str
) -> None:
    """Show, set and explain the rules by which the server trims a stream and redelivers its entries.

    The rules are described in docs/rules.md. Only Headrace has them.
    """
    kind = StreamRules if group is None else GroupRules
    changes = [word for text in given for word in parse_change(kind, text)]
    changes += [word for name in remove for word in (rule_declaration(kind, name).name, "0")]
    with servers_at(url) as servers, clients_of(servers, [stream]) as [client]:
        if changes:
            set_rules(servers, client, group, changes)
        about = client.stream_info()
        rules: dict[str, Any] = {"stream": text_dict_from_flat(about.get("rules", [])), "groups": {}}
        groups = [dict_from_flat(reply) for reply in client.call("XINFO", "GROUPS", client.key)]
        for one in groups:
            if "rules" in one:
                rules["groups"][printable(one["name"])] = text_dict_from_flat(one["rules"])
        explained = list(explain_kept_entries(client, about, groups, rules["stream"]))
        explained += [
            text for one in groups if "rules" in one for text in explain_withheld_entries(client, one)
        ]
    if as_json:
        print_json(rules | {"notes": explained})
        return
    print_rules(stream, rules)
    for line in explained:
        click.echo(line)


def rule_declaration(kind: type[Rules], name: str) -> RuleDeclaration:
    """Return the declaration of a rule. Raises UsageError if there is no such rule."""
    word = name.upper().encode(errors="replace")
    found = kind.declarations().get(word)
    if found is not None:
        return found[1]
    if kind is StreamRules and word in GroupRules.declarations():
        raise UsageError(f"{name.upper()} is a rule of groups: add --group NAME")
    if kind is GroupRules and word in StreamRules.declarations():
        raise UsageError(f"{name.upper()} is a rule of streams: leave out --group")
    names = [known.decode() for known in kind.declarations()]
    hint = suggestion_suffix(name, names) or f"; there are {', '.join(names)}"
    raise UsageError(f"no such rule: {name!r}{hint}")


def parse_change(kind: type[Rules], text: str) -> tuple[str, bytes]:
    """Return name and value of `RULE=VALUE`; durations become milliseconds."""
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise UsageError(f"--set {text!r}: must be RULE=VALUE")
    rule = rule_declaration(kind, name)
    if MILLISECONDS_UNIT in rule.accepted_values:
        parts = [part if part.isdigit() else str(parse_duration_ms(part)) for part in value.split(",")]
        value = ",".join(parts)
    return rule.name, name_bytes(value)


def set_rules(servers: Servers, client: StreamClient, group: str | None, changes: list[Any]) -> None:
    """Set rules of the stream or of a group. Raises UsageError with the server's text if it rejects them."""
    words: list[Any] = ["XCFGSET", client.key]
    if group is not None:
        words = ["XGROUP", "CFGSET", client.key, name_bytes(group)]
    try:
        client.call(*words, *changes)
    except redis.ResponseError as error:
        if "no such key" in str(error) or "requires the key to exist" in str(error):
            raise no_such_stream_error(servers, client.name) from None
        if group is not None and str(error).startswith("NOGROUP"):
            client.group(group)  # raises UsageError with a similar name
        text = str(error).removeprefix("ERR ")
        if "syntax error" in text or "unknown" in text.lower():
            text = f"this server has no rules, only Headrace does ({text})"
        raise UsageError(text) from None


def text_dict_from_flat(flat: Any) -> dict[str, str]:
    """Return a flat list of names and values as a dictionary of text."""
    words = [word.decode(errors="backslashreplace") for word in flat]
    return dict(zip(words[::2], words[1::2], strict=True))


def print_rules(stream: str, rules: dict[str, Any]) -> None:
    """Print a line for each rule."""
    rows = [rule_row(StreamRules, "stream", name, value) for name, value in rules["stream"].items()]
    for group, found in rules["groups"].items():
        rows += [rule_row(GroupRules, f"group {group}", name, value) for name, value in found.items()]
    if rows:
        print_table(TITLES, rows)
    else:
        click.echo(f"stream {printable(stream)} has no rules", err=True)


def rule_row(kind: type[Rules], owner: str, name: str, value: str) -> list[object]:
    """Return the cells of a rule's line."""
    rule = rule_declaration(kind, name)
    if MILLISECONDS_UNIT in rule.accepted_values:
        value = ", ".join(format_duration(int(part)) for part in value.split(","))
    return [owner, name, value, rule.summary]


def explain_kept_entries(
    client: StreamClient, about: dict[str, Any], groups: list[dict[str, Any]], rules: dict[str, str]
) -> Any:
    """Yield a text for each limit that is exceeded: how many entries are kept, and by which rule."""
    excess = {}
    if "MAX-LEN" in rules:
        excess["MAX-LEN"] = about["length"] - int(rules["MAX-LEN"])
    if "MAX-AGE" in rules:
        seconds, micros = client.call("TIME")
        oldest = int(seconds) * 1000 + int(micros) // 1000 - int(rules["MAX-AGE"])
        excess["MAX-AGE"] = client.call("XCOUNT", client.key, "-", f"{max(oldest - 1, 0)}")
    for limit, count in excess.items():
        if count <= 0:
            continue
        what = f"{count:,} entries are {'older than' if limit == 'MAX-AGE' else 'more than'} {limit}"
        if "KEEP-UNACKED" in rules and (holders := list(describe_blocking_groups(client, groups))):
            yield f"{what} and kept by KEEP-UNACKED: {'; '.join(holders)}"
        elif "KEEP-UNARCHIVED" in rules:
            yield f"{what} and kept by KEEP-UNARCHIVED until they are archived"
        elif "EXACT" not in rules:
            yield f"{what}: the rest of a node, removed with the node"


def explain_withheld_entries(client: StreamClient, group: dict[str, Any]) -> Any:
    """Yield texts about pending entries that the rules of a group withhold, or will deliver again."""
    rules, name = text_dict_from_flat(group["rules"]), printable(group["name"])
    if not group["pending"]:
        return
    rows = client.call("XPENDING", client.key, group["name"], "-", "+", EXAMINED_PENDING_MAX)
    shown = f"of the first {EXAMINED_PENDING_MAX:,} pending entries of group {name}"
    if len(rows) < EXAMINED_PENDING_MAX:
        shown = f"of the pending entries of group {name}"
    seconds, micros = client.call("TIME")
    now = int(seconds) * 1000 + int(micros) // 1000
    released = [not row[1] or row[2] >= now - RELEASED_DELIVERY_TIME_MS_MAX for row in rows]
    waits = [row[3] == 0 and not free for row, free in zip(rows, released, strict=True)]
    if "ORDERED-BY" in rules and any(waits):
        field = printable(rules["ORDERED-BY"])
        yield f"{shown}, {sum(waits):,} wait for earlier ones with the same {field}"
    if "LEASE" in rules:
        lease = int(rules["LEASE"])
        due = [
            free or (not waiting and row[2] >= lease)
            for row, free, waiting in zip(rows, released, waits, strict=True)
        ]
        if any(due):
            yield f"{shown}, {sum(due):,} are due for redelivery"
    if "MAX-PENDING" in rules:
        limit = int(rules["MAX-PENDING"])
        held = Counter(row[1] for row, waiting in zip(rows, waits, strict=True) if not waiting)
        for consumer in map(dict_from_flat, client.call("XINFO", "CONSUMERS", client.key, group["name"])):
            if held[consumer["name"]] >= limit:
                yield f"consumer {printable(consumer['name'])} of group {name} has MAX-PENDING entries"


def describe_blocking_groups(client: StreamClient, groups: list[dict[str, Any]]) -> Any:
    """Yield a text for each group that has pending or unread entries."""
    for group in groups:
        if group["pending"]:
            first = client.call("XPENDING", client.key, group["name"], "-", "+", 1)[0]
            age = format_duration(max(first[2], 0))
            yield f"group {printable(group['name'])}, {group['pending']:,} pending, oldest {age}"
        elif group.get("lag"):
            yield f"group {printable(group['name'])}, {group['lag']:,} not read"
