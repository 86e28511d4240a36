r"""Translate effects to commands of Redis 7.0 for replicas that know no newer ones. All get the same stream.

    XADD s KEEPREF IDMP p i 1-0 f v    XADD s 1-0 f v, and for Headrace XIDMPRECORD s p i 1-0, in a message
    XTRIM s MAXLEN = 5 KEEPREF         XTRIM s MAXLEN = 5
    XDELEX s KEEPREF IDS 1 1-0         XDEL s 1-0
    XACKDEL s g IDS 1 1-0              XACK s g 1-0, XDEL s 1-0: its Redis 7 equivalent
    XNACK s g FAIL IDS 1 1-0           for Headrace the XNACK itself, in a message; for others its equivalent
    anything else that is newer        RESTORE s with the state at the end of the turn, as the last resort

The equivalents are in commands/redis7_equivalents.py. A Headrace replica loses nothing by the translation: an
equivalent is sent alone only if its result is exactly the same. Otherwise a message before it contains the
effect itself, and the number of effects of the equivalent. A Headrace replica applies the effect in the
message, and skips the equivalent:

    MULTI, PUBLISH headrace:rules "*9\r\n... INSTEAD 1 XNACK s g FAIL IDS 1 1-0", XCLAIM s g ..., EXEC

The last resort also replaces the later effects of the turn on the same keys, and on those that they are
copied or moved to: each of these keys is restored, or deleted if it is gone, in one transaction with the
effects in between.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.commands.arguments import is_keyword
from headrace.commands.redis7_equivalents import options_and_end
from headrace.commands.spec import Command
from headrace.commands.table import find_command
from headrace.errors import ProtocolError, to_text
from headrace.keyspace.effects import Redis7Equivalent
from headrace.keyspace.keyspace import Database, Keyspace
from headrace.persistence.aof.log_buffer import DatabaseRequest
from headrace.persistence.dump import dump
from headrace.persistence.rdb import versions
from headrace.persistence.rule_records import REPLACEMENT_WORD, recorded_command, rule_record
from headrace.resp.parser import RequestParser
from headrace.streams.idempotency import iid_from_content

HEADRACE_ONLY = frozenset({b"XCFGSET", b"XIDMPRECORD"})  # they change nothing that other replicas have
COMMANDS_WITH_NEWER_OPTIONS = frozenset({b"XADD", b"XTRIM"})
REFERENCE_POLICIES = frozenset({b"DELREF", b"ACKED"})
SET_CONDITIONS = frozenset({b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"})
NEWER_OPTIONS = REFERENCE_POLICIES | SET_CONDITIONS | {b"KEEPREF", b"IDMP", b"IDMPAUTO"}
NAME_MAX = 60  # bytes of a name that are shown
KNOWN_REDIS_VERSION = (7, 0)  # of Redis: what every replica knows
DUMP_VERSION_MAX = 10  # of payloads that Redis 7.0 accepts
DUMP_VERSION_SLICE = slice(-10, -8)  # before the checksum

Redis7EquivalentFunction = Callable[[list[bytes]], Redis7Equivalent | None]


def no_redis7_equivalent(request: list[bytes]) -> Redis7Equivalent | None:
    """Return None: no effect has a Redis 7 equivalent. This is the default for `equivalent_of`."""
    return None


class Translator:
    """Translates the effects of turns into commands of Redis 7.0. Counts the keys that it had to restore."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.keyspace = keyspace
        self.restored_count = 0

    def translate(
        self, items: list[DatabaseRequest], equivalent_of: Redis7EquivalentFunction = no_redis7_equivalent
    ) -> list[DatabaseRequest]:
        """Return effects that Redis 7.0 understands, and that lead to the same data there and at Headrace.

        The keyspace must be in its state after the effects.

        Args:
            equivalent_of: returns the Redis 7 equivalent that the command has added to its effect; None if
                the effect has none.
        """
        batch = _BatchTranslation(self.keyspace, equivalent_of)
        for database, words in items:
            batch.add(database, words)
        self.restored_count += batch.finish()
        return batch.found


