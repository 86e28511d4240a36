"""Find streams with more nodes in memory than their rules HOT-BYTES and HOT-AGE allow.

    RuleRegistry.hot_rule_streams     stream ─ stream ─ stream ─ …     looked at in rounds, some in a step
                                         │
                                         ▼ more than HOT-BYTES, or older than HOT-AGE
    ColdStorage                       nodes become cold, then the same stream again

A round begins after changes, at most every CHECK_MS, and when entries become too old. Old nodes wait until
they are a whole run, or until the oldest is too old by a tenth of HOT-AGE: otherwise each would be a run of
its own.
"""

from __future__ import annotations

import cython

from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.rule_registry import RuleRegistry
from headrace.streams import cold_selection, memory_account
from headrace.streams.node import Node
from headrace.streams.stream import Stream

CHECK_MS = 100
STREAMS_PER_STEP = 50
AGE_SLACK_MIN_MS = 1000
AGE_SLACK_DIVISOR = 10  # of HOT-AGE


@cython.final
@cython.cclass
class HotRuleScan:
    """Searches one keyspace for streams with more nodes in memory than HOT-BYTES and HOT-AGE allow."""

    keyspace: Keyspace
    _checked_ms: cython.longlong  # when streams were looked at last
    _streams_left_count: cython.Py_ssize_t  # how many are left in this round
    _changes_at_start: cython.longlong  # of the keyspace when this round began
    _version_at_start: cython.longlong  # RuleRegistry.hot_rules_version then
    _age_due_ms: cython.longlong  # when HOT-AGE has work without a change; -1: never

    def __init__(self, keyspace: Keyspace) -> None:
        self.keyspace = keyspace
        self._checked_ms = self._streams_left_count = 0
        self._changes_at_start = self._version_at_start = self._age_due_ms = -1

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def next_check_ms(self, now_ms: cython.longlong) -> cython.longlong:
        """Return when next_excess_nodes() may find something, in Unix milliseconds; -1 for never."""
        rules: RuleRegistry = self.keyspace.rule_registry
        if len(rules.hot_rule_streams) == 0:
            return -1
        if (
            self._streams_left_count > 0
            or self._changes_at_start != self.keyspace.changes
            or self._version_at_start != rules.hot_rules_version
        ):
            return self._checked_ms + CHECK_MS if now_ms >= self._checked_ms else now_ms
        return self._age_due_ms

    def next_excess_nodes(self, size: int, run_bytes: int, now_ms: int) -> tuple[Stream, list[Node]] | None:
        """Return a stream and its oldest nodes, which are to leave memory; None if this step finds none.

        Args:
            size: about how many bytes of nodes to return at most.
            run_bytes: bytes of listpacks in a run.
        """
        rules: RuleRegistry = self.keyspace.rule_registry
        self._checked_ms = now_ms
        if self._streams_left_count <= 0:
            self._streams_left_count = len(rules.hot_rule_streams)
            self._changes_at_start, self._version_at_start = self.keyspace.changes, rules.hot_rules_version
            self._age_due_ms = -1
        for _ in range(min(self._streams_left_count, len(rules.hot_rule_streams), STREAMS_PER_STEP)):
            stream: Stream = next(iter(rules.hot_rule_streams))
            nodes = self._nodes_over_hot_bytes(stream, size, run_bytes)
            nodes = nodes or self._nodes_past_hot_age(stream, size, run_bytes, now_ms)
            if nodes:
                self._checked_ms = 0  # go on as soon as they are stored
                return stream, nodes
            rules.hot_rule_streams.move_to_end(stream)
            self._streams_left_count -= 1
        self._streams_left_count = min(self._streams_left_count, len(rules.hot_rule_streams))
        return None

    def _nodes_over_hot_bytes(self, stream: Stream, size: int, run_bytes: int) -> list[Node]:
        """Return the oldest nodes if there are more than HOT-BYTES, in whole runs."""
        rules = stream.rules
        if rules is None or not rules.hot_bytes:
            return []
        excess = cold_selection.hot_bytes(stream) - rules.hot_bytes
        if excess <= 0:
            return []
        size = min(size, -(-excess // run_bytes) * run_bytes)
        nodes = cold_selection.oldest_nodes_in_memory(
            stream, size, cold_selection.ANY_TIME, memory_account.NODE_BYTES
        )
        return nodes if cold_selection.have_live_entries(nodes) else []

    def _nodes_past_hot_age(self, stream: Stream, size: int, run_bytes: int, now_ms: int) -> list[Node]:
        """Return the oldest nodes if all their entries are older than HOT-AGE, or set when to look again."""
        rules = stream.rules
        if rules is None or not rules.hot_age_ms:
            return []
        age_ms = rules.hot_age_ms
        nodes = cold_selection.oldest_nodes_in_memory(stream, size, max(now_ms - age_ms, 0))
        first = nodes or cold_selection.oldest_nodes_in_memory(stream, 1)
        if not first:
            return []
        due = (
            cold_selection.last_entry_ms(first[0])
            + age_ms
            + max(AGE_SLACK_MIN_MS, age_ms // AGE_SLACK_DIVISOR)
        )
        if due <= now_ms or cold_selection.total_listpack_bytes(nodes) >= run_bytes:
            return nodes if cold_selection.have_live_entries(nodes) else []
        self._age_due_ms = due if self._age_due_ms < 0 else min(self._age_due_ms, due)
        return []
