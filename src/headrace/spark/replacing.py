"""Overwriting a stream: written under another key, and put in its place at once when all is there.

    {orders}:headrace:new:<uuid>   --  RENAME, in commit()  -->   orders

Readers see the old stream or the new one, never a part. The old one's consumer groups go with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.spark.marker import tagged
from headrace.spark.shards import client

LIFE_MS = 7 * 24 * 3600 * 1000  # of what a driver left behind that died before commit() or abort()


@dataclass(frozen=True)
class Replacement:
    """The new stream on its way to the place of the old one."""

    url: str
    stream: str
    name: str

    @property
    def temporary(self) -> str:
        """The key to write to. In the same slot as the stream's."""
        return f"{tagged(self.stream.encode()).decode()}:headrace:new:{self.name}"

    def keep_a_while(self) -> None:
        """Let the server forget the rows if nobody ever asks for them."""
        with client(self.url) as server:
            server.pexpire(self.temporary, LIFE_MS)

    def commit(self, entries: int) -> None:
        """Put the new stream in the old one's place. Without rows there is none: then the old one goes."""
        with client(self.url) as server:
            if not entries and not server.exists(self.temporary):
                server.delete(self.stream)
                return
            pipe: Any = server.pipeline(transaction=True)
            pipe.persist(self.temporary)
            pipe.rename(self.temporary, self.stream)
            pipe.execute()

    def abort(self) -> None:
        """Drop what was written."""
        with client(self.url) as server:
            server.delete(self.temporary)
