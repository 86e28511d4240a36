"""The history of the data: its replication ID and the previous one, with which replicas can continue.

    id           names the present history; a primary makes it, its replicas adopt it
    second_id    the history before a promotion; valid up to second_end

       second_id           id
    0 ───────────▶ second_end ─────────▶ now

Two servers with the same ID at the same position have the same data.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

NO_ID = "0" * 40


def new_id() -> str:
    """Return a new replication ID: 40 hexadecimal digits."""
    return os.urandom(20).hex()


@dataclass
class History:
    """The replication IDs of a server. `second_end` is -1 without a second ID."""

    id: str = field(default_factory=new_id)
    second_id: str = NO_ID
    second_end: int = -1

    def begin(self) -> None:
        """Begin a history that has nothing in common with the last one."""
        self.id, self.second_id, self.second_end = new_id(), NO_ID, -1

    def shift(self, position: int, adopted: str | None = None) -> None:
        """Begin a new history that continues the present one from this position.

        Args:
            position: the end of the stream so far.
            adopted: the new ID, if a primary gave it.
        """
        self.second_id, self.second_end = self.id, position
        self.id = adopted or new_id()

    def adopt(self, found: str) -> None:
        """Adopt the history of a primary after a full synchronisation."""
        self.id, self.second_id, self.second_end = found, NO_ID, -1

    def knows(self, asked: str, position: int) -> bool:
        """Return whether the history `asked` is the same as the history here up to this position."""
        return asked == self.id or (asked == self.second_id != NO_ID and position <= self.second_end)
