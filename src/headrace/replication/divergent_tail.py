r"""Save what a full synchronisation would erase: entries of a former primary that its new primary lacks.

    former primary   1-0 2-0 3-0 4-0 5-0        it acknowledged 4-0 and 5-0, and no replica received them
    new primary      1-0 2-0 3-0 9-0
    file             SELECT 0, XADD orders 4-0 ..., XADD orders 5-0 ...

The protocol does not name the last offset that two histories have in common: +FULLRESYNC only says that the
replica's offset is not part of the primary's history. So the loaded streams are compared with the old ones,
entry by entry. A missing entry is saved, unless the new primary has certainly removed it. These are the
cases, for each stream:

    after the last common entry           saved; with NOMKSTREAM if the new primary may have removed it
    before it, and not removed there      saved: it was added with an explicit ID
    before it, and maybe removed there    not saved: it was replicated, and trimmed or deleted since then

Nodes with equal bytes are skipped, so that the common part of a stream costs little. A file in the data
directory marks a server that has written a history of its own, so that its tail is found after a restart.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.errors import os_error_text, to_text
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.aof.log_buffer import LogBuffer
from headrace.persistence.aof.manifest import write_all
from headrace.persistence.data_directory import DataDirectory, File
from headrace.persistence.saved_entries import SavedEntry, xadd_arguments
from headrace.plurals import plural
from headrace.streams.cold_run import inner_nodes_or_self
from headrace.streams.iterator import StreamIterator
from headrace.streams.node import Node, node_of_cursor
from headrace.streams.node_walk import EntryWalk
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.rax_walk import RaxCursor

LOG = logging.getLogger("headrace")
MARKER_FILE_NAME = "headrace.primary"  # exists while this server may have entries that no other one has
MARKER_TEXT = b"This server was a primary: it saves its own entries before it loads those of another one.\n"
BUFFER_BYTES = 256 * 1024
EntryId = tuple[int, int]


@dataclass
class SavedTail:
    """What was saved: the name of the file, and how many entries of how many streams it has."""

    file_name: str
    entry_count: int = 0
    maybe_removed_count: int = 0  # of these: the new primary may have had and removed them
    stream_count: int = 0


class DivergentTail:
    """The entries that only this server may have, from when it becomes a primary until it follows another."""

    def __init__(self, files: DataDirectory, keyspace: Keyspace) -> None:
        self.data_directory = files
        self.keyspace = keyspace
        self.is_possible = False

    # Whether there may be one.

    def load_marker(self) -> None:
        """Read from the disk whether this server was a primary before it was started."""
        with contextlib.suppress(OSError):
            self.is_possible = self.data_directory.exists(MARKER_FILE_NAME)

    def mark_possible(self) -> None:
        """Mark, also on the disk, that this server is a primary with replicas now.

        The file is not synced: a slow disk must not delay a promotion, and the system writes it soon.
        """
        if self.is_possible:
            return
        self.is_possible = True
        try:
            with contextlib.closing(self.data_directory.create(MARKER_FILE_NAME)) as file:
                write_all(file, MARKER_TEXT)
        except OSError as error:
            text = "cannot create %s (%s): if the server crashes, what only it has may be lost as a replica"
            LOG.warning(text, MARKER_FILE_NAME, os_error_text(error))

    def mark_impossible(self) -> None:
        """Remove the mark and its file: the new primary has all entries of this server."""
        if not self.is_possible:
            return
        self.is_possible = False
        with contextlib.suppress(OSError):
            self.data_directory.remove(MARKER_FILE_NAME)

    # Saving it.

    def save(self, new: Keyspace, on_stream: Callable[[], None] = lambda: None) -> SavedTail | None:
        """Save and sync the entries that the new data lacks, before it replaces the present data.

        Args:
            on_stream: called between two streams. If it raises, no file is left.

        Returns:
            what was saved; None if nothing is missing, or if this server was not a primary.

        Raises:
            OSError: if the file cannot be written. The present data must be kept.
        """
        if not self.is_possible:
            return None
        writer = _TailWriter(self.data_directory)
        try:
            for index, database in enumerate(self.keyspace.databases):
                for key, old in list(database.values.items()):
                    if isinstance(old, Stream):
                        twin = new.databases[index].values.get(key) if index < len(new.databases) else None
                        writer.add(index, key, old, twin if isinstance(twin, Stream) else None)
                        on_stream()
            saved = writer.finish()
        except BaseException:
            writer.abandon()
            raise
        if saved is not None:
            _report(saved)
        return saved


def _report(saved: SavedTail) -> None:
    removed = (
        f", of which it may have removed {saved.maybe_removed_count}" if saved.maybe_removed_count else ""
    )
    LOG.warning(
        "%s of %s that the new primary lacks%s: saved in %s; `headrace recover` lists and adds them",
        plural(saved.entry_count, "entry"),
        plural(saved.stream_count, "stream"),
        removed,
        saved.file_name,
    )


class _TailWriter:
    """Writes the file, which is created with the first entry."""

    def __init__(self, files: DataDirectory) -> None:
        self.files = files
        self.buffer = LogBuffer()
        self.file: File | None = None
        self.saved = SavedTail("")

    def add(self, database: int, key: bytes, old: Stream, new: Stream | None) -> None:
        """Write the entries of a stream that the new one lacks."""
        before = self.saved.entry_count
        for ms, seq, fields, maybe_removed in missing_entries(old, new):
            entry = SavedEntry(database, key, stream_id.text_of(ms, seq), fields, maybe_removed)
            self.buffer.put(database, xadd_arguments(entry))
            self.saved.entry_count += 1
            self.saved.maybe_removed_count += maybe_removed
            if self.buffer.size() >= BUFFER_BYTES:
                self._flush()
        if self.saved.entry_count > before:
            self.saved.stream_count += 1
            LOG.info("the new primary lacks %d entries of %s", self.saved.entry_count - before, to_text(key))

    def _flush(self) -> None:
        if self.file is None:
            self.saved.file_name = new_file_name(self.files)
            self.file = self.files.create(self.saved.file_name)
        self.buffer.write_to(self.file)
        self.buffer.clear()

    def finish(self) -> SavedTail | None:
        """Write the rest, sync and close the file; return what was saved, None if there was nothing."""
        if not self.saved.entry_count:
            return None
        self._flush()
        assert self.file is not None
        self.file.sync()
        self.file.close()
        self.files.sync_directory("")
        return self.saved

    def abandon(self) -> None:
        """Close and remove the file if it was created."""
        if self.file is not None:
            self.file.close()
            with contextlib.suppress(OSError):
                self.files.remove(self.saved.file_name)


def new_file_name(files: DataDirectory) -> str:
    """Return an unused file name that contains the present time. Raises OSError."""
    stem = f"divergent-entries-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    name, number = f"{stem}.resp", 1
    while files.exists(name):
        number += 1
        name = f"{stem}-{number}.resp"
    return name


# Comparing two streams.


def missing_entries(old: Stream, new: Stream | None) -> Iterator[tuple[int, int, list[bytes], bool]]:
    """Yield ms, seq and fields of the entries of `old` to save, and whether `new` may have had them."""
    common = last_common_id(old, new) if new is not None else None
    for node in nodes_of(old):
        if new is not None and has_equal_node(new, node):
            continue
        walk = EntryWalk(node)
        while walk.next():
            if walk.deleted:
                continue
            entry = walk.ms, walk.seq
            removed = new is not None and may_have_removed(new, entry)
            if removed and common is not None and entry < common:
                continue
            fields = find_fields(old, entry)
            if fields is not None and (new is None or find_fields(new, entry) != fields):
                yield (*entry, fields, removed)


def nodes_of(stream: Stream) -> Iterator[Node]:
    """Yield the nodes of a stream in their order."""
    cursor = RaxCursor(stream.nodes)
    found = cursor.seek("^")
    while found:
        yield from inner_nodes_or_self(node_of_cursor(cursor))
        found = cursor.next()


def has_equal_node(stream: Stream, node: Node) -> bool:
    """Return whether the stream has a node with the same first ID and the same bytes."""
    twin = stream.node_for_id(node.ms, node.seq)
    return twin is not None and twin.key() == node.key() and twin.pack.to_bytes() == node.pack.to_bytes()


def last_common_id(old: Stream, new: Stream) -> EntryId | None:
    """Return the ID of the last entry that both streams have; None if there is none."""
    entries = StreamIterator(old, 0, 0, old.last_ms, old.last_seq, True)
    while entries.next():
        entry = entries.ms, entries.seq
        if new.contains(*entry) and find_fields(new, entry) == find_fields(old, entry):
            return entry
    return None


def find_fields(stream: Stream, entry: EntryId) -> list[bytes] | None:
    """Return an entry as [name, value, ...]; None if there is none with that ID."""
    found = StreamIterator(stream, *entry, *entry, False)
    return found.remaining_pieces() if found.next() else None


def may_have_removed(stream: Stream, entry: EntryId) -> bool:
    """Return whether the stream, which lacks the entry, may have had it and deleted or trimmed it."""
    if not stream.length:
        return entry <= (stream.last_ms, stream.last_seq)
    first, deleted = stream.first_id(), stream.max_deleted_id()
    return entry < (first.ms, first.seq) or entry <= (deleted.ms, deleted.seq)
