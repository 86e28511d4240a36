"""Record changes of rules, in the log and for replicas, as messages that Redis servers accept and ignore.

A change of rules is recorded as a message to a channel, which changes nothing for Redis since 7.0. Its text
is the command that sets the rules, as a client would send it:

    PUBLISH headrace:rules "*4\r\n$7\r\nXCFGSET\r\n$6\r\norders\r\n$7\r\nMAX-AGE\r\n$8\r\n86400000\r\n"

A replication stream that goes to replicas of other servers also has idempotency records in this form, and
commands that Headrace replicas run instead of the effects that follow: see replication/translation.py. An
unknown command would be an error in those replicas, and in a transaction all of it would be rejected.

Clients cannot publish to this channel.
"""

from __future__ import annotations

import re

from headrace.resp.request import request

CHANNEL = b"headrace:rules"
# Those that set rules; and those that only replicas that are Headrace understand, when there are others, too.
RECORDED_COMMANDS = (b"XCFGSET", b"XGROUP", b"XIDMPRECORD", b"XADD")
# INSTEAD count command ...: Headrace runs this command, and skips the next `count` ones.
REPLACEMENT_WORD = b"INSTEAD"
TRANSLATION_START_WORDS = [b"TRANSLATED"]  # from here on the stream has commands of Redis 7.0 only
ARRAY_HEADER_PATTERN = re.compile(rb"\*([1-9]\d{0,6})\r\n")
BULK_HEADER_PATTERN = re.compile(rb"\$(\d{1,9})\r\n")


def rule_record(words: list[bytes]) -> list[bytes]:
    """Return the effect that records a command: a PUBLISH to CHANNEL."""
    return [b"PUBLISH", CHANNEL, request(*words)]


def recorded_command(effect: list[bytes]) -> list[bytes] | None:
    """Return the command that an effect records; None if it is not a record of one of RECORDED_COMMANDS."""
    words = message_words(effect)
    return words if words and words[0] in RECORDED_COMMANDS else None


def message_words(effect: list[bytes]) -> list[bytes]:
    """Return the words of a message to CHANNEL; [] if the effect is not such a message, or is damaged."""
    if len(effect) != 3 or effect[0].upper() != b"PUBLISH" or effect[1] != CHANNEL:
        return []
    return _words(effect[2])


def _words(message: bytes) -> list[bytes]:
    """Return the words of a request as clients send it; [] if it is malformed."""
    head = ARRAY_HEADER_PATTERN.match(message)
    if head is None:
        return []
    words = []
    at = head.end()
    for _ in range(int(head[1])):
        size = BULK_HEADER_PATTERN.match(message, at)
        if size is None:
            return []
        end = size.end() + int(size[1])
        words.append(message[size.end() : end])
        if message[end : end + 2] != b"\r\n":
            return []
        at = end + 2
    return words if at == len(message) else []