class _BatchTranslation:
    """The translation of one batch of effects: those of one turn of the event loop."""

    def __init__(self, keyspace: Keyspace, equivalent_of: Redis7EquivalentFunction) -> None:
        self.keyspace = keyspace
        self.equivalent_of = equivalent_of
        self.found: list[DatabaseRequest] = []
        self._inside = False  # a transaction of the effects is open
        self._stale: dict[tuple[int, bytes], None] = {}  # keys to restore at the end, in this order

    def add(self, database: int, words: list[bytes]) -> None:
        """Translate one effect."""
        if words[0] in (b"MULTI", b"EXEC"):
            self._inside = words[0] == b"MULTI"
            if not self._stale:  # otherwise one transaction goes on to the end of the turn
                self.found.append((database, words))
            return
        if self._stale and self._absorb_if_stale(database, words):
            return
        replaced = self._replacement_of(words)
        if replaced is None:
            self._begin_restoring(database)
            self._stale.update((key, None) for key in touched_keys(database, words))
            return
        atomic = len(replaced) > 1 and not self._inside and not self._stale
        self.found += [(database, [b"MULTI"])] if atomic else []
        self.found += [(database, one) for one in replaced]
        self.found += [(database, [b"EXEC"])] if atomic else []

    def _replacement_of(self, words: list[bytes]) -> list[list[bytes]] | None:
        """Return what replaces the effect; None if Redis 7.0 has no form of it."""
        form = self.equivalent_of(words)
        if form is None:
            return translate_one(words)
        found: list[list[bytes]] = []
        for one in form.commands:
            plain = translate_one(one)
            assert plain is not None, "a form is older than its effect"
            found += plain
        if form.exact:
            return found
        return [rule_record([REPLACEMENT_WORD, b"%d" % len(found), *words]), *found]

    def _begin_restoring(self, database: int) -> None:
        if not self._stale and not self._inside:
            self.found.append((database, [b"MULTI"]))

    def _absorb_if_stale(self, database: int, words: list[bytes]) -> bool:
        """Return whether a stale key makes the effect unnecessary; if so, all of its keys become stale.

        A SWAPDB stays necessary: it changes the databases of the stale keys.
        """
        keys = touched_keys(database, words)
        if any(key in self._stale for key in keys):
            self._stale.update((key, None) for key in keys)
            return True
        if words[0].upper() == b"SWAPDB":
            first, second = int(words[1]), int(words[2])
            other = {first: second, second: first}
            self._stale = {(other.get(number, number), key): None for number, key in self._stale}
        return False

    def finish(self) -> int:
        """Restore or delete the stale keys, and end the transaction; return the number of restored keys."""
        if not self._stale:
            return 0
        restored = 0
        for number, key in self._stale:
            command = self._restore_command(self.keyspace.databases[number], key)
            restored += command[0] == b"RESTORE"
            self.found.append((number, command))
        self.found.append((self.found[-1][0], [b"EXEC"]))
        return restored

    def _restore_command(self, database: Database, key: bytes) -> list[bytes]:
        value = database.values.get(key)
        if value is None:
            return [b"DEL", key]
        payload = dump(
            value,
            versions.COMPATIBLE_VERSION,
            compress=True,
            now_ms=self.keyspace.now,
            settings=self.keyspace.settings,
            complete=True,
        )
        expires = max(database.expiry(key), 0)
        return [b"RESTORE", key, b"%d" % expires, payload, b"REPLACE", b"ABSTTL"]


def touched_keys(database: int, words: list[bytes]) -> list[tuple[int, bytes]]:
    """Return the keys of an effect with their databases; [] if it concerns all keys, or none."""
    words = recorded_command(words) or words
    command = _command_of(words)
    return [] if command is None else command.keys_with_databases(database, words)


