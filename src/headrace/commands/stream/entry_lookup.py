"""Single entries of a stream, by ID: quick when they are asked for in order and lie close together.

Pending entries do: a consumer's history, or what an XAUTOCLAIM goes through. The iterator that stands on
one entry steps to the next; only when that is too far away is it sought from the beginning of its node.
"""

from __future__ import annotations

import cython

from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.structures import stream_id

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
# So many steps cost about as much as a search.
STEPS_MAX = cython.declare(cython.int, 32)


@cython.final
@cython.cclass
class EntryLookup:
    """While it is used the stream's entries must not change."""

    stream: Stream
    _entry: StreamIterator | None  # stands on an entry
    _untouched: cython.bint  # which was not given to anybody yet

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._entry = None
        self._untouched = False

    @cython.ccall
    def find(self, ms: cython.ulonglong, seq: cython.ulonglong) -> StreamIterator | None:
        """An iterator that stands on the entry ms-seq, good until the next call; None when there is none."""
        entry: StreamIterator | None = self._entry
        steps: cython.int = 0
        if entry is not None:
            while steps < STEPS_MAX and stream_id.before(entry.ms, entry.seq, ms, seq):
                if not entry.next():
                    self._entry = None
                    return None
                self._untouched = True
                steps += 1
            if entry.ms == ms and entry.seq == seq and self._untouched:
                self._untouched = False
                return entry
            if steps > 0 and stream_id.before(ms, seq, entry.ms, entry.seq):
                return None  # stepped over
        entry = StreamIterator(self.stream, ms, seq, U64_MAX, U64_MAX, False)
        if not entry.next():
            self._entry = None
            return None
        self._entry = entry
        self._untouched = entry.ms != ms or entry.seq != seq
        return None if self._untouched else entry
