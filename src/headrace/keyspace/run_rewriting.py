"""Write cold runs again, in the background, so that files and memory do not keep deleted entries.

    before   [run 1: 9,000 of 12,000 deleted] [run 2: 10,000 of 12,000]   [run 3]
    after    [a run of 5,000 entries                                  ]   [run 3]

A run is written again if most of its entries were deleted since it was stored; also if its file has mostly
bytes that nothing refers to, so that the file can be removed. Adjacent runs of this kind become one run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.errors import DamagedColdRun
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.stream_scan import streams_in_steps
from headrace.streams import cold_run, cold_selection
from headrace.streams.cold_run import ColdRun, RunCache
from headrace.streams.node import Node
from headrace.streams.stream import Stream


class RunsToRewrite:
    """Adjacent runs of a stream that are being stored again as one."""

    def __init__(self, stream: Stream, cold_nodes: list[Node]) -> None:
        """Record the present state of the runs that `cold_nodes`, nodes of the tree, stand for."""
        self.stream = stream
        self.cold_nodes = cold_nodes
        self.runs = [cold_run.run_of(node) for node in cold_nodes]
        self.copies = [run.copy() for run in self.runs]  # as they are now
        self.nodes: list[Node] = []

    def contents(self) -> list[tuple[bytes, bytes]]:
        """Read the runs, in any thread; return keys and listpacks of the one to be stored.

        The list is empty if one of the runs cannot be read. Then all stay as they are.
        """
        try:
            self.nodes = cold_selection.read_compacted_nodes(self.copies)
        except DamagedColdRun:  # commands that read the run report it
            return []
        return cold_selection.copy_keys_and_listpacks(self.nodes)

    def replace_if_unchanged(self, place: Any, cache: RunCache) -> bool:
        """Replace the runs by the stored one; return False if they changed meanwhile.

        place: where the run is stored.
        """
        if not cold_selection.are_in_stream(self.stream, self.cold_nodes):
            return False
        if any(map(_has_lost_entries, self.runs, self.copies)):
            return False
        self.stream.rewrite_runs(self.cold_nodes, self.nodes, ColdRun(place, cache, len(self.nodes)))
        return True


def _has_lost_entries(run: ColdRun, copy: ColdRun) -> bool:
    """Return whether something was removed from a run since it was copied."""
    return (
        run.skipped_node_count != copy.skipped_node_count
        or run.encoded_dropped_indexes != copy.encoded_dropped_indexes
        or run.deleted_count() != copy.deleted_count()
    )


def runs_to_rewrite(
    keyspace: Keyspace, size: int, is_stale: Callable[[Any], bool]
) -> Iterator[RunsToRewrite | None]:
    """Yield the runs of all streams that should be written again, and None between two steps.

    Args:
        keyspace: see streams_in_steps().
        size: the bytes of each run to be written.
        is_stale: gets where a run is stored; returns whether most bytes of the file are dead.
    """
    for found in streams_in_steps(keyspace):
        if found is None:
            yield None
            continue
        _, stream = found
        after = b""
        while cold_nodes := cold_selection.next_nodes_to_rewrite(stream, after, size, is_stale):
            after = cold_nodes[-1].key()
            yield RunsToRewrite(stream, cold_nodes)
