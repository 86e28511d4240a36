"""Random commands on consumer groups that Redis 7.0 executes as 8.0 does."""

from __future__ import annotations

from conformance.peer import words
from support.command_generator import CommandGenerator

START = """
    DEL s t none string
    SET string x
    CONFIG SET stream-node-max-entries 3
    XGROUP CREATE s g 0 MKSTREAM
    XGROUP CREATE s h 0
    XGROUP CREATE t g 0 MKSTREAM
"""


def group_commands(seed: int, turns: int, grammar: str = "groups") -> list[list[bytes]]:
    """Random commands. Each group's consumers are created first: 7.0 creates them with their first entry."""
    requests = []
    started = [words(line) for line in START.strip().splitlines()]
    for argv in started + CommandGenerator(grammar, seed).commands(turns):
        requests.append(argv)
        if argv[0] == b"XGROUP" and argv[1] in (b"CREATE", b"DELCONSUMER"):
            names = [b"ann", b"Bob", b"c"]
            requests += [[b"XGROUP", b"CREATECONSUMER", argv[2], argv[3], name] for name in names]
    return requests
