"""Requests as access rules see them: which keys are read or written, which channels are used.

A command that is not in KEY_USES reads its keys if it is read-only; else it reads and writes them. A command
that only looks at a key's metadata (LOOKUP_ONLY) needs any rule for the key.
"""

from __future__ import annotations

import cython

from headrace.access.selector import BOTH, READ, WRITE, AccessRequest
from headrace.commands.spec import Command
from headrace.errors import CommandError

LOOKUP_ONLY = 0

# By full name: the use of the first key, the second, ...; the last one applies to all further keys.
_WRITE_ONLY = """
    append del expire expireat mset msetnx persist pexpire pexpireat psetex restore setex setnx setrange
    unlink xack xackdel xadd xautoclaim xcfgset xclaim xdel xdelex xgroup|cfgset xgroup|create
    xgroup|createconsumer xgroup|delconsumer xgroup|destroy xgroup|setid xidmprecord xnack xsetid xtrim
"""
_LOOKUP_ONLY = """
    exists memory|usage object|encoding object|freq object|idletime object|refcount strlen touch type watch
    xlen xcount xlag
"""
KEY_USES: dict[bytes, tuple[int, ...]] = {
    **{name.encode(): (WRITE,) for name in _WRITE_ONLY.split()},
    **{name.encode(): (LOOKUP_ONLY,) for name in _LOOKUP_ONLY.split()},
    b"copy": (READ, WRITE),
    b"rename": (BOTH, WRITE),
    b"renamenx": (BOTH, WRITE),
    b"xreadgroup": (READ,),
}

# Index of the first channel, and how many there are: 0 for all further arguments.
CHANNELS = {b"publish": (1, 1), b"spublish": (1, 1), b"subscribe": (1, 0), b"ssubscribe": (1, 0)}
PATTERNS = {b"psubscribe": (1, 0)}


def key_uses(command: Command, argv: list[bytes]) -> tuple[int, ...]:
    """Return the use of each key."""
    if command.name == b"set":
        return (BOTH,) if any(word.upper() == b"GET" for word in argv[3:]) else (WRITE,)
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