def _command_of(words: list[bytes]) -> Command | None:
    command = find_command(words[0])
    if command is not None and command.subcommands and len(words) > 1:
        command = command.subcommand(words[1])
    return command


def translate_one(words: list[bytes]) -> list[list[bytes]] | None:
    """Return the effects that replace an effect, without knowledge of the data; None if there are none.

    An effect that Redis 7.0 knows is returned alone. An effect that only Headrace knows is replaced by a
    message (PUBLISH).
    """
    name = words[0].upper()
    if name in HEADRACE_ONLY:
        return [rule_record(words)]
    if name in COMMANDS_WITH_NEWER_OPTIONS:
        return _without_newer_options(words)
    if name == b"XDELEX":
        # XDELEX key [KEEPREF] IDS n id ...: without a condition it deletes as XDEL does.
        at = 3 if is_keyword(words[2], b"KEEPREF") else 2
        return [[b"XDEL", words[1], *words[at + 2 :]]] if is_keyword(words[at], b"IDS") else None
    return None if is_newer_command(words) else [words]


def _without_newer_options(words: list[bytes]) -> list[list[bytes]] | None:
    """Return what replaces an XADD or XTRIM; None if what it trims depends on references."""
    options, at = options_and_end(words)
    if any(word.upper() in REFERENCE_POLICIES for word in words[2:at]) and any(
        option[0] in (b"MAXLEN", b"MINID") for option in options
    ):
        return None  # it depends on references, what it removes
    kept, pid, iid = words[:2], b"", b""
    for option in options:
        if option[0] in (b"IDMP", b"IDMPAUTO"):
            pid, iid = option[1], option[2] if len(option) > 2 else b""
        else:
            kept += option
    kept += words[at:]
    if not pid:
        return [words if kept == words else kept]
    if words[at].endswith(b"*"):
        return [rule_record(words)]  # a duplicate, which is only counted
    iid = iid or iid_from_content(words, at + 1)
    return [kept, rule_record([b"XIDMPRECORD", words[1], pid, iid, words[at]])]


def is_newer_command(words: list[bytes]) -> bool:
    """Return whether Redis 7.0 would reject this command of a stream; False for an unknown command."""
    name = words[0].upper()
    if name == b"RESTORE":
        return len(words) > 3 and int.from_bytes(words[3][DUMP_VERSION_SLICE], "little") > DUMP_VERSION_MAX
    if name == b"SET":
        return any(word.upper() in SET_CONDITIONS for word in words[3:])
    command = _command_of(words)
    return command is not None and command.write and _version_of(command.since) > KNOWN_REDIS_VERSION


def _version_of(since: str) -> tuple[int, ...]:
    """Return the version of Redis that has a command; a very high one if none has."""
    return (99,) if since.startswith("headrace") else tuple(map(int, since.split(".")[:2]))


def first_unsupported_command(stream: bytes) -> str:
    """Return the first command of a replication stream that Redis 7.0 would reject.

    Args:
        stream: a part of the stream, of whole commands.

    Returns:
        The command's name, with the option that makes it newer if there is one. "" if there is no such
        command; "malformed bytes" if the bytes are not commands.
    """
    parser = RequestParser()
    parser.bulk_max = 1 << 62
    parser.feed(stream)
    try:
        while (words := parser.next()) is not None:
            if words and translate_one(words) != [words]:
                return shown_command_name(words)
    except (ProtocolError, IndexError):
        return "malformed bytes"
    return ""


def shown_command_name(words: list[bytes]) -> str:
    """Return the name of a command, and of the option that makes it newer."""
    name = words[0].upper()
    known = COMMANDS_WITH_NEWER_OPTIONS | {b"SET"}
    found = [word.upper() for word in words[2:] if word.upper() in NEWER_OPTIONS] if name in known else []
    return to_text(b" ".join([name[:NAME_MAX], *found[:1]]))
