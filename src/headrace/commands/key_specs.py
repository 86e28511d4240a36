"""Key specifications: where each command's keys are and what it does with them, in Redis's terms.

    RO access          reads the value            OW update      replaces it without reading
    RO                 looks at metadata only     RM delete      removes the key
    RW access update   reads and changes it       RW insert      adds to the value

The first word says what happens to the key; `access`, `update`, `insert` and `delete` say what happens to
the user's data in it. Access rules follow from the latter: see access_request.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.commands.spec import Command

# Flags and their commands. With a `|` between flags the first key has those before it, the second the others.
_FLAGS = """
    RO: exists memory|usage object|encoding object|freq object|idletime object|refcount strlen touch type
        watch xcount xlag xlen
    RO access: digest dump eval_ro evalsha_ro expiretime fcall_ro get getrange lcs mget pexpiretime pttl
        substr ttl xarrow xinfo|consumers xinfo|groups xinfo|stream xpending xrange xread xreadgroup xrevrange
    RO access | OW update: copy
    OW insert: msetnx setnx
    OW update: mset msetex psetex restore setex
    RM delete: del unlink
    RW access delete: getdel
    RW access delete | OW insert: renamenx
    RW access delete | OW update: rename
    RW access update: decr decrby eval evalsha fcall getex getset incr incrby incrbyfloat move
    RW access update variable_flags: set
    RW delete variable_flags: delex
    RW delete: xautoclaim xdel xdelex xgroup|delconsumer xgroup|destroy xtrim
    RW insert: append xgroup|create xgroup|createconsumer
    RW update: expire expireat persist pexpire pexpireat setrange xack xadd xcfgset xclaim xgroup|cfgset
        xgroup|setid xidmprecord xnack xsetid
    RW update delete: xackdel
    not_key: spublish ssubscribe sunsubscribe
"""

# Commands whose keys follow a word: the word, and from which argument on it is looked for.
_AFTER_WORD = {b"xread": (b"STREAMS", 1), b"xreadgroup": (b"STREAMS", 4)}
# Commands whose keys follow their number, and the index of that number.
_COUNTED = dict.fromkeys((b"eval", b"eval_ro", b"evalsha", b"evalsha_ro", b"fcall", b"fcall_ro"), 2)
_COUNTED[b"msetex"] = 1
# Those of them whose keys alternate with values.
_IN_PAIRS = frozenset({b"msetex"})

# Channels, which COMMAND shows as keys with the flag not_key, so that a cluster can find their slot.
_CHANNELS = {b"spublish": (1, 1, 1), b"ssubscribe": (1, -1, 1), b"sunsubscribe": (1, -1, 1)}

Flags = tuple[str, ...]
# SET reads the old value only with GET or a comparison, DELEX only with a comparison.
_READING_OPTIONS = frozenset({b"GET", b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"})
_SET: Flags = ("OW", "update")
_SET_AND_GET: Flags = ("RW", "access", "update")
_DELETE: Flags = ("RM", "delete")
_COMPARE_AND_DELETE: Flags = ("RW", "access", "delete")
# The commands whose flags depend on their options.
VARYING = frozenset({b"set", b"delex"})


@dataclass(frozen=True)
class KeySpec:
    """Where one or several keys of a command are, and how it uses them."""

    flags: Flags
    begin: dict[bytes, Any]
    find: dict[bytes, Any]

    def fields(self) -> dict[bytes, Any]:
        """Return the fields that COMMAND shows after the flags."""
        return {b"begin_search": self.begin, b"find_keys": self.find}


def _read_flags() -> dict[bytes, tuple[Flags, ...]]:
    """Return the flags of the first key and of further ones, by command."""
    found: dict[bytes, tuple[Flags, ...]] = {}
    use: tuple[Flags, ...] = ()
    for line in _FLAGS.strip().splitlines():
        flags, colon, names = line.rpartition(":")
        if colon:
            use = tuple(tuple(part.split()) for part in flags.split(" | "))
        found |= {name.encode(): use for name in names.split()}
    return found


FLAGS_BY_NAME = _read_flags()


def key_flags(command: Command) -> tuple[Flags, ...]:
    """Return the flags of the first key, of the second, and so on; the last ones apply to the rest."""
    default = ("RO", "access") if command.readonly else ("RW", "access", "update")
    return FLAGS_BY_NAME.get(command.name, (default,))


def key_flags_of(command: Command, argv: list[bytes]) -> tuple[Flags, ...]:
    """Return the flags of the keys of one request; those of VARYING depend on its options."""
    if command.name == b"set":
        reads = any(word.upper() in _READING_OPTIONS for word in argv[3:])
        return (_SET_AND_GET if reads else _SET,)
    if command.name == b"delex":
        return (_COMPARE_AND_DELETE if len(argv) > 2 else _DELETE,)
    return key_flags(command)


def shown_positions(command: Command) -> tuple[int, int, int]:
    """Return the first and last position and the step of a command's keys, as COMMAND shows them."""
    return _CHANNELS.get(command.name, (command.first_key, command.last_key, command.key_step))


def key_specs(command: Command) -> list[KeySpec]:
    """Return the specifications of a command's keys; none if it has no keys."""
    flags = key_flags(command)
    name = command.name
    if name in _AFTER_WORD:
        word, start = _AFTER_WORD[name]
        begin = {b"type": b"keyword", b"spec": {b"keyword": word, b"startfrom": start}}
        return [KeySpec(flags[0], begin, _range(-1, 1, 2))]
    if name in _COUNTED:
        numbers = {b"keynumidx": 0, b"firstkey": 1, b"keystep": 2 if name in _IN_PAIRS else 1}
        return [KeySpec(flags[0], _index(_COUNTED[name]), {b"type": b"keynum", b"spec": numbers})]
    first, last, step = shown_positions(command)
    if not first:
        return []
    if len(flags) > 1:
        return [KeySpec(one, _index(first + i), _range(0, 1, 0)) for i, one in enumerate(flags)]
    return [KeySpec(flags[0], _index(first), _range(last - first if last > 0 else last, step, 0))]


def _index(first: int) -> dict[bytes, Any]:
    return {b"type": b"index", b"spec": {b"index": first}}


def _range(last: int, step: int, limit: int) -> dict[bytes, Any]:
    """Return a range that ends `last` after its first key; a negative one counts from the end."""
    return {b"type": b"range", b"spec": {b"lastkey": last, b"keystep": step, b"limit": limit}}
