"""Apply the commands of a primary to an engine.

SELECT               the database of the commands that follow, also after a reconnect
MULTI ... EXEC       held until EXEC, then applied at once, and recorded as one transaction
PUBLISH, SPUBLISH    delivered to this server's subscribers, except for records of a Headrace primary. Such a
                     record is applied: it is a rule, or a command that replaces the INSTEAD n commands
                     after it, which are for other servers
write commands       run by a Replayer; recorded for the log here, published as events, wake blocked readers

A command that fails here is counted, and logged once for each name. A command for types that Headrace does
not have is an error, unless such keys are skipped. A skipped command still removes the key that it would have
overwritten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import cython

from headrace.commands.connection.subscriptions import PubSub
from headrace.commands.spec import Command
from headrace.commands.stats import CommandRow
from headrace.engine.engine import Engine
from headrace.engine.foreign_commands import (
    FOREIGN_ERRORS,
    copy_target_database,
    count_name,
    overwritten_key,
    shortened_name,
)
from headrace.engine.replaying import Replayer
from headrace.errors import CommandError, HeadraceError, InvalidStreamId, to_text
from headrace.keyspace.effects import Effects
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence import rule_records
from headrace.replication.stored_position import is_number
from headrace.replication.stream_reader import ReplicationReader
from headrace.streams import delivery
from headrace.streams.group import Group
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId
from headrace.visibility import Public

LOG = logging.getLogger("headrace")
# Entries that it needs cannot be read on this replica: errors.DamagedColdRun.
COLD_ERROR = b"COLDERR "
REPLACED_DIGITS_MAX = 9  # of the number of commands that one of Headrace replaces
SKIP_FOREIGN_ADVICE = "set replica-skip-foreign-types yes to skip keys of other types"
# They change no keys.
IGNORED_COMMANDS = frozenset({b"SCRIPT", b"FUNCTION", b"REPLCONF", b"PING"})
CONTROL_COMMANDS = frozenset({b"MULTI", b"EXEC", b"SELECT", b"PUBLISH", b"SPUBLISH"})
# They need more than a run, even outside of a transaction.
CHECKED_COMMANDS = CONTROL_COMMANDS | {b"COPY", b"XCLAIM", b"XGROUP"}
# Of the XCLAIM that propagates a delivery; its LASTID is last.
CLAIM_WORD_COUNT = cython.declare(cython.Py_ssize_t, 14)


def is_replacement(words: list[bytes]) -> bool:
    """Return whether a record has a command that Headrace runs instead of the commands after it."""
    return (
        len(words) > 2
        and words[0] == rule_records.REPLACEMENT_WORD
        and is_number(words[1]) is not None
        and len(words[1]) <= REPLACED_DIGITS_MAX
        and words[2].upper() not in CONTROL_COMMANDS
    )


class CannotApply(HeadraceError):
    """A command of the primary cannot run here, and the data would differ. The text says what to do."""


def _ignore(*arguments: object) -> None:
    """Do nothing: no callback is set."""


@cython.final
@cython.cclass
class StreamApplier:
    """Applies one primary's commands, in order, from one connection after the other."""

    engine: Engine
    keyspace: Keyspace
    pubsub: PubSub
    skip_foreign: Public[cython.bint]
    counts_deliveries: Public[cython.bint]  # the primary is a Redis 7: see streams/delivery.py
    limits_entries_read: Public[cython.bint]  # it is a Redis 8, which limits the counts that it is given
    accepts_rules: Public[cython.bint]  # it is a Headrace: its clients cannot write records of rules
    on_translated: Public[Callable[[], None]]  # from here on Redis 7.0 knows the stream
    on_message: Callable[[list[bytes]], None]  # of a client
    skipped_commands: dict[str, int]  # by command name
    failed_commands: dict[str, int]
    is_torn: Public[cython.bint]  # a part of a transaction was applied: only a snapshot helps
    _commands_left_to_skip: cython.Py_ssize_t  # how many commands follow that only other servers run
    _replayer: Replayer
    _transaction: list[list[bytes]] | None  # the transaction being received
    _previous_command_name: bytes | None  # an object that the parser reuses for the same name
    _runs_directly: cython.bint  # a command of that name needs no more than a run

    def __init__(
        self,
        engine: Engine,
        skip_foreign: cython.bint,
        *,
        on_translated: Callable[[], None] = _ignore,
        on_message: Callable[[list[bytes]], None] = _ignore,
    ) -> None:
        """Apply nothing yet.

        Args:
            skip_foreign: skip and count commands for keys of types that Headrace does not have.
            on_translated: called when the stream has only commands of Redis 7.0 from there on.
            on_message: called with each PUBLISH and SPUBLISH of a client.
        """
        self.engine = engine
        self.keyspace = engine.keyspace
        self.pubsub = engine.pubsub
        self.skip_foreign = skip_foreign
        self.counts_deliveries = self.limits_entries_read = self.is_torn = False
        self.accepts_rules = True
        self.on_translated = on_translated
        self.on_message = on_message
        self.skipped_commands = {}
        self.failed_commands = {}
        self._commands_left_to_skip = 0
        self._replayer = Replayer(engine, 0, True)
        self._transaction = None
        self._previous_command_name = None
        self._runs_directly = False

    @property
    def database(self) -> int:
        """The database that the stream has selected."""
        return self._replayer.session.database

    def select(self, database: int) -> None:
        """Select a database, as the position in the stream requires. Raises CannotApply."""
        self._replay([b"SELECT", b"%d" % database])

    def discard_transaction(self) -> None:
        """Drop a transaction whose EXEC was not received: the next connection sends all of it."""
        self._transaction = None
        self._commands_left_to_skip = 0

    @cython.ccall
    def apply(self, reader: ReplicationReader, now_ms: cython.longlong) -> cython.longlong:
        """Apply the commands that the reader has; return how many there were.

        Raises LinkError (from the reader) or CannotApply.
        """
        keyspace: Keyspace = self.keyspace
        kept: cython.bint = keyspace.ignore_expiry
        count: cython.longlong = 0
        argv: list[bytes] | None
        self._replayer.now_ms = keyspace.now = now_ms
        keyspace.ignore_expiry = True
        try:
            while True:
                argv = reader.next()
                if argv is None:
                    break
                count += 1
                self._apply(argv)
                if keyspace.blocking.ready_keys or self.pubsub.outbox:
                    keyspace.ignore_expiry = kept
                    self.engine.after_nonclient_change()
                    keyspace.ignore_expiry = True
        finally:
            keyspace.ignore_expiry = kept
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _apply(self, argv: list[bytes]) -> cython.int:
        """Apply one command. Returns 0: an int is cheaper to check for an exception than void."""
        word: bytes = argv[0]
        name: bytes
        error: bytes | None
        held: list[list[bytes]] | None = self._transaction
        if word is not self._previous_command_name:
            self._previous_command_name = word
            self._runs_directly = self._needs_no_check(word)
        if self._runs_directly and held is None and self._commands_left_to_skip == 0:
            error = self._replay(argv)
            if error is not None:
                self._on_error(word.upper(), argv, error)
            return 0
        name = word.upper()
        if name == b"EXEC":
            self._transaction = None
            self._run_transaction([] if held is None else held)
        elif held is not None:
            if not self._can_run(name, argv):
                self._require_skipping(name)  # before the first command of the transaction has run
            held.append(argv)
        elif name == b"MULTI":
            self._transaction = []
        else:
            self._run(name, argv)
        return 0

    @cython.cfunc
    def _needs_no_check(self, word: bytes) -> cython.bint:
        """Return whether commands of this name change data, and need no more than a run."""
        name: bytes = word.upper()
        row: CommandRow | None = self.engine.rows.get(name)
        return (
            row is not None and row.has_no_subcommands and row.command.write and name not in CHECKED_COMMANDS
        )

    @cython.cfunc
    def _run_transaction(self, commands: list[list[bytes]]) -> cython.void:
        """Run the commands of a transaction; their effects are one transaction, too.

        Raises CannotApply; then `is_torn` is set, because a part of the transaction may be applied.
        """
        effects: Effects = self.engine.effects
        argv: list[bytes]
        effects.begin_transaction()
        try:
            for argv in commands:
                self._run(argv[0].upper(), argv)
        except CannotApply:
            self.is_torn = True
            raise
        finally:
            effects.end_transaction()

    # One command.

    @cython.cfunc
    def _can_run(self, name: bytes, argv: list[bytes]) -> cython.bint:
        """Return whether it is a command that can change data here."""
        row: CommandRow | None = self.engine.rows.get(name)
        sub: Command | None
        if row is None:
            return False
        if row.has_no_subcommands or len(argv) == 1:
            return row.command.write or name in CONTROL_COMMANDS
        sub = row.command.subcommand(argv[1])
        return sub is not None and sub.write

    @cython.cfunc
    def _require_skipping(self, name: bytes) -> cython.void:
        """Raise CannotApply unless the command, which cannot run here, may be skipped."""
        row: CommandRow | None = self.engine.rows.get(name)
        if not (self.skip_foreign or name in IGNORED_COMMANDS or (row is not None and row.readonly)):
            raise CannotApply(
                f"the primary has sent {shortened_name(name)}, which headrace does not have: "
                f"{SKIP_FOREIGN_ADVICE}"
            )

    @cython.cfunc
    def _run(self, name: bytes, argv: list[bytes]) -> cython.void:
        """Run a command, or skip it."""
        if self._commands_left_to_skip > 0:
            self._commands_left_to_skip -= 1
            return
        if name == b"PUBLISH" and len(argv) == 3:
            self._publish(argv)
            return
        if name == b"SPUBLISH" and len(argv) == 3:
            self.engine.pubsub.publish_to_shard(argv[1], argv[2])
            self.on_message(argv)
            return
        if not self._can_run(name, argv):
            self._require_skipping(name)
            self._skip(name, argv)
            return
        if self.skip_foreign and name == b"COPY" and self._is_missing(argv):
            self._delete_copy_destination(argv)
            return
        if self.limits_entries_read and name == b"XGROUP":
            argv = self._with_limited_count(argv)
        claimed: StreamId | None = None
        if self.counts_deliveries and name == b"XCLAIM":
            claimed = self._newly_delivered_id(argv)
        error: bytes | None = self._replay(argv)
        if error is not None:
            self._on_error(name, argv, error)
        elif claimed is not None:
            self._count_delivery(argv, claimed)

    @cython.cfunc
    def _publish(self, argv: list[bytes]) -> cython.void:
        """Deliver a message. Apply a record if only the primary itself can have written it; else skip it."""
        if argv[1] != rule_records.CHANNEL:
            self.engine.pubsub.publish(argv[1], argv[2])
            self.on_message(argv)
            return
        words = rule_records.message_words(argv) if self.accepts_rules else []
        if words == rule_records.TRANSLATION_START_WORDS:
            self.on_translated()
        elif is_replacement(words):
            self._run(words[2].upper(), words[2:])
            self._commands_left_to_skip = int(words[1])
        elif rule_records.recorded_command(argv) is not None and self.accepts_rules:
            error = self._replay(argv)
            if error is not None:
                self._on_error(b"PUBLISH", argv, error)
        else:
            count_name(self.skipped_commands, "PUBLISH")

    @cython.cfunc
    def _replay(self, argv: list[bytes]) -> bytes | None:
        """Run the command; return the text of its error, or None. Raises CannotApply if a SELECT fails."""
        error: bytes | None
        try:
            error = self._replayer.replay(argv)
        except CommandError as impossible:
            error = str(impossible).encode("utf-8", "surrogateescape")
        if error is not None and argv[0].upper() == b"SELECT":
            shown_number = shortened_name(argv[1]) if len(argv) > 1 else ""
            raise CannotApply(
                f"the primary uses the database {shown_number}, there are {len(self.keyspace.databases)}"
                " here: set `databases` as the primary does"
            )
        return error

    @cython.cfunc
    def _on_error(self, name: bytes, argv: list[bytes], error: bytes) -> cython.void:
        """Count and log a failed command; skip it if its key has a foreign type and such keys are skipped.

        Raises:
            CannotApply: if cold entries cannot be read, or a RESTORE of a foreign type may not be skipped.
        """
        if error.startswith(COLD_ERROR):
            self.is_torn = True
            raise CannotApply(
                f"the primary's {shortened_name(name)} fails: {to_text(error)}; a new copy is needed"
            )
        foreign = error.startswith(FOREIGN_ERRORS)
        if foreign and name == b"RESTORE" and not self.skip_foreign:
            raise CannotApply(f"the primary has restored a value of an unknown type: {SKIP_FOREIGN_ADVICE}")
        if foreign and self.skip_foreign:
            self._skip(name, argv)
            return
        shown_name = shortened_name(name)
        if shown_name not in self.failed_commands:
            LOG.error("the primary's %s fails here: %s", shown_name, to_text(error))
        count_name(self.failed_commands, shown_name)

    # Keys of types that do not exist here.

    @cython.cfunc
    def _skip(self, name: bytes, argv: list[bytes]) -> cython.void:
        """Count a command that is skipped; remove the key that it overwrites."""
        shown_name = shortened_name(name)
        if shown_name not in self.skipped_commands and name not in IGNORED_COMMANDS:
            LOG.warning("skipping %s of the primary: the key has a type that headrace lacks", shown_name)
        count_name(self.skipped_commands, shown_name)
        key = overwritten_key(name, argv)
        if key is not None and key in self.keyspace.databases[self.database].values:
            self._replay([b"DEL", key])

    @cython.cfunc
    def _is_missing(self, argv: list[bytes]) -> cython.bint:
        return len(argv) > 2 and argv[1] not in self.keyspace.databases[self.database].values

    @cython.cfunc
    def _delete_copy_destination(self, argv: list[bytes]) -> cython.void:
        """Skip a COPY of a key that does not exist here, and delete the key that it would overwrite."""
        database = self.database
        target = copy_target_database(argv)
        if target is not None:
            self._replay([b"SELECT", target])
        self._skip(b"COPY", argv)
        self._replay([b"SELECT", b"%d" % database])

    # Redis 8 propagates an ENTRIESREAD as it came, and its replicas limit it as it does.

    @cython.cfunc
    def _with_limited_count(self, argv: list[bytes]) -> list[bytes]:
        """Return an XGROUP with an ENTRIESREAD of at most the number of entries ever added."""
        words = [word.upper() for word in argv]
        if words[1] not in (b"CREATE", b"SETID") or b"ENTRIESREAD" not in words[5:-1]:
            return argv
        at = words.index(b"ENTRIESREAD", 5) + 1
        stream = self.keyspace.databases[self.database].values.get(argv[2])
        most = stream.entries_added if isinstance(stream, Stream) else 0
        if not argv[at].isdigit() or (is_number(argv[at]) and int(argv[at]) <= most):
            return argv
        return [*argv[:at], b"%d" % most, *argv[at + 1 :]]

    # Redis 7 does not propagate how many entries a group has read.

    @cython.cfunc
    def _group(self, argv: list[bytes]) -> Group | None:
        """Return the group of an XCLAIM, None if there is none."""
        stream: Stream
        value: object = self.keyspace.databases[self.database].values.get(argv[1])
        if not isinstance(value, Stream):
            return None
        stream = value
        return stream.group(argv[2])

    @cython.cfunc
    def _newly_delivered_id(self, argv: list[bytes]) -> StreamId | None:
        """Return the ID of a new entry that the XCLAIM delivers, or None."""
        if len(argv) != CLAIM_WORD_COUNT or argv[5] != argv[-1] or argv[9] != b"1":
            return None
        group: Group | None = self._group(argv)
        entry: StreamId
        try:
            entry = stream_id.parse(argv[5], 0)
        except InvalidStreamId:
            return None
        if group is None or not stream_id.is_before(group.last_ms, group.last_seq, entry.ms, entry.seq):
            return None
        return entry

    @cython.cfunc
    def _count_delivery(self, argv: list[bytes], entry: StreamId) -> cython.void:
        """Count an entry that was delivered, and record the count for the log of this server."""
        group: Group | None = self._group(argv)
        stream: object = self.keyspace.databases[self.database].values.get(argv[1])
        if group is not None and isinstance(stream, Stream):
            delivery.count_as_redis_7(stream, group, entry.ms, entry.seq)
            words = [b"XGROUP", b"SETID", argv[1], argv[2], argv[5], b"ENTRIESREAD"]
            self.engine.effects.record(self.database, [*words, b"%d" % group.entries_read])
