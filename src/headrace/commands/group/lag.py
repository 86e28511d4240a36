"""XLAG: the exact number of entries that a group has not been given yet. Redis does not have this command.

XLAG key group
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.commands.call import Call
from headrace.commands.group import members
from headrace.commands.spec import SINCE_HEADRACE, Command
from headrace.streams import entry_counts
from headrace.streams.group import Group
from headrace.streams.stream import Stream


def run_lag(call: Call) -> None:
    """XLAG: reply with the number of entries after the group's last-delivered ID."""
    stream: Stream = members.stream_of_group(call)
    group: Group | None = stream.group(call.argv[2])
    assert group is not None
    call.reply.integer(mem.as_signed(entry_counts.undelivered_count(stream, group)))


COMMANDS = [
    Command(
        "xlag",
        3,
        run_lag,
        "readonly fast",
        keys="1: RO",
        group="stream",
        since=SINCE_HEADRACE,
        summary="Counts the entries not yet delivered to a group; never null, unlike XINFO's lag.",
        complexity="O(log n) for a stream of n entries",
        syntax="key group",
    ),
]
