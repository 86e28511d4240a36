"""The stream for the dead letters of a group, and the permission that setting it needs.

A dead-letter stream has no dead letters of its own. A user that sets one, or that stores a stream with one,
must be allowed to add entries to it.
"""

from __future__ import annotations

from headrace.commands.call import Call
from headrace.keyspace.rules import dead_letter_stream
from headrace.streams.rules import GroupRules, InvalidRule
from headrace.streams.stream import Stream


def check(call: Call, key: bytes, rules: GroupRules) -> None:
    """Raise an error if dead letters cannot go where the rules say, or the user may not add them there."""
    if rules.dead_letter == key:
        raise InvalidRule("DEAD-LETTER must be another stream than the group's own")
    target = dead_letter_stream(key, rules)
    call.engine.auth.check_key(call.session, b"xadd", target, call.now)
    call.database.stream(target)  # raises WrongType
    for ruled in call.keyspace.rules.streams.values():
        if ruled.database != call.database.index:
            continue
        for group in ruled.stream.groups():
            if group.rules is None or not group.rules.max_deliveries:
                continue
            if ruled.key == target:
                raise InvalidRule("DEAD-LETTER must be a stream without dead letters of its own")
            if dead_letter_stream(ruled.key, group.rules) == key:
                raise InvalidRule("MAX-DELIVERIES must not be set on a stream of dead letters")


def check_stream(call: Call, key: bytes, value: object) -> None:
    """Check the rules of all groups of a value that a client brings, and that is to be stored at the key."""
    if not isinstance(value, Stream) or call.replayed():
        return
    for group in value.groups():
        if group.rules is not None and group.rules.max_deliveries:
            check(call, key, group.rules)
