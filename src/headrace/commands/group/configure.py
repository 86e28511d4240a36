"""XGROUP CFGSET: the rules of a group, an extension of Headrace. The rules are those of streams/rules.py.

XGROUP CFGSET key group rule value [rule value …]
"""

from __future__ import annotations

from headrace.commands import dead_letter_rules, rule_effects
from headrace.commands.call import Call
from headrace.commands.spec import SINCE_HEADRACE, Command
from headrace.commands.stream.info import NoSuchGroupForKey
from headrace.errors import CommandError, InvalidSyntax, KeyRequired
from headrace.streams.group import Group
from headrace.streams.rules import NO_GROUP_RULES, GroupRules, InvalidRule
from headrace.streams.stream import Stream

RULE_NAME_BYTES_MAX = 4096  # of a stream or a field in a rule: what rules hold is not part of used_memory


class NothingToSet(CommandError):
    """No rule is given."""

    text = "ERR At least one rule must be specified"


def run(call: Call) -> None:
    """XGROUP CFGSET: set rules of a group."""
    key, name, words = call.argv[2], call.argv[3], call.argv[4:]
    stream: Stream | None = call.database.stream(key)
    if stream is None:
        raise KeyRequired()
    group: Group | None = stream.group(name)
    if group is None:
        raise NoSuchGroupForKey(name, key)
    before: GroupRules = group.rules or NO_GROUP_RULES
    rules = _parse(before, words)
    if not call.replayed() and max(len(rules.dead_letter), len(rules.ordered_by)) > RULE_NAME_BYTES_MAX:
        raise InvalidRule(f"DEAD-LETTER and ORDERED-BY take at most {RULE_NAME_BYTES_MAX} bytes")
    if rules.max_deliveries and not call.replayed():
        dead_letter_rules.check_dead_letter_stream(call, key, rules)
    if rules != before:
        order = group.pending.key_order
        group.set_rules(rules if rules != NO_GROUP_RULES else None)
        if order is not None and group.pending.key_order is not order:
            call.keyspace.rule_registry.free_key_order_later(order)
        rule_effects.record_rules(call, [b"XGROUP", b"CFGSET", key, name, *words])
        call.keyspace.rule_registry.on_rules_changed(call.database.index, key, stream, group)
        call.keyspace.blocking.clear_wait_classes(call.database.index, key)
    call.reply.ok()


def _parse(before: GroupRules, words: list[bytes]) -> GroupRules:
    if not words:
        raise NothingToSet()
    if len(words) % 2 or not all(GroupRules.has_rule(word) for word in words[::2]):
        raise InvalidSyntax()
    return before.with_changes(words)


COMMAND = Command(
    "xgroup|cfgset",
    -6,
    run,
    "write",
    keys="2: RW update",
    group="stream",
    since=SINCE_HEADRACE,
    summary="Sets the rules by which the server redelivers and gives up the entries of a group.",
    syntax="key group rule value [rule value ...]",
)
