"""Check dead-letter rules: the stream that gets the dead letters must be valid and writable for the user.

A dead-letter stream has no dead letters of its own. To set a dead-letter stream, or to store a stream whose
groups use it (RESTORE, RENAME, COPY, MOVE), a user must be allowed to add entries to the dead-letter stream.
"""

from __future__ import annotations

from headrace.commands.call import Call
from headrace.keyspace.keyspace import Database
from headrace.keyspace.rule_registry import dead_letter_key, dead_letter_stream_keys
from headrace.streams.rules import GroupRules, InvalidRule
from headrace.streams.stream import Stream


class DeadLettersToOwnStream(InvalidRule):
    """A group's dead letters would go to its own stream."""

    def __init__(self) -> None:
        super().__init__("DEAD-LETTER must be another stream than the group's own")


class DeadLettersOfDeadLetters(InvalidRule):
    """A stream of dead letters would have dead letters itself."""

    def __init__(self) -> None:
        super().__init__("MAX-DELIVERIES must not be set on a stream of dead letters")


def check_dead_letter_stream(call: Call, key: bytes, rules: GroupRules) -> None:
    """Check the stream that gets the dead letters of a group with these rules.

    Raises:
        InvalidRule: if that stream must not get dead letters.
        CommandError: if its key does not hold a stream, or the user may not add to it.
    """
    if rules.dead_letter == key:
        raise DeadLettersToOwnStream()
    _check_target(call, call.database, dead_letter_key(key, rules))
    if call.keyspace.rule_registry.is_dead_letter_key(call.database.index, key):
        raise DeadLettersOfDeadLetters()


def check_value_to_store(
    call: Call, database: Database, key: bytes, value: object, moved: object = None
) -> None:
    """Check the dead-letter rules of all groups of a value before it is stored at the key.

    Args:
        moved: the value, if it is moved from another key; None if it is new or a copy. The rule DEAD-LETTER
            of a moved value may name the new key: its dead letters then go to the default stream.

    Raises:
        InvalidRule: if one of the streams must not get dead letters.
        CommandError: if its key does not hold a stream, or the user may not add to it.
    """
    if not isinstance(value, Stream) or not value.may_have_rules or call.replayed():
        return
    targets = dead_letter_stream_keys(key, value)
    if not targets:
        return
    if moved is None and any(
        one.rules is not None and one.rules.dead_letter == key for one in value.groups()
    ):
        raise DeadLettersToOwnStream()
    for target in targets:
        _check_target(call, database, target)
    leaving = moved if isinstance(moved, Stream) else None
    if call.keyspace.rule_registry.is_dead_letter_key(database.index, key, leaving):
        raise DeadLettersOfDeadLetters()


def _check_target(call: Call, database: Database, target: bytes) -> None:
    call.engine.auth.check_key(call.session, b"xadd", target, call.now)
    stream = database.stream(target)  # raises WrongType
    if stream is not None and call.keyspace.rule_registry.has_dead_letter_rule(stream):
        raise InvalidRule("DEAD-LETTER must be a stream without dead letters of its own")
