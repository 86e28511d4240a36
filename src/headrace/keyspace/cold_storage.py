"""Move the oldest nodes of streams to files, as cold runs, while the data exceed their memory limit.

    step()   choose a stream ─ next_oldest_batch() ─ store.write() ─ replace_with_stored_runs()
                                 copies                files           the nodes leave memory, if they did
                                                                       not change meanwhile

With `start_writing`, another thread calls store_returning_completion(), and step() does not wait for it. The
nodes stay in memory until they are stored. If storing fails, they stay there; the next attempt follows after
RETRY_MS.

In the same way the oldest nodes of streams with HOT-BYTES and HOT-AGE are stored (hot_rules.py), and runs of
which most entries are deleted are written again (run_rewriting.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import cython

from headrace.errors import HeadraceError, os_error_text
from headrace.keyspace import run_rewriting
from headrace.keyspace.hot_rules import HotRuleScan
from headrace.keyspace.keyspace import Database, Keyspace
from headrace.keyspace.run_rewriting import RunsToRewrite
from headrace.streams import cold_selection
from headrace.streams.cold_run import ColdRun, RunCache, RunSource
from headrace.streams.node import Node
from headrace.streams.stream import Stream
from headrace.visibility import Public

RUN_BYTES = 256 << 10  # of listpacks in a run
BATCH_BYTES = 2 << 20  # of runs that are stored and synced together
SAMPLE_SIZE = 5  # streams looked at in each step
RETRY_MS = 1000
UPKEEP_MS = 5000  # how often files to remove and runs to write again are searched for, while there are files


class RunStore(RunSource):
    """Stores runs and reads them: the interface of persistence/cold to this module."""

    load_in_background: Callable[[ColdRun], object] | None = None  # starts to load a run in another thread
    # Whether load() may wait for another machine. Otherwise it raises DamagedColdRun with
    # READING_FROM_STORE_MESSAGE, and reads the run in another thread: a later call finds it.
    may_wait_for_object_store = True

    def read_ahead(self, run: ColdRun) -> None:
        """Start to load a run into the cache, if that is possible."""
        if self.load_in_background is not None:
            self.load_in_background(run)

    def write(self, runs: Sequence[Sequence[tuple[bytes, bytes]]]) -> list[Any]:
        """Store runs durably; return the place of each. Raises OSError, and then has stored none."""
        raise NotImplementedError

    def remove_unreferenced(self) -> int:
        """Remove the files that nothing refers to; return how many."""
        raise NotImplementedError

    def is_stale(self, place: Any) -> bool:
        """Return whether the file that contains this place is mostly dead bytes and no longer appended to."""
        raise NotImplementedError

    def has_stale_files(self) -> bool:
        """Return whether there is a stale file with a run; see is_stale()."""
        raise NotImplementedError

    def file_count(self) -> int:
        """Return the number of files."""
        raise NotImplementedError

    def stored_bytes(self) -> int:
        """Return the bytes of all files."""
        raise NotImplementedError


class NodesToStore:
    """Nodes that are being stored as one run, with their state when they were copied."""

    def __init__(self, stream: Stream, nodes: list[Node]) -> None:
        self.stream = stream
        self.nodes = nodes
        self.copies = cold_selection.copy_keys_and_listpacks(nodes)
        self.states = cold_selection.node_states(nodes)

    def contents(self) -> list[tuple[bytes, bytes]]:
        """Return keys and listpacks of the run to be stored."""
        return self.copies

    def replace_if_unchanged(self, place: Any, cache: RunCache) -> bool:
        """Replace the nodes by the stored run, except those that a trim has removed from the front meanwhile.

        Returns False, and changes nothing, if the others have changed or have no live entry. place: where
        the run is stored.
        """
        dropped = cold_selection.count_dropped_leading_nodes(self.stream, self.nodes)
        nodes = self.nodes[dropped:]
        if not cold_selection.have_live_entries(nodes) or not cold_selection.are_unchanged(
            self.stream, nodes, self.states[dropped:]
        ):
            return False
        run = ColdRun(place, cache, len(self.nodes))
        run.skipped_node_count = dropped
        self.stream.make_cold(nodes, run)
        return True


Batch = Sequence[NodesToStore | RunsToRewrite]


@cython.final
@cython.cclass
class ColdStorage:
    """The cold storage of one keyspace."""

    keyspace: Keyspace
    store: Public[RunStore]
    cache: Public[RunCache]
    hot_bytes_limit: Public[cython.longlong]  # bytes of data in memory; 0: no limit
    run_bytes: Public[cython.longlong]
    # Starts to store a batch; None: it is stored at once.
    start_writing: Public[Callable[[Batch], object] | None]
    is_writing: Public[cython.bint]
    last_failure_ms: Public[cython.longlong]  # when storing failed last; 0: the last attempt succeeded
    last_error: Public[str]  # empty: the last attempt succeeded
    failures: Public[cython.longlong]
    runs_stored: Public[cython.longlong]
    runs_given_up: Public[cython.longlong]  # because a node changed while it was stored
    runs_rewritten: Public[cython.longlong]
    left_out_removal_count: Public[cython.longlong]  # of these data: see commands/stream/left_out_removals.py
    left_out_removal_reason: Public[str]  # why the first one was left out; empty: none was
    # The search for runs to be written again; None: none is running.
    _sparse_run_search: Iterator[RunsToRewrite | None] | None
    _hot_rules: HotRuleScan
    _upkeep_due_ms: cython.longlong  # when files and runs are searched next

    def __init__(
        self, keyspace: Keyspace, store: RunStore, limit: int = 0, cache: RunCache | None = None
    ) -> None:
        self.keyspace = keyspace
        self.store = store
        if cache is None:
            cache = RunCache(store)
            cache.memory.attach(keyspace.memory)
        self.cache = cache
        self.hot_bytes_limit = limit
        self.run_bytes = RUN_BYTES
        self.start_writing = None
        self.is_writing = False
        self.last_failure_ms = 0
        self.last_error = ""
        self.failures = self.runs_stored = self.runs_given_up = self.runs_rewritten = 0
        self.left_out_removal_count = 0
        self.left_out_removal_reason = ""
        self._sparse_run_search = None
        self._upkeep_due_ms = 1  # at the first step: files of loaded runs may be without them later
        self._hot_rules = HotRuleScan(keyspace)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def data_bytes(self) -> cython.longlong:
        """Return the bytes of memory that all keys and values take."""
        total: cython.longlong = 0
        database: Database
        for database in self.keyspace.databases:
            total += database.memory.total
        return total

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def has_work(self) -> cython.bint:
        """Return whether the data exceed their memory limit and a batch of nodes can be stored now."""
        return (
            self.hot_bytes_limit > 0
            and not self.is_writing
            and len(self.keyspace.evictable) > 0
            and self.data_bytes() > self.hot_bytes_limit
        )

    @cython.ccall
    def next_step_ms(self, now_ms: cython.longlong) -> cython.longlong:
        """Return when step() has work, in Unix milliseconds; -1 for never."""
        due: cython.longlong = self._next_upkeep_ms(now_ms) or -1
        work: cython.longlong
        if self.is_writing:
            return due
        work = self._hot_rules.next_check_ms(now_ms)
        if self.has_work() or self._sparse_run_search is not None:
            work = now_ms
        if work < 0:
            return due
        work = max(work, self.last_failure_ms + RETRY_MS if self.last_failure_ms else 0)
        return work if due < 0 else min(due, work)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _next_upkeep_ms(self, now_ms: cython.longlong) -> cython.longlong:
        """Return when files and runs are searched next; 0: there is nothing to be found."""
        if self.cache.cold_run_totals.run_count > 0 and not self._upkeep_due_ms:
            self._upkeep_due_ms = now_ms + UPKEEP_MS
        return self._upkeep_due_ms

    @cython.ccall
    def step(self, now_ms: cython.longlong) -> cython.void:
        """Store some nodes if there are too many in memory; from time to time remove unneeded files."""
        batch: Batch
        size: cython.longlong = BATCH_BYTES if self.start_writing is not None else self.run_bytes
        upkeep_ms: cython.longlong = self._next_upkeep_ms(now_ms)
        if 0 < upkeep_ms <= now_ms:
            self._begin_upkeep(now_ms)
        if self.is_writing or now_ms < (self.last_failure_ms + RETRY_MS if self.last_failure_ms else 0):
            return
        if self.has_work():
            batch = self.next_oldest_batch(size)
        else:
            batch = self.next_batch_by_rules(size, now_ms) or self.next_sparse_batch(size)
        if not batch:
            return
        if not self._upkeep_due_ms:  # it is not put off: batches may always follow each other
            self._upkeep_due_ms = now_ms + UPKEEP_MS
        self.is_writing = True
        if self.start_writing is not None:
            self.start_writing(batch)
        else:
            self.store_now(batch)

    def _begin_upkeep(self, now_ms: int) -> None:
        """Remove files that are not needed, and begin to search for runs to be written again."""
        self.store.remove_unreferenced()
        self._upkeep_due_ms = now_ms + UPKEEP_MS if self.store.file_count() else 0
        if self._sparse_run_search is None and (
            self.cache.has_new_sparse_run or self.store.has_stale_files()
        ):
            self.cache.has_new_sparse_run = False
            self._sparse_run_search = run_rewriting.runs_to_rewrite(
                self.keyspace, self.run_bytes, self.store.is_stale
            )

    def cool_to_limit(self, stream: Stream) -> None:
        """Store the oldest nodes of a stream that is being loaded until the data fit, or nothing is left."""
        while (
            self.hot_bytes_limit
            and not self.last_failure_ms
            and self.data_bytes() + stream.memory.total > self.hot_bytes_limit
        ):
            nodes = cold_selection.oldest_nodes_in_memory(stream, self.run_bytes)
            if not cold_selection.have_live_entries(nodes):
                break
            self.store_now([NodesToStore(stream, nodes)])

    def cool_all_to_limit(self) -> None:
        """Store the oldest nodes until the data fit; then those that HOT-BYTES and HOT-AGE do not keep."""
        while self.has_work() and not self.last_failure_ms:
            batch = self.next_oldest_batch(self.run_bytes)
            if batch:
                self.store_now(batch)
        while not self.last_failure_ms:
            batch = self.next_batch_by_rules(self.run_bytes, self.keyspace.now)
            if not batch:
                break
            self.store_now(batch)

    def copy_for_loading(self, keyspace: Keyspace) -> ColdStorage:
        """Return the cold storage for another keyspace, whose data replace the present ones later."""
        other = ColdStorage(keyspace, self.store, self.hot_bytes_limit, self.cache)
        other.run_bytes = self.run_bytes
        return other

    def next_sparse_batch(self, size: int) -> Batch:
        """Return the next runs to be written again, of about `size` bytes or less.

        Searches a limited number of keys, so the batch may be empty although a later call finds some.
        """
        batch: list[RunsToRewrite] = []
        while self._sparse_run_search is not None and len(batch) * self.run_bytes < size:
            try:
                found = next(self._sparse_run_search)
            except StopIteration:
                self._sparse_run_search = None
                break
            if found is None:
                break
            batch.append(found)
        return batch

    def next_oldest_batch(self, size: int) -> Batch:
        """Return nodes to be stored, of about `size` bytes: the oldest ones of one of the biggest streams."""
        stream = self._biggest()
        if stream is None:
            return []
        batch = self._batch_of(stream, cold_selection.oldest_nodes_in_memory(stream, size))
        if not batch:  # all entries of these nodes are deleted
            del self.keyspace.evictable[stream]  # until it closes a node again
        return batch

    def next_batch_by_rules(self, size: int, now_ms: int) -> Batch:
        """Return nodes to be stored, of about `size` bytes, that HOT-BYTES and HOT-AGE no longer keep."""
        if not 0 <= self._hot_rules.next_check_ms(now_ms) <= now_ms:
            return []
        found = self._hot_rules.next_excess_nodes(size, self.run_bytes, now_ms)
        return self._batch_of(*found) if found is not None else []

    def _batch_of(self, stream: Stream, nodes: list[Node]) -> Batch:
        """Return the oldest nodes of a stream as runs, without those after the last live entry."""
        batch: list[NodesToStore] = []
        while count := cold_selection.run_node_count(nodes, self.run_bytes):
            batch.append(NodesToStore(stream, nodes[:count]))
            nodes = nodes[count:]
        return batch

    def write(self, batch: Batch) -> list[Any]:
        """Store a batch durably, in any thread; return the place of each run, None for one without contents.

        Raises OSError or HeadraceError; then no run is stored.
        """
        contents = [stored.contents() for stored in batch]
        places = iter(self.store.write([nodes for nodes in contents if nodes]))
        return [next(places) if nodes else None for nodes in contents]

    def store_returning_completion(self, batch: Batch) -> Callable[[], None]:
        """Store a batch, in any thread; return a function that the engine's thread must call afterwards.

        The function calls replace_with_stored_runs(), or record_failure() after an exception. Until it is
        called, no other batch is stored.
        """
        try:
            places = self.write(batch)
        except Exception as error:
            return partial(self.record_failure, error)
        return partial(self.replace_with_stored_runs, batch, places)

    def store_now(self, batch: Batch) -> None:
        """Store a batch and call replace_with_stored_runs(), or record_failure()."""
        try:
            places = self.write(batch)
        except (OSError, HeadraceError) as error:
            self.record_failure(error)
        else:
            self.replace_with_stored_runs(batch, places)

    def replace_with_stored_runs(self, batch: Batch, places: Sequence[Any]) -> None:
        """Replace the nodes or runs of a batch by the stored runs, unless they changed meanwhile."""
        self.is_writing = False
        self.last_failure_ms, self.last_error = 0, ""
        for stored, place in zip(batch, places, strict=True):
            if place is None or not stored.replace_if_unchanged(place, self.cache):
                self.runs_given_up += 1
            elif isinstance(stored, RunsToRewrite):
                self.runs_rewritten += len(stored.cold_nodes)
            else:
                self.runs_stored += 1

    def record_failure(self, error: Exception) -> None:
        """Record that a batch could not be stored; log a new error."""
        self.is_writing = False
        self.last_failure_ms = self.keyspace.now
        self.failures += 1
        text = os_error_text(error) if isinstance(error, OSError) else str(error)
        if text != self.last_error:
            logging.getLogger("headrace").warning(
                "nodes of streams cannot be moved to files: %s; they stay in memory, tried again each second",
                text,
            )
        self.last_error = text

    def _biggest(self) -> Stream | None:
        """Return the biggest of some streams that have nodes to store; None if there is none."""
        waiting = self.keyspace.evictable
        found: Stream | None = None
        looked_at = 0
        while waiting and looked_at < min(SAMPLE_SIZE, len(waiting)):
            stream: Stream = next(iter(waiting))
            if not cold_selection.has_closed_nodes(stream):
                del waiting[stream]  # until it closes a node again
                continue
            waiting.move_to_end(stream)
            looked_at += 1
            if found is None or stream.memory.total > found.memory.total:
                found = stream
        return found
