"""Collect what a command with KEEPREF, DELREF or ACKED removes: entries, and references of groups to them.

It is collected only for replicas that do not know the policies: see commands/redis7_equivalents.py.
"""

from __future__ import annotations

from headrace.streams import references
from headrace.streams.stream import Stream
from headrace.structures import stream_id


class Deletions:
    """The entries and references that were removed, oldest removal first."""

    def __init__(self, max_deleted: bytes) -> None:
        """Begin with nothing removed.

        Args:
            max_deleted: the stream's max-deleted-entry-id before the removals, as text.
        """
        self.max_deleted_id_before = max_deleted
        self.entry_ids: list[bytes] = []  # IDs
        self.pending_ids_by_group: dict[
            bytes, list[bytes]
        ] = {}  # the IDs that a group had pending, by its name

    def add_entry(self, ms: int, seq: int) -> None:
        """Record a deleted entry."""
        self.entry_ids.append(stream_id.text_of(ms, seq))

    def add_references(self, stream: Stream, ms: int, seq: int) -> None:
        """Record which groups have the entry pending. Call it before these references are removed."""
        for group in references.groups_with_pending(stream, ms, seq):
            self.pending_ids_by_group.setdefault(group.name, []).append(stream_id.text_of(ms, seq))

    def xack_commands(self, key: bytes) -> list[list[bytes]]:
        """Return the XACK commands that remove the recorded references, one for each group."""
        return [[b"XACK", key, name, *ids] for name, ids in sorted(self.pending_ids_by_group.items())]


def new_deletions(stream: Stream) -> Deletions:
    """Return an empty record for the deletions of one command from the stream."""
    return Deletions(stream.max_deleted_id().text())
