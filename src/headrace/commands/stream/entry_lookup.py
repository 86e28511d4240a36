"""Look-up of single entries by ID: fast if they are requested in order and lie close together.

That is so for pending entries: a consumer's history, or the entries that XAUTOCLAIM examines. The iterator
steps from one entry to the next. Only a distant entry is searched from the beginning of its node.
"""

from __future__ import annotations

import cython

from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
# So many steps cost about as much as a search.
STEPS_MAX = cython.declare(cython.int, 32)


@cython.final
@cython.cclass
class EntryLookup:
    """Looks up entries by ID. While it is used, the stream's entries must not change."""

    stream: Stream
    _entry: StreamIterator | None  # at an entry
    _is_entry_unread: cython.bint  # that entry has not been returned yet
    _ends_with_run: cython.bint  # its iterator ends before the next cold run, which is not read

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._entry = None
        self._is_entry_unread = False
        self._ends_with_run = False

    @cython.ccall
    def find(self, ms: cython.ulonglong, seq: cython.ulonglong) -> StreamIterator | None:
        """Return an iterator at the entry ms-seq, valid until the next call; None if there is none.

        Only the cold run that may have this entry is read. Raises DamagedColdRun.
        """
        stream: Stream = self.stream
        last: StreamId | None
        if stream_id.is_before(ms, seq, stream.first_ms, stream.first_seq):
            return None  # trimmed, as many pending entries may be: a search would cost ten times as much
        entry: StreamIterator | None = self._entry
        steps: cython.int = 0
        if entry is not None:
            while steps < STEPS_MAX and stream_id.is_before(entry.ms, entry.seq, ms, seq):
                if not entry.next():
                    self._entry = None
                    if not self._ends_with_run:
                        return None
                    steps = 0
                    break
                self._is_entry_unread = True
                steps += 1
            if entry.ms == ms and entry.seq == seq and self._is_entry_unread:
                self._is_entry_unread = False
                return entry
            if steps > 0 and stream_id.is_before(ms, seq, entry.ms, entry.seq):
                return None  # stepped over
        if stream.run_count() > 0:
            last = stream.last_id_in_same_run(ms, seq)
            if last is None:
                return None
            self._ends_with_run = last.ms != U64_MAX
            entry = StreamIterator(stream, ms, seq, last.ms, last.seq, False)
        else:
            entry = StreamIterator(stream, ms, seq, U64_MAX, U64_MAX, False)
        if not entry.next():
            self._entry = None
            return None
        self._entry = entry
        self._is_entry_unread = entry.ms != ms or entry.seq != seq
        return None if self._is_entry_unread else entry
