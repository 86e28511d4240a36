"""Effects for replicas that know the commands of Redis 7.0 only.

    XADD s KEEPREF IDMP p i 1-0 f v    XADD s 1-0 f v, and for Headrace XIDMPRECORD s p i 1-0, in a message
    XTRIM s MAXLEN = 5 KEEPREF         XTRIM s MAXLEN = 5
    XDELEX s KEEPREF IDS 1 1-0         XDEL s 1-0
    RESTORE of a newer version,
    XDELEX s ACKED ..., XACKDEL, XNACK RESTORE s with the state at the end of the turn, as the last resort

After an effect that has no such form, the later effects of the turn are replaced, too: each key that they
touch is restored, or deleted if it is gone, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.commands.arguments import is_keyword
from headrace.commands.table import find
from headrace.keyspace.keyspace import Database, Keyspace
from headrace.persistence.aof.log_buffer import Item
from headrace.persistence.dump import dump
from headrace.persistence.rdb import versions
from headrace.persistence.rule_records import recorded_command, rule_record
from headrace.streams.idempotency import iid_of

NEWER_COMMANDS = frozenset({b"XDELEX", b"XACKDEL", b"XNACK"})
HEADRACE_ONLY = frozenset({b"XCFGSET", b"XIDMPRECORD"})  # they change nothing that other replicas have
OPTION_COMMANDS = frozenset({b"XADD", b"XTRIM"})
DUMP_VERSION_MAX = 10  # of payloads that Redis 7.0 accepts
DUMP_VERSION_AT = slice(-10, -8)  # before the checksum


class WholeDatabase(Exception):
    """The effects concern all keys of a database: there is no list of keys to restore."""


class Translator:
    """Translates the effects of a turn. Counts the keys that had to be restored."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.keyspace = keyspace
        self.restored = 0

    def translate(self, items: list[Item], headrace_too: bool) -> list[Item]:
        """Return effects that Redis 7.0 understands and that lead to the same data.

        Args:
            headrace_too: keep commands that only Headrace knows, as messages that others ignore.

        Raises:
            WholeDatabase: if that is not possible.
        """
        found: list[Item] = []
        for at, (database, words) in enumerate(items):
            name = words[0].upper()
            if name in HEADRACE_ONLY:
                if headrace_too:
                    found.append((database, rule_record(words)))
            elif name in OPTION_COMMANDS or name in NEWER_COMMANDS:
                replaced = translate_one(name, words)
                if replaced is None:
                    return found + self._restore(items[at:], found)
                for for_all, one in replaced:
                    if for_all or headrace_too:
                        found.append((database, one if for_all else rule_record(one)))
            elif name == b"RESTORE" and is_newer_payload(words[3]):
                return found + self._restore(items[at:], found)
            else:
                found.append((database, words))
        return found

    def _restore(self, items: list[Item], before: list[Item]) -> list[Item]:
        """Return a transaction that gives each key of these effects its present value."""
        touched: dict[tuple[int, bytes], None] = {}
        for database, words in items:
            if words[0] not in (b"MULTI", b"EXEC"):
                touched.update(((database, key), None) for key in keys_of(words))
        inside = count(before, b"MULTI") > count(before, b"EXEC")  # a transaction is open
        found: list[Item] = [] if inside else [(items[0][0], [b"MULTI"])]
        for number, key in touched:
            found.append((number, self._value_of(self.keyspace.databases[number], key)))
        found.append((found[-1][0], [b"EXEC"]))
        return found

    def _value_of(self, database: Database, key: bytes) -> list[bytes]:
        value = database.values.get(key)
        if value is None:
            return [b"DEL", key]
        self.restored += 1
        payload = dump(
            value,
            versions.by_name("compatible"),
            compress=True,
            now_ms=self.keyspace.now,
            settings=self.keyspace.settings,
        )
        expires = max(database.expiry(key), 0)
        return [b"RESTORE", key, b"%d" % expires, payload, b"REPLACE", b"ABSTTL"]


def is_plain(items: list[Item]) -> bool:
    """Return whether Redis 7.0 understands all of these effects as they are."""
    for _, words in items:
        name = words[0].upper()
        if name in HEADRACE_ONLY or name in NEWER_COMMANDS:
            return False
        if name == b"RESTORE" and is_newer_payload(words[3]):
            return False
        if name in OPTION_COMMANDS and translate_one(name, words) != [(True, words)]:
            return False
    return True


def is_newer_payload(payload: bytes) -> bool:
    """Return whether Redis 7.0 would reject the payload of a RESTORE."""
    return int.from_bytes(payload[DUMP_VERSION_AT], "little") > DUMP_VERSION_MAX


def count(items: Iterable[Item], name: bytes) -> int:
    """Return how many of the effects are that command."""
    return sum(words[0] == name for _, words in items)


def keys_of(words: list[bytes]) -> list[bytes]:
    """Return the keys of an effect. Raises WholeDatabase if it has none."""
    recorded = recorded_command(words)
    if recorded is not None:
        words = recorded
    command = find(words[0])
    if command is not None and command.subcommands and len(words) > 1:
        command = command.subcommand(words[1])
    positions = [] if command is None else command.key_positions(words)
    if not positions:
        raise WholeDatabase()
    return [words[at] for at in positions]


def translate_one(name: bytes, words: list[bytes]) -> list[tuple[bool, list[bytes]]] | None:
    """Return what replaces an XADD, XTRIM or newer command: (whether it is for all replicas, effect).

    None if Redis 7.0 has no form of it.
    """
    if name == b"XDELEX":
        # XDELEX key [KEEPREF] IDS n id ...: without a condition it deletes as XDEL does.
        at = 3 if is_keyword(words[2], b"KEEPREF") else 2
        if is_keyword(words[at], b"IDS"):
            return [(True, [b"XDEL", words[1], *words[at + 2 :]])]
        return None
    if name in NEWER_COMMANDS:
        return None
    kept, pid, iid = words[:2], b"", b""
    at = 2
    while at < len(words):
        word = words[at].upper()
        if word in (b"DELREF", b"ACKED"):
            return None
        if word == b"KEEPREF":
            size = 1
        elif word in (b"IDMP", b"IDMPAUTO"):
            pid, size = words[at + 1], 2
            if word == b"IDMP":
                iid, size = words[at + 2], 3
        elif word == b"NOMKSTREAM" or word in (b"MAXLEN", b"MINID", b"LIMIT"):
            size = 1 if word == b"NOMKSTREAM" else 3 if words[at + 1] in (b"=", b"~") else 2
            kept += words[at : at + size]
        else:
            break
        at += size
    if not pid:
        return [(True, kept + words[at:])]
    if words[at].endswith(b"*"):
        return [(False, words)]  # a duplicate, which is only counted
    iid = iid or iid_of(words, at + 1)
    return [(True, kept + words[at:]), (False, [b"XIDMPRECORD", words[1], pid, iid, words[at]])]
