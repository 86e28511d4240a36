"""Record a change of rules as an effect: see persistence/rule_records.py."""

from __future__ import annotations

from headrace.commands.call import Call
from headrace.errors import CommandError
from headrace.persistence.rule_records import CHANNEL as CHANNEL
from headrace.persistence.rule_records import recorded_command as recorded_command
from headrace.persistence.rule_records import rule_record


class ReservedChannel(CommandError):
    """A client has published to the channel of rules."""

    text = "ERR the channel 'headrace:rules' is reserved for the records of rules"


def record_rules(call: Call, words: list[bytes]) -> None:
    """Record a change of rules, and count it. words: the command that sets the rules."""
    call.keyspace.changes += 1
    if call.effects.recording:
        call.record(rule_record(words))
