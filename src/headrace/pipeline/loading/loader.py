"""One run of a load of a file into a stream, and its recovery from failures.

Each transaction adds rows and sets a key, the marker, that says how many rows of the file are in the stream.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa
from redis.exceptions import RedisError

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.file_formats.csv_records import BadRow
from headrace.pipeline.loading.marker import LoadMarker, LoadState, RowDigest
from headrace.pipeline.loading.row_checks import ValidRows
from headrace.pipeline.loading.time_columns import TimeColumn
from headrace.pipeline.shared.interrupts import defer_interrupts
from headrace.pipeline.shared.pacing import RateLimiter
from headrace.plurals import plural
from headrace.positions.entry_ids import EntryId, parse_id
from headrace.positions.stream_state import StreamState, stream_states
from headrace.spark.options import parse_options
from headrace.spark.sink.column_roles import ColumnRoles
from headrace.spark.sink.requested_ids import RowIdTooSmall
from headrace.spark.sink.sender import RowSender

ROWS_PER_BATCH = 2000

# Batches of large rows are split further: rows in flight are held in memory several times.

# After this many consecutive conflicts with entries of other clients an append fails.
CONFLICTS_MAX = 50

# The column of the generated IDs. No column of a file has a null character in its name.
ID_COLUMN = "\0id"

BadRowCallback = Callable[[BadRow, int], None]


class BadRowError(UsageError):
    """A bad row ended the load."""


@dataclass
class LoadReport:
    """The progress or result of a load.

    Attributes:
        added_rows: Rows that this run added.
        skipped: Rows that an earlier run had added.
        out_of_order: Rows that got the time of the row before them because their own is earlier.
        without_time: Rows that got the time of the row before them because they have none.
        rejected: Rows that were left out.
        first_id: The ID of the first row added; empty if the server generates the IDs.
        last_id: The ID of the last row added; empty if the server generates the IDs.
        seconds: Time since the load began, in seconds.
        uncertain: Whether more rows may be in the stream: the server did not confirm the last ones.
        is_complete: Whether all rows are in the stream; it is set before the marker is updated.
    """

    added_rows: int = 0
    skipped: int = 0
    out_of_order: int = 0
    without_time: int = 0
    rejected: int = 0
    first_id: str = ""
    last_id: str = ""
    seconds: float = 0.0
    uncertain: bool = False
    is_complete: bool = False

    @property
    def loaded(self) -> int:
        """Rows of the file that are in the stream, added by this run and earlier ones."""
        return self.added_rows + self.skipped


@dataclass(frozen=True)
class LoadIdentity:
    """The identity of a load.

    Attributes:
        name: Distinguishes the load from others into the stream; a load without a name cannot be resumed.
        file: The file's name, for messages.
        size: The file's size in bytes; 0 if unknown.
    """

    name: str = ""
    file: str = ""
    size: int = 0


@dataclass
class MonotonicIds:
    """Generates growing IDs from times; a row with an earlier time gets the last time, and is counted."""

    last_ms: int = 0
    last_seq: int = 0
    out_of_order: int = 0
    without_time: int = 0

    def ids_for(self, times: Iterable[int | None]) -> Iterator[tuple[int, int]]:
        """Yield an ID for each time in milliseconds; None gets the last time. UsageError if before 1970."""
        for ms in times:
            if ms is None:
                self.without_time += 1
            elif ms > self.last_ms:
                self.last_ms, self.last_seq = ms, 0
                yield ms, 0
                continue
            elif ms < self.last_ms:
                if ms < 0:
                    raise UsageError(f"a row's time is before 1970 ({ms} ms), which no ID can represent")
                self.out_of_order += 1
            self.last_seq += 1
            yield self.last_ms, self.last_seq


@dataclass(frozen=True)
class SentPart:
    """Rows that were sent in this run.

    Attributes:
        valid_rows: The rows.
        end_row: How many rows of the run were sent, up to and including these.
        first_id, last_id: Their IDs; empty if the server generates them.
        out_of_order, without_time: The counts of MonotonicIds before them.
    """

    valid_rows: ValidRows
    end_row: int
    first_id: str
    last_id: str
    out_of_order: int
    without_time: int

    def rows_after(self, rows: int) -> ValidRows:
        """Return the rows of this part that come after the first `rows` rows of the run."""
        count = self.valid_rows.rows.num_rows
        return self.valid_rows.slice(max(0, rows - (self.end_row - count)), count)


class Loader:
    """One run of a load.

    Attributes:
        report: The progress that the server has confirmed.
        valid_row_count: Number of valid rows processed so far, including those that an earlier run had added.
    """

    def __init__(
        self,
        servers: Servers,
        stream: str,
        job: LoadIdentity,
        times: TimeColumn | None,
        append: bool,
        maxlen: int | None,
        rows_per_batch: int,
        rate: RateLimiter,
        on_progress: Callable[[LoadReport], None],
        pipelined: bool,
    ) -> None:
        self.report = LoadReport()
        self.valid_row_count = 0
        self._servers = servers
        self._stream = stream
        self._job = job
        self._times = times
        self._append = append
        self._rows_per_batch = rows_per_batch
        self._rate = rate
        self._on_progress = on_progress
        self._pipelined = pipelined  # rows are confirmed while the next ones are sent
        self._started = time.monotonic()
        settings = {"url": servers.url, "stream": stream, "timestampFormat": "iso8601"}
        if maxlen is not None:
            settings["maxLength"] = str(maxlen)
        self._options = parse_options(settings, "sink")
        self._marker = LoadMarker(job.name or uuid4().hex)
        self._process = uuid4().hex[:16]
        self._digest = RowDigest(times is not None)  # of the rows added or skipped so far
        self._skip_to: LoadState | None = None  # until its rows are skipped
        self._earlier_run: LoadState | None = None
        self._sender: RowSender | None = None
        self._rows_sent = 0  # rows given to the sender of this run
        self._confirmed_before = 0  # rows that senders before it had confirmed
        self._last_id = (0, 0)
        self._ids = MonotonicIds()
        self._sending = False
        self._unconfirmed: deque[SentPart] = deque()

    @property
    def _marker_key(self) -> bytes:
        return self._marker.key(stream_key(self._stream))

    def _state(self) -> LoadState | None:
        return LoadState.parse(self._servers.client().get(self._marker_key), self._marker_key)

    def _stream_state(self) -> StreamState | None:
        """Return the state of the stream; None if it does not exist."""
        return stream_states(self._servers, [self._stream]).get(self._stream)

    def start(self, resume: bool) -> None:
        """Read the job's marker, and start the run unless rows are to be skipped first.

        Raises:
            UsageError: if an incomplete load is started again with neither `resume` nor `append`.
            HeadraceError: if the stream was recreated since the load that is resumed.
        """
        found = self._stream_state()
        state = self._state()
        run = state.run + 1 if state is not None else 1
        if found is None:  # the stream was deleted: all rows are missing
            state = None
        self._last_id = last_id(found)
        if resume:
            if state is not None and found is not None:
                self._check_entries_added(state, found)
            self._skip_to = self._earlier_run = state
            self._append = self._append or (state is not None and state.append)
        elif state is not None and not state.done and not self._append:
            raise UsageError(incomplete_message(self._stream, state))
        self._ids = MonotonicIds(*self._last_id) if self._append else MonotonicIds()
        if self._skip_to is None:
            self._open_run(LoadState(0, 0, 0, ""), run)

    def _check_entries_added(self, state: LoadState, found: StreamState) -> None:
        """Raise HeadraceError if the stream has had fewer entries than the earlier runs added rows."""
        added = found.entries_added
        if added is not None and added < state.rows:
            raise self._recreated_error(state, f"it has had only {plural(added, 'entry')}")

    def _recreated_error(self, state: LoadState, found: str) -> HeadraceError:
        return HeadraceError(
            f"{plural(state.rows, 'row')} of {state.file or 'this file'} were loaded into stream "
            f"{self._stream!r}, but {found}: it was deleted and created again. --append without --resume "
            "adds all rows after its entries"
        )

    def _open_run(self, base: LoadState, run: int) -> None:
        """Start a run that adds rows after those of the state."""
        info = LoadState(
            0, 0, base.rows, "", self._job.file, self._job.size, self._append, process=self._process
        )
        self._marker = LoadMarker(
            self._marker.query_id, batch_id=run, state_before_run=info, start_digest=self._digest.copy()
        )
        self._sender = RowSender(
            self._options,
            self._marker,
            assign_roles=self._roles,
            chunk_rows=self._rows_per_batch,
            increasing_ids=True,
        )
        self._rows_sent = 0

    def _roles(self, schema: pa.Schema) -> ColumnRoles:
        names = tuple(name for name in schema.names if name != ID_COLUMN)
        return ColumnRoles(None, ID_COLUMN if ID_COLUMN in schema.names else None, None, names)

    def reject_row(self, bad: BadRow, on_bad_row: BadRowCallback | None) -> None:
        """Skip a bad row, and pass it to `on_bad_row`; without a callback, raise BadRowError.

        A bad row that an earlier run skipped raises no error. It is passed on again only if that run was
        interrupted.
        """
        if self._was_rejected_earlier() and (on_bad_row is None or self._earlier_run_complete):
            return
        if on_bad_row is None:
            raise BadRowError(f"{self._job.file}: {bad}" if self._job.file else str(bad))
        self.report.rejected += 1
        on_bad_row(bad, self.valid_row_count)

    def _was_rejected_earlier(self) -> bool:
        """Return whether an earlier run skipped the row: it is before the last row that the run added.

        A complete run has also skipped those after its last row, unless the file has another size now.
        """
        earlier = self._earlier_run
        if earlier is None:
            return False
        return self.valid_row_count < earlier.rows + (earlier.done and earlier.size == self._job.size)

    @property
    def _earlier_run_complete(self) -> bool:
        """Whether the earlier run was complete, and so has reported all its bad rows."""
        return self._earlier_run is not None and self._earlier_run.done

    def add_all(self, parts: Iterable[ValidRows | BadRow], on_bad_row: BadRowCallback | None) -> None:
        """Add rows, except those that an earlier run has added. UsageError if a bad row ends the load."""
        for part in parts:
            if isinstance(part, BadRow):
                self.reject_row(part, on_bad_row)
            else:
                self._add_new(part)

    def _add_new(self, part: ValidRows) -> None:
        if self._skip_to is not None:
            passed = min(part.rows.num_rows, self._skip_to.rows - self.valid_row_count)
            self._skip(part.slice(0, passed))
            part = part.slice(passed, part.rows.num_rows)
        if part.rows.num_rows:
            self._rate.wait(part.rows.num_rows)
            self._add(part)
            self.valid_row_count += part.rows.num_rows

    def _skip(self, part: ValidRows) -> None:
        """Skip rows that an earlier run has added.

        Raises:
            UsageError: if they are not the same rows.
            HeadraceError: if the stream was recreated since that run.
        """
        assert self._skip_to is not None
        if part.rows.num_rows:
            self._digest.update(part)
            if not self._append:
                deque(self._ids.ids_for(part.times), 0)
            self.valid_row_count += part.rows.num_rows
            self.report.skipped += part.rows.num_rows
        if self.valid_row_count == self._skip_to.rows:
            self._check_skipped(self._skip_to)
            self._ids.out_of_order = self._ids.without_time = 0
            state, self._skip_to = self._skip_to, None
            self._open_run(state, state.run + 1)

    def _check_skipped(self, state: LoadState) -> None:
        """Check that the skipped rows are those of the earlier run, and that the stream may have them."""
        if self._digest.fields_hex() != state.digest:
            raise UsageError(file_changed_message(self._job.file, state))
        times = self._digest.times_hex()
        if not state.times:
            self._digest.drop_times()  # they did not give the IDs of these rows
        if not (times and state.times):
            return
        if times != state.times:
            raise UsageError(file_changed_message(self._job.file, state, "the times of "))
        if not self._append and (self._ids.last_ms, self._ids.last_seq) > self._last_id:
            last = f"row {state.rows:,} has the ID {self._ids.last_ms}-{self._ids.last_seq}"
            raise self._recreated_error(
                state, f"it ends at {self._last_id[0]}-{self._last_id[1]}, and {last}"
            )

    def _add(self, part: ValidRows) -> None:
        """Send rows; unless sending is pipelined, wait until they are confirmed."""
        self._send_all(deque([part]), flush=not self._pipelined)

    def _send_all(self, parts: deque[ValidRows], flush: bool = False) -> None:
        """Send parts, and wait for all rows if `flush` is set.

        After a conflict with entries of other clients, the rows that are not in the stream are sent again.
        """
        conflicts = 0
        while True:
            try:
                while parts:
                    self._send(parts[0])
                    parts.popleft()
                if flush:
                    self._flush()
                return
            except RowIdTooSmall as error:
                done, missing = self._start_after_conflict(error)
                if parts:  # it was sent, so it is among the missing ones
                    parts.popleft()
                parts.extendleft(reversed(missing))
                conflicts = 0 if done else conflicts + 1
                if conflicts > CONFLICTS_MAX:
                    raise HeadraceError(
                        f"other clients add entries to stream {self._stream!r} faster than rows can be "
                        "appended; use --new-ids to have the server generate the IDs"
                    ) from error

    def _send(self, part: ValidRows) -> None:
        assert self._sender is not None
        counted = (self._ids.out_of_order, self._ids.without_time)
        rows, texts = part.rows, []
        if self._times is not None:
            texts = [f"{ms}-{seq}" for ms, seq in self._ids.ids_for(part.times)]
            if not self._append and self.report.loaded == 0:
                self._check_first(texts[0])
            rows = rows.append_column(ID_COLUMN, pa.array(texts, pa.string()))
        before = self._digest.copy()
        self._digest.update(part)
        self._marker.record_rows(self._rows_sent, before, part, self._digest.copy())
        self._rows_sent += part.rows.num_rows
        ids = (texts[0], texts[-1]) if texts else ("", "")
        self._unconfirmed.append(SentPart(part, self._rows_sent, *ids, *counted))
        self._sending = True
        with defer_interrupts():
            self._sender.send(rows)
            self._sending = False
            self._confirm(self._sender.confirmed_row_count)
        self.report.out_of_order, self.report.without_time = self._ids.out_of_order, self._ids.without_time

    def _check_first(self, first: str) -> None:
        ms, _, seq = first.partition("-")
        if (int(ms), int(seq)) <= self._last_id:
            raise UsageError(later_entries_message(self._stream, self._last_id, first))

    def _confirm(self, confirmed: int) -> None:
        """Record how many rows of the current sender are in the stream, and report progress."""
        rows = self._confirmed_before + confirmed
        while self._unconfirmed and self._unconfirmed[0].end_row <= confirmed:
            part = self._unconfirmed.popleft()
            self.report.first_id = self.report.first_id or part.first_id
            self.report.last_id = part.last_id
        if rows != self.report.added_rows:
            self.report.added_rows = rows
            self.report.seconds = time.monotonic() - self._started
            self._on_progress(self.report)

    def _start_after_conflict(self, error: RowIdTooSmall) -> tuple[int, list[ValidRows]]:
        """Start a new run after the rows of this one that are in the stream.

        Returns:
            How many these are, and the rows that were sent and are not in the stream.

        Raises:
            UsageError: if the load does not append, so that its IDs are too low now.
        """
        if not self._append:
            raise UsageError(conflict_message(self._stream, str(error))) from error
        self._close_sender()
        done = self._rows_on_server()
        self._confirm(done)
        missing = list(self._unconfirmed)
        rest = [each.rows_after(done) for each in missing]
        self._digest = self._marker.digest_at(done)
        base = self._marker.state(done)
        self._confirmed_before += done
        self._unconfirmed.clear()
        self._open_run(base, self._marker.batch_id + 1)
        last = last_id(self._stream_state())
        counts = (missing[0].out_of_order, missing[0].without_time) if missing else (0, 0)
        self._ids = MonotonicIds(*last, *counts)
        return done, rest

    def finish(self, named: bool) -> None:
        """Wait until all rows are confirmed, and record that the load is complete.

        Args:
            named: Whether the load has a name; otherwise its marker is deleted.

        Raises:
            UsageError: if the file ended before all rows of the earlier run were skipped.
        """
        if self._skip_to is not None:
            raise UsageError(file_changed_message(self._job.file, self._skip_to))
        assert self._sender is not None
        self._send_all(deque(), flush=True)
        self.report.seconds = time.monotonic() - self._started
        self.report.is_complete = True
        self._on_progress(self.report)
        if not named:
            self._servers.client().delete(self._marker_key)
        elif self.report.loaded:
            done = replace(self._marker.state(self._rows_sent), done=True)
            self._servers.client().set(self._marker_key, done.encode(), px=self._marker.ttl_ms)

    def _flush(self) -> None:
        """Wait until the rows that were sent are confirmed."""
        assert self._sender is not None
        with defer_interrupts():
            self._confirm(self._sender.flush())

    def report_after_failure(self, stop: BaseException) -> None:
        """Determine and report how many rows are in the stream after an error or Ctrl-C."""
        if self._sender is None:
            return
        is_settled = False
        try:
            with defer_interrupts():
                if isinstance(stop, KeyboardInterrupt | UsageError) and not self._sending:
                    with suppress(HeadraceError):
                        self._confirm(self._sender.flush())
                        is_settled = True
                if not is_settled:
                    self._close_sender()  # commands not yet executed are dropped with the connection
                    self._confirm(self._rows_on_server())
                is_settled = True
        except (HeadraceError, RedisError, OSError, KeyboardInterrupt):
            self.report.uncertain = (
                not is_settled and self._rows_sent + self._confirmed_before > self.report.added_rows
            )
        self.report.seconds = time.monotonic() - self._started
        self._on_progress(self.report)

    def _rows_on_server(self) -> int:
        """Return how many rows of this run the server has."""
        state = self._state()
        return state.run_rows if state is not None and self._marker.is_own(state) else 0

    def _close_sender(self) -> None:
        if self._sender is not None:
            self._sender.close()

    def close(self) -> None:
        """Close the connections."""
        self._close_sender()


def last_id(state: StreamState | None) -> EntryId:
    """Return the last ID that a stream ever generated; 0-0 if it does not exist."""
    return (0, 0) if state is None else parse_id(state.last_id)


def later_entries_message(stream: str, last: tuple[int, int], first: str) -> str:
    """Return the error for a stream that already has later entries, with the options that help."""
    return (
        f"stream {stream!r} already has entries up to {last[0]}-{last[1]}, and the first row would be "
        f"{first}; use --append to add the rows after them, --new-ids to have the server generate the "
        "IDs, or another --stream"
    )


def conflict_message(stream: str, error: str) -> str:
    """Return the error for a load during which other clients have added later entries."""
    return (
        f"{error.partition('. ')[0]}. Other clients have added later entries to stream {stream!r}: "
        "--append --resume adds the remaining rows after them"
    )


def incomplete_message(stream: str, state: LoadState) -> str:
    """Return the error for starting an incomplete load again, with the options that help."""
    return (
        f"an earlier load of {state.file or 'this file'} into stream {stream!r} stopped after "
        f"{plural(state.rows, 'row')}; use --resume to add the other rows, or "
        "--append to add all rows again after them"
    )


def file_changed_message(file: str, state: LoadState, part: str = "") -> str:
    """Return the error for resuming a file whose loaded rows, or a part of them, have changed."""
    return (
        f"{part}the first {state.rows:,} rows of {file or 'the file'} are not those that were loaded: the "
        "file has changed, or it is read with other options. --append adds all its rows after the existing "
        "entries"
    )
