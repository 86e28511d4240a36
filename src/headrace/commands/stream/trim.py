"""XTRIM and XSETID, and the trim options that XADD shares.

XTRIM key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]
XSETID key last-id [ENTRIESADDED count] [MAXDELETEDID id]
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.commands import arguments, redis7_equivalents, strict_rules
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.commands.stream import left_out_removals
from headrace.errors import CommandError, DamagedColdRun, InvalidSyntax, NoSuchKey
from headrace.streams import cold_run, deletions, references
from headrace.streams import node as node_module
from headrace.streams import trim as trimming
from headrace.streams.deletions import Deletions
from headrace.streams.group import Group
from headrace.streams.node import Node
from headrace.streams.stream import Stream
from headrace.streams.trim import PolicyTrim
from headrace.structures import stream_id
from headrace.structures.rax_walk import RaxCursor
from headrace.structures.stream_id import StreamId

NO_TRIM = cython.declare(cython.int, 0)
MAXLEN = cython.declare(cython.int, 1)
MINID = cython.declare(cython.int, 2)

# An approximate trim without LIMIT visits about a hundred nodes, so that it does not delay other clients.
NODES_PER_TRIM = cython.declare(cython.longlong, 100)
UNBOUNDED_NODES_LIMIT = cython.declare(cython.longlong, 10_000)  # if nodes may hold any number of entries
DEFAULT_LIMIT_MAX = cython.declare(cython.longlong, 1_000_000)

NO_POLICY = cython.declare(cython.int, -1)

ID_MAX_TEXT = b"18446744073709551615-18446744073709551615"


class TwoStrategies(CommandError):
    text = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"


class LimitWithoutStrategy(CommandError):
    text = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"


class NoStrategy(CommandError):
    text = "ERR syntax error, XTRIM must be called with a trimming strategy"


class LimitOfExact(CommandError):
    text = "ERR syntax error, LIMIT cannot be used without the special ~ option"


class NegativeMaxlen(CommandError):
    text = "ERR The MAXLEN argument must be >= 0."


class NegativeLimit(CommandError):
    text = "ERR The LIMIT argument must be >= 0."


class NegativeEntriesAdded(CommandError):
    text = "ERR entries_added must be positive"


class IdBelowGivenDeleted(CommandError):
    text = "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"


class IdBelowDeleted(CommandError):
    text = "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"


class IdBelowTop(CommandError):
    text = "ERR The ID specified in XSETID is smaller than the target stream top item"


class AddedBelowLength(CommandError):
    text = "ERR The entries_added specified in XSETID is smaller than the target stream length"


@cython.final
@cython.no_gc
@cython.freelist(8)
@cython.cclass
class TrimOptions:
    """The trim options of XTRIM and XADD, and their execution."""

    strategy: cython.int
    approximate: cython.bint
    maxlen: cython.longlong
    minid_ms: cython.ulonglong  # the threshold of MINID
    minid_seq: cython.ulonglong
    limit: cython.longlong  # maximum entries an approximate trim removes; 0: no limit
    limit_given: cython.bint
    strategy_at: cython.Py_ssize_t  # index of the strategy, and of its threshold, in argv
    threshold_at: cython.Py_ssize_t
    removed_count: cython.longlong  # entries removed, after apply()
    policy: cython.int  # for references of groups; NO_POLICY: not given, which means KEEPREF
    deletions: Deletions | None  # what apply() has removed, if it was asked to note that
    policy_trim: PolicyTrim | None  # after apply(), with DELREF and ACKED

    def __init__(self) -> None:
        self.strategy = NO_TRIM
        self.approximate = False
        self.maxlen = 0
        self.minid_ms = 0
        self.minid_seq = 0
        self.limit = 0
        self.limit_given = False
        self.strategy_at = 0
        self.threshold_at = 0
        self.removed_count = 0
        self.policy = NO_POLICY
        self.deletions = None
        self.policy_trim = None

    @cython.cfunc
    def read(self, argv: list[bytes], at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the trim option at `at`; return the index after it.

        Returns `at` if there is no trim option, or if its value is missing.
        """
        word: bytes = argv[at]
        if at + 1 < len(argv):
            after: cython.Py_ssize_t = self._read_valued(word, argv, at)
            if after > at:
                return after
        if self.policy == NO_POLICY:
            self.policy = parse_policy(word)
            if self.policy != NO_POLICY:
                return at + 1
        return at

    @cython.cfunc
    def _read_valued(self, word: bytes, argv: list[bytes], at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the option `word` at `at` and its value; return the index after it, or `at`."""
        if arguments.is_keyword(word, b"MAXLEN"):
            self._set_strategy(MAXLEN, argv, at)
            self.maxlen = arguments.parse_i64(argv[self.threshold_at])
            if self.maxlen < 0:
                raise NegativeMaxlen()
            return self.threshold_at + 1
        if arguments.is_keyword(word, b"MINID"):
            self._set_strategy(MINID, argv, at)
            threshold: StreamId = stream_id.parse(argv[self.threshold_at], 0)
            self.minid_ms = threshold.ms
            self.minid_seq = threshold.seq
            return self.threshold_at + 1
        if arguments.is_keyword(word, b"LIMIT"):
            self.limit = arguments.parse_i64(argv[at + 1])
            if self.limit < 0:
                raise NegativeLimit()
            self.limit_given = True
            return at + 2
        return at

    @cython.cfunc
    def _set_strategy(self, strategy: cython.int, argv: list[bytes], at: cython.Py_ssize_t) -> cython.void:
        """Set the strategy; step over `~` or `=`, which count only if a threshold follows."""
        if self.strategy != NO_TRIM:
            raise TwoStrategies()
        self.strategy = strategy
        self.strategy_at = at
        self.threshold_at = at + 1
        if at + 2 < len(argv):
            word: bytes = argv[at + 1]
            if word == b"~":
                self.approximate = True
                self.threshold_at = at + 2
            elif word == b"=":
                self.threshold_at = at + 2

    @cython.cfunc
    def check_options(
        self, required: cython.bint, node_entries_max: cython.longlong, replayed: cython.bint
    ) -> cython.void:
        """Check the options against each other, after all were read, and choose the default LIMIT.

        Logged trims are exact already, even if they still contain a LIMIT.
        """
        if self.strategy == NO_TRIM:
            if self.limit != 0:
                raise LimitWithoutStrategy()
            if required:
                raise NoStrategy()
        if replayed:
            self.limit = 0
        elif self.limit_given:
            if not self.approximate:
                raise LimitOfExact()
        elif self.approximate:
            self.limit = default_limit(node_entries_max)

    @cython.cfunc
    def require_cold_run(self, call: Call, stream: Stream, added: cython.ulonglong) -> cython.void:
        """Ensure, before any change, that the cold runs needed for the trim can be read.

        When a log is replayed and a run cannot be read, the trim is left out.

        Args:
            added: how many entries the same command adds before the trim.

        Raises:
            RunNeeded: if a run must be loaded first; the command is then repeated.
            DamagedColdRun: if a run cannot be read and no log is replayed.
        """
        if stream.run_count() == 0 or not self._has_excess(stream, added):
            return
        try:
            self._require_last_run(stream, added)
        except DamagedColdRun as damage:
            if not call.policy.leaves_out_unreadable_removals:
                raise
            self._record_left_out_trim(call, stream, self._last_removed_id(stream, added), damage)
            self.strategy = NO_TRIM

    @cython.cfunc
    def _require_last_run(self, stream: Stream, added: cython.ulonglong) -> cython.void:
        trimming.ensure_last_run_loaded(
            stream,
            references.KEEPREF if self.policy == NO_POLICY else self.policy,
            self.strategy == MINID,
            mem.as_unsigned(self.maxlen),
            self.minid_ms,
            self.minid_seq,
            self.limit,
            added,
        )

    @cython.cfunc
    def apply(self, call: Call, stream: Stream) -> cython.longlong:
        """Trim the stream; return how many entries were removed.

        The trim ends before a run that cannot be read. If it has removed no entry by then, it raises
        DamagedColdRun. This happens only if the run became unreadable after require_cold_run(), and never in
        a replay of a log. If replicas need older forms of commands, `deletions` gets what a policy other
        than KEEPREF removes.
        """
        if (
            not call.policy.leaves_out_unreadable_removals
            or stream.run_count() == 0
            or not self._has_excess(stream, 0)
        ):
            return self._apply(stream, call.effects.needs_redis7_equivalents)
        last: StreamId = self._last_removed_id(stream, 0)
        damage: DamagedColdRun | None = None
        try:
            self._apply(stream, False)
            if self.policy_trim is not None:
                damage = self.policy_trim.damage
            elif self._has_excess(stream, 0):
                damage = DamagedColdRun("", 0, "a run was read when the trim began, and not when it ended")
        except DamagedColdRun as error:
            damage = error
        if damage is not None:
            self._record_left_out_trim(call, stream, last, damage)
        return self.removed_count

    @cython.cfunc
    def _record_left_out_trim(
        self, call: Call, stream: Stream, last: StreamId, damage: DamagedColdRun
    ) -> cython.void:
        left_out_removals.record_left_out_removal(
            call, stream, last, damage, self.policy == references.DELREF
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _has_excess(self, stream: Stream, added: cython.ulonglong) -> cython.bint:
        """Return whether the stream has entries that an exact trim without ACKED removes.

        added: as in require_cold_run().
        """
        if self.strategy == MAXLEN:
            return stream.length + added > mem.as_unsigned(self.maxlen)
        return (
            self.strategy == MINID
            and stream.length > 0
            and stream_id.is_before(stream.first_ms, stream.first_seq, self.minid_ms, self.minid_seq)
        )

    @cython.cfunc
    def _last_removed_id(self, stream: Stream, added: cython.ulonglong) -> StreamId:
        """Return the greatest ID that an exact trim may remove; for MAXLEN, the last ID of its node."""
        if self.strategy == MINID:
            return StreamId(self.minid_ms, self.minid_seq).predecessor()
        node: Node
        excess: cython.longlong = mem.as_signed(stream.length + added - mem.as_unsigned(self.maxlen))
        cursor: RaxCursor = RaxCursor(stream.nodes)
        more: cython.bint = cursor.seek("^")
        while more:
            node = node_module.node_of_cursor(cursor)
            excess -= node.live_count
            more = cursor.next()
            if excess <= 0 and more:  # up to the next node
                return stream_id.from_key(cursor.key).predecessor()
        return stream.last_id()

    @cython.cfunc
    def _apply(self, stream: Stream, noted: cython.bint) -> cython.longlong:
        maxlen: cython.ulonglong = mem.as_unsigned(self.maxlen)
        by_id: cython.bint = self.strategy == MINID
        if self.strategy == NO_TRIM:
            return 0
        if self.policy > references.KEEPREF:
            if noted:
                self.deletions = deletions.new_deletions(stream)
            self.policy_trim = PolicyTrim(
                stream, self.policy, by_id, maxlen, self.minid_ms, self.minid_seq, self.deletions
            )
            self.removed_count = self.policy_trim.run(self.limit)
        elif by_id:
            self.removed_count = trimming.trim_by_id(
                stream, self.minid_ms, self.minid_seq, self.approximate, self.limit
            )
        else:
            self.removed_count = trimming.trim_by_length(stream, maxlen, self.approximate, self.limit)
        return self.removed_count

    @cython.cfunc
    def check_strict(self, call: Call, key: bytes, stream: Stream) -> cython.void:
        """Raise EntriesKept if the rule STRICT of the stream rejects the trim."""
        if self.strategy != NO_TRIM:
            acked_only: cython.bint = self.policy == references.ACKED
            strict_rules.check_trim(call, key, stream, acked_only, self._reached_entry_count(stream, 0))

    @cython.cfunc
    def check_strict_add(
        self, call: Call, key: bytes, stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.void:
        """Raise EntriesKept if STRICT rejects the trim of an XADD that adds the entry ms-seq first."""
        if self.strategy == NO_TRIM:
            return
        acked_only: cython.bint = self.policy == references.ACKED
        strict_rules.check_trim(call, key, stream, acked_only, self._reached_entry_count(stream, 1))
        if (self.strategy == MAXLEN and self.maxlen == 0) or (
            self.strategy == MINID and stream_id.is_before(ms, seq, self.minid_ms, self.minid_seq)
        ):
            strict_rules.check_new_entry_trim(call, key, stream, acked_only)

    @cython.cfunc
    def _reached_entry_count(self, stream: Stream, added: cython.ulonglong) -> cython.longlong:
        """Return how many entries the trim reaches; with DELREF and ACKED it visits every entry."""
        return trimming.reached_entry_count(
            stream,
            self.strategy == MINID,
            mem.as_unsigned(self.maxlen),
            self.minid_ms,
            self.minid_seq,
            self.approximate and self.policy <= references.KEEPREF,
            self.limit,
            added,
        )

    @cython.cfunc
    def replace_by_exact_trim(self, stream: Stream, words: list[bytes]) -> cython.void:
        """Change the trim in `words`, already applied to the stream, to an exact one with the same result.

        An exact trim, too, may have ended before a cold run that cannot be read.
        """
        if self.strategy == NO_TRIM:
            return
        if self.threshold_at > self.strategy_at + 1:
            words[self.strategy_at + 1] = b"="
        if self.strategy == MAXLEN and self.policy != references.ACKED:
            if self.approximate or self._has_excess(stream, 0):
                words[self.threshold_at] = stream_id.format_decimal(mem.as_signed(stream.length))
        elif self.policy <= references.KEEPREF:
            if self.approximate or self._has_excess(stream, 0):
                words[self.threshold_at] = first_record_id(stream)
        else:
            self._replace_threshold_by_end_id(stream, words)

    @cython.cfunc
    def _replace_threshold_by_end_id(self, stream: Stream, words: list[bytes]) -> cython.void:
        """Replace the threshold by the ID at which the trim ended: that depends on unlogged nodes.

        All entries before that ID that could be removed were removed, and none after it. The first record is
        no substitute: it may be an entry that is still referenced, or a tombstone, and removed entries may
        lie after it.
        """
        end: StreamId | None = None if self.policy_trim is None else self.policy_trim.trimmed_before
        if self.strategy == MAXLEN:
            if self.removed_count == 0:
                words[self.threshold_at] = stream_id.format_decimal(mem.as_signed(stream.length))
                return
            words[self.strategy_at] = b"MINID"
            words[self.threshold_at] = ID_MAX_TEXT
        if end is not None:
            words[self.threshold_at] = end.text()


@cython.cfunc
def parse_policy(word: bytes) -> cython.int:
    """Return the policy that the argument names; NO_POLICY if it names none."""
    if arguments.is_keyword(word, b"KEEPREF"):
        return references.KEEPREF
    if arguments.is_keyword(word, b"DELREF"):
        return references.DELREF
    if arguments.is_keyword(word, b"ACKED"):
        return references.ACKED
    return NO_POLICY


@cython.cfunc
def default_limit(node_entries_max: cython.longlong) -> cython.longlong:
    """Return how many entries an approximate trim may remove without LIMIT."""
    if node_entries_max <= 0:
        return UNBOUNDED_NODES_LIMIT
    if node_entries_max > DEFAULT_LIMIT_MAX // NODES_PER_TRIM:
        return DEFAULT_LIMIT_MAX
    return node_entries_max * NODES_PER_TRIM


@cython.cfunc
def first_record_id(stream: Stream) -> bytes:
    """Return the ID of the oldest record, live or deleted; the greatest ID if there is none."""
    first: Node | None = stream.first_node()
    if first is None:
        return ID_MAX_TEXT
    if first.run is not None and cold_run.run_of(first).skipped_node_count > 0:
        first = _first_inner_or_self(first)
    return stream_id.text_of(first.ms, first.seq)


@cython.cfunc
def _first_inner_or_self(node: Node) -> Node:
    """Return the first inner node of a cold node; the node itself if its run cannot be read.

    The keys of both serve first_record_id(): the records between them were removed before.
    """
    try:
        return cold_run.first_inner(node)
    except DamagedColdRun:
        return node


@cython.cfunc
def parse_trim(call: Call) -> TrimOptions:
    """Parse the options of an XTRIM."""
    argv: list[bytes] = call.argv
    trim: TrimOptions = TrimOptions()
    at: cython.Py_ssize_t = 2
    while at < len(argv):
        after: cython.Py_ssize_t = trim.read(argv, at)
        if after == at:
            raise InvalidSyntax()
        at = after
    trim.check_options(True, call.keyspace.settings.stream_node_max_entries, call.replayed())
    return trim


@cython.ccall
def trim_stream(call: Call) -> cython.longlong:
    """Run the XTRIM in call.argv and record an exact one; return how many entries were removed."""
    trim: TrimOptions = parse_trim(call)
    key: bytes = call.argv[1]
    stream: Stream | None = call.database.stream(key)
    if stream is None:
        return 0
    if stream.rules is not None:
        trim.check_strict(call, key, stream)
    trim.require_cold_run(call, stream, 0)
    removed: cython.longlong = trim.apply(call, stream)
    if removed > 0:
        effect: list[bytes] = call.argv.copy()
        if call.effects.recording:
            trim.replace_by_exact_trim(stream, effect)
            if trim.deletions is not None:
                redis7_equivalents.add_trim_equivalent(call, effect, stream, trim.deletions)
        call.keyspace.changes += removed - 1  # finish_change() counts one
        call.finish_change(key, "t", b"xtrim", effect)
    return removed


def run_trim(call: Call) -> None:
    """XTRIM: reply with the number of removed entries."""
    call.reply.integer(trim_stream(call))


@cython.final
@cython.cclass
class XSetIdRequest:
    """A parsed XSETID."""

    last_id: StreamId
    entries_added: cython.longlong  # -1: unchanged
    max_deleted_id: StreamId  # 0-0: unchanged

    def __init__(self, last: StreamId) -> None:
        self.last_id = last
        self.entries_added = -1
        self.max_deleted_id = StreamId(0, 0)


@cython.cfunc
def parse_set_id(argv: list[bytes], replayed: cython.bint) -> XSetIdRequest:
    """Parse an XSETID; options may repeat, and each is checked when it is read.

    Logged values are not checked: servers up to 7.0 allowed a last ID below a deleted one.
    """
    request: XSetIdRequest = XSetIdRequest(stream_id.parse(argv[2], 0))
    at: cython.Py_ssize_t = 3
    while at < len(argv):
        if at + 1 == len(argv):
            raise InvalidSyntax()
        if arguments.is_keyword(argv[at], b"ENTRIESADDED"):
            request.entries_added = arguments.parse_i64(argv[at + 1])
            if request.entries_added < 0:
                raise NegativeEntriesAdded()
        elif arguments.is_keyword(argv[at], b"MAXDELETEDID"):
            request.max_deleted_id = stream_id.parse(argv[at + 1], 0)
            if request.last_id.precedes(request.max_deleted_id) and not replayed:
                raise IdBelowGivenDeleted()
        else:
            raise InvalidSyntax()
        at += 2
    return request


@cython.cfunc
def check_set_id(request: XSetIdRequest, stream: Stream, replayed: cython.bint) -> cython.void:
    """Raise an error if the ID or the count contradicts the stream's contents."""
    if request.last_id.precedes(stream.max_deleted_id()) and not replayed:
        raise IdBelowDeleted()
    top: StreamId | None = stream.last_entry_id()
    if top is None:
        return
    if request.last_id.precedes(top):
        raise IdBelowTop()
    if request.entries_added >= 0 and stream.length > mem.as_unsigned(request.entries_added):
        raise AddedBelowLength()


@cython.cfunc
def limit_entries_read(stream: Stream, group: Group) -> cython.void:
    """Limit the group's entries_read to the number of entries ever added minus those not delivered to it.

    With a greater value the group's lag would be too low, and later negative.
    """
    added: cython.longlong = mem.as_signed(stream.entries_added)
    undelivered: cython.longlong = stream.undelivered_count_or_unknown(group)
    if added >= 0 and undelivered >= 0:
        group.entries_read = min(group.entries_read, added - undelivered)


def run_set_id(call: Call) -> None:
    """XSETID: set the last ID and the counters. It wakes no client and fails no transaction."""
    request: XSetIdRequest = parse_set_id(call.argv, call.replayed())
    stream: Stream | None = call.database.stream(call.argv[1])
    if stream is None:
        raise NoSuchKey()
    check_set_id(request, stream, call.replayed())
    restarts: cython.bint = stream.length == 0 and request.last_id.precedes(stream.last_id())
    group: Group
    for group in stream.groups():
        group.lost_unread_base = 0 if restarts else stream.lost_unread_count(group)
        group.pending.note_deleted_through(-1)  # the ID of a deleted entry may be given again
    stream.last_ms = request.last_id.ms
    stream.last_seq = request.last_id.seq
    if request.entries_added >= 0:
        stream.entries_added = mem.as_unsigned(request.entries_added)
    if request.max_deleted_id.ms != 0 or request.max_deleted_id.seq != 0:
        stream.max_deleted_ms = request.max_deleted_id.ms
        stream.max_deleted_seq = request.max_deleted_id.seq
    for group in stream.groups():
        stream.start_counting_losses(group)
        limit_entries_read(stream, group)
    call.count_and_record_changes(1)
    call.notify("t", b"xsetid", call.argv[1])
    call.reply.ok()


COMMANDS = [
    Command(
        "xtrim",
        -4,
        run_trim,
        "write",
        keys="1: RW delete",
        tips="nondeterministic_output",
        group="stream",
        since="5.0.0",
        summary="Removes the oldest entries of a stream, down to a length or up to an ID.",
        complexity="O(n) for the n entries removed; fast, because whole nodes are removed at once",
        syntax="key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]",
    ),
    Command(
        "xsetid",
        -3,
        run_set_id,
        "write denyoom fast",
        keys="1: RW update",
        group="stream",
        since="5.0.0",
        summary="Sets the last ID of a stream and its counters; used to restore streams.",
        syntax="key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
    ),
]
