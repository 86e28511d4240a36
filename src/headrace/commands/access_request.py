"""Requests as access rules see them: which keys are read or written, which channels are used.

How a command uses its keys follows from their specifications (key_specs.py). A command that only looks at a
key's metadata (LOOKUP_ONLY) needs any rule for the key.
"""

from __future__ import annotations

import cython

from headrace.access.selector import BOTH, READ, WRITE, AccessRequest
from headrace.commands.key_specs import FLAGS_BY_NAME, VARYING, Flags, key_flags_of
from headrace.commands.spec import Command
from headrace.errors import CommandError

LOOKUP_ONLY = 0
# What a flag of a key specification lets the command do with the user's data; other flags do nothing.
_USE_OF_FLAG = {"access": READ, "insert": WRITE, "update": WRITE, "delete": WRITE}

# Index of the first channel, and how many there are: 0 for all further arguments.
CHANNELS = {b"publish": (1, 1), b"spublish": (1, 1), b"subscribe": (1, 0), b"ssubscribe": (1, 0)}
PATTERNS = {b"psubscribe": (1, 0)}


def _use(flags: Flags) -> int:
    """Return the use of a key with these flags: READ, WRITE, BOTH, or LOOKUP_ONLY."""
    use = LOOKUP_ONLY
    for flag in flags:
        use |= _USE_OF_FLAG.get(flag, LOOKUP_ONLY)
    return use


# By full name: the use of the first key, the second, ...; the last one applies to all further keys.
KEY_USES = {name: tuple(_use(one) for one in flags) for name, flags in FLAGS_BY_NAME.items()}


def key_uses(command: Command, argv: list[bytes]) -> tuple[int, ...]:
    """Return the use of each key."""
    if command.name in VARYING:
        return tuple(_use(flags) for flags in key_flags_of(command, argv))
    return KEY_USES.get(command.name, (READ,) if command.readonly else (BOTH,))


def build_access_request(command: Command, argv: list[bytes]) -> AccessRequest:
    """Return the request as access rules see it. argv must fit the arity; unparsable keys count as none."""
    request = AccessRequest(command.name, argv, "no_auth" in command.flags)
    if command.first_key or command.movable_keys is not None:
        try:
            request.keys = command.key_positions(argv)
        except CommandError:
            request.keys = []
        uses = key_uses(command, argv)
        request.uses = [uses[min(i, len(uses) - 1)] for i in range(len(request.keys))]
    where = CHANNELS.get(command.name) or PATTERNS.get(command.name)
    if where is not None:
        first, count = where
        request.channels = list(range(first, first + count if count else len(argv)))
        request.literal = command.name in PATTERNS
    return request
