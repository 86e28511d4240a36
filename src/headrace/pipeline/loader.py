"""One run of a load: rows in transactions that also set the load's marker, and what it does when it fails."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa
from redis.exceptions import RedisError

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.csv_records import BadRow
from headrace.pipeline.interrupts import defer_interrupts
from headrace.pipeline.load_marker import LoadMarker, LoadState, RowDigest
from headrace.pipeline.replay_pacer import Rate
from headrace.pipeline.row_checks import Checked, checked
from headrace.pipeline.server_connection import Link
from headrace.pipeline.times import TimeColumn
from headrace.spark.options import parse_options
from headrace.spark.sink.exactly_once import IdNotAbove
from headrace.spark.sink.sender import Roles, Sender
from headrace.spark.stream_names import stream_key

ROWS_PER_BATCH = 2000

# A batch is cut smaller when its rows are large: what is on its way is held several times.
BATCH_BYTES = 4 * 1024 * 1024

# How often in a row an append is overtaken by others before it gives up.
OVERTAKEN_MAX = 50

# The column of the IDs among those of a file. No name in a file has a null character.
ID_COLUMN = "\0id"

OnBad = Callable[[BadRow, int], None]


@dataclass
class Report:
    """What a load has done so far.

    rows        rows that this run added
    skipped     rows that an earlier run had added
    moved       rows that took the time of the row before them, because their own is earlier
    untimed     rows that took it because they have no time
    bad         rows that were left out
    uncertain   whether more rows may be in the stream: the server did not confirm the last ones
    ended       whether all rows are in, and only the note that they are is missing
    """

    rows: int = 0
    skipped: int = 0
    moved: int = 0
    untimed: int = 0
    bad: int = 0
    first_id: str = ""
    last_id: str = ""
    seconds: float = 0.0
    uncertain: bool = False
    ended: bool = False

    @property
    def loaded(self) -> int:
        """How many rows of the file are in the stream, by this run and earlier ones."""
        return self.rows + self.skipped


@dataclass(frozen=True)
class LoadJob:
    """Which load this is.

    name    tells it from other loads into the stream; made up if it is left out, then it cannot be resumed
    file    the file's name, for messages
    size    the file's size in bytes, if it is known
    """

    name: str = ""
    file: str = ""
    size: int = 0


@dataclass
class Ids:
    """Growing IDs from times: a row that goes back in time takes the last time, and is counted."""

    ms: int = 0
    seq: int = 0
    moved: int = 0
    untimed: int = 0

    def of(self, times: Iterable[int | None]) -> Iterator[tuple[int, int]]:
        """The next IDs, one a time."""
        for ms in times:
            if ms is None:
                self.untimed += 1
            elif ms > self.ms:
                self.ms, self.seq = ms, 0
                yield ms, 0
                continue
            elif ms < self.ms:
                if ms < 0:
                    raise UsageError(f"a row's time lies before 1970 ({ms} ms), which no ID can say")
                self.moved += 1
            self.seq += 1
            yield self.ms, self.seq


class Loader:
    """One run of a load.

    report      what is done, as far as the server has confirmed it
    read        rows of the file so far
    given       good ones of them, also those that an earlier run had added
    """

    def __init__(
        self,
        link: Link,
        stream: str,
        job: LoadJob,
        times: TimeColumn | None,
        append: bool,
        maxlen: int | None,
        rows_per_batch: int,
        rate: Rate,
        on_progress: Callable[[Report], None],
    ) -> None:
        self.report = Report()
        self.read = 0
        self.given = 0
        self._link = link
        self._stream = stream
        self._job = job
        self._times = times
        self._append = append
        self._rows_per_batch = rows_per_batch
        self._rate = rate
        self._tell = on_progress
        self._started = time.monotonic()
        settings = {"url": link.url, "stream": stream, "timestampFormat": "iso8601"}
        if maxlen is not None:
            settings["maxLength"] = str(maxlen)
        self._options = parse_options(settings, "sink")
        self._marker = LoadMarker(job.name or uuid4().hex)
        self._digest = RowDigest()  # of the rows taken
        self._earlier: LoadState | None = None  # until its rows are passed over
        self._resumed: LoadState | None = None
        self._sender: Sender | None = None
        self._sent = 0  # rows given to the sender of this run
        self._settled = 0  # rows that senders before it had confirmed
        self._last = (0, 0)
        self._ids = Ids()
        self._sending = False
        self._unconfirmed: deque[tuple[int, str, str]] = deque()  # (rows in the end, first ID, last ID)

    @property
    def _key(self) -> bytes:
        return self._marker.key(stream_key(self._stream))

    def _state(self) -> LoadState | None:
        return LoadState.of(self._link.client.get(self._key), self._key)

    def begin(self, resume: bool) -> None:
        """Look how far the job is. UsageError if it is begun again though it is not complete."""
        found = self._link.last_id(self._stream)
        state = self._state()
        run = state.run + 1 if state is not None else 1
        if found is None:  # the stream was deleted: all rows are missing
            state = None
        self._last = found or (0, 0)
        if resume:
            self._earlier = self._resumed = state
            self._append = self._append or (state is not None and state.append)
        elif state is not None and not state.done and not self._append:
            raise UsageError(incomplete(self._stream, state))
        self._ids = Ids(*self._last) if self._append else Ids()
        if self._earlier is None:
            self._open_run(LoadState(0, 0, 0, ""), run)

    def _open_run(self, base: LoadState, run: int) -> None:
        """Begin to send rows after those of the state."""
        info = LoadState(0, 0, base.rows, "", self._job.file, self._job.size, self._append)
        self._marker = LoadMarker(self._marker.query, batch=run, base=info, start=self._digest.copy())
        self._sender = Sender(
            self._options,
            self._marker,
            given_roles=self._roles,
            chunk_rows=self._rows_per_batch,
            rising_ids=True,
        )
        self._sent = 0

    def _roles(self, schema: pa.Schema) -> Roles:
        names = tuple(name for name in schema.names if name != ID_COLUMN)
        return Roles(None, ID_COLUMN if ID_COLUMN in schema.names else None, None, names)

    def reject(self, bad: BadRow, on_bad: OnBad | None) -> None:
        """Leave out a bad row. UsageError if it ends the load."""
        self.read += 1
        if self._is_known() and (on_bad is None or self._reported):
            return
        if on_bad is None:
            raise UsageError(f"{self._job.file}: {bad}" if self._job.file else str(bad))
        self.report.bad += 1
        on_bad(bad, self.given)

    def _is_known(self) -> bool:
        """Whether an earlier run has left out the row: it stands before the last row that this run added."""
        if self._resumed is None:
            return False
        return self.given < self._resumed.rows + self._resumed.done

    @property
    def _reported(self) -> bool:
        """Whether the rows that the earlier run left out were reported: it came to its end."""
        return self._resumed is not None and self._resumed.done

    def take(self, batch: pa.RecordBatch, on_bad: OnBad | None) -> None:
        """Add rows, but for those that an earlier run has added."""
        for piece in cut(batch, self._rate.at_once(self._rows_per_batch)):
            for part in checked(piece, self._times, self.read):
                if isinstance(part, BadRow):
                    self.reject(part, on_bad)
                else:
                    self.read += part.rows.num_rows
                    self._take_good(part)

    def _take_good(self, part: Checked) -> None:
        if self._earlier is not None:
            passed = min(part.rows.num_rows, self._earlier.rows - self.given)
            self._pass_over(part.slice(0, passed))
            part = part.slice(passed, part.rows.num_rows)
        if part.rows.num_rows:
            self._rate.wait(part.rows.num_rows)
            self._add(part)
            self.given += part.rows.num_rows

    def _pass_over(self, part: Checked) -> None:
        """Skip rows that an earlier run has added, and see that they are the same."""
        assert self._earlier is not None
        if part.rows.num_rows:
            self._digest.update(part.rows)
            if not self._append:
                deque(self._ids.of(part.times), 0)
            self.given += part.rows.num_rows
            self.report.skipped += part.rows.num_rows
        if self.given == self._earlier.rows:
            if self._digest.text() != self._earlier.digest:
                raise UsageError(changed(self._job.file, self._earlier))
            self._ids.moved = self._ids.untimed = 0
            state, self._earlier = self._earlier, None
            self._open_run(state, state.run + 1)

    def _add(self, part: Checked) -> None:
        """Send rows. Those that others have overtaken are sent with later IDs, if the load appends."""
        in_a_row = 0
        while True:
            counted = (self._ids.moved, self._ids.untimed)
            try:
                self._send(part)
                return
            except IdNotAbove as error:
                self._ids.moved, self._ids.untimed = counted
                rest = self._overtaken(part, error)
                in_a_row = in_a_row + 1 if rest.rows.num_rows == part.rows.num_rows else 0
                if in_a_row > OVERTAKEN_MAX:
                    raise HeadraceError(
                        f"others add to stream {self._stream!r} faster than rows can be put after their "
                        "entries; choose --new-ids to have the server generate the IDs"
                    ) from error
                part = rest

    def _send(self, part: Checked) -> None:
        assert self._sender is not None
        rows, texts = part.rows, []
        if self._times is not None:
            texts = [f"{ms}-{seq}" for ms, seq in self._ids.of(part.times)]
            if not self._append and self.report.loaded == 0:
                self._check_first(texts[0])
            rows = rows.append_column(ID_COLUMN, pa.array(texts, pa.string()))
        before = self._digest.copy()
        self._digest.update(part.rows)
        self._marker.note(self._sent, before, part.rows, self._digest.copy())
        self._sent += part.rows.num_rows
        self._unconfirmed.append((self._sent, texts[0] if texts else "", texts[-1] if texts else ""))
        self._sending = True
        with defer_interrupts():
            self._sender.send(rows)
            self._sending = False
            self._confirm(self._sender.confirmed)
        self.report.moved, self.report.untimed = self._ids.moved, self._ids.untimed

    def _check_first(self, first: str) -> None:
        ms, _, seq = first.partition("-")
        if (int(ms), int(seq)) <= self._last:
            raise UsageError(taken(self._stream, self._last, first))

    def _confirm(self, confirmed: int) -> None:
        """Note how many rows of this run are in the stream."""
        rows = self._settled + confirmed
        while self._unconfirmed and self._unconfirmed[0][0] <= confirmed:
            _, first, last = self._unconfirmed.popleft()
            self.report.first_id = self.report.first_id or first
            self.report.last_id = last
        if rows != self.report.rows:
            self.report.rows = rows
            self.report.seconds = time.monotonic() - self._started
            self._tell(self.report)

    def _overtaken(self, part: Checked, error: IdNotAbove) -> Checked:
        """Begin a new run after the rows that are in; return those that are not."""
        if not self._append:
            raise UsageError(overtaken_text(self._stream, str(error))) from error
        self._close_sender()
        done = self._rows_there()
        sent_before = self._sent - part.rows.num_rows
        self._digest = self._marker.digest_at(done)
        base = self._marker.state(done)
        self._settled += done
        self._unconfirmed.clear()
        self._open_run(base, self._marker.batch + 1)
        last = self._link.last_id(self._stream) or (0, 0)
        self._ids = Ids(*last, self._ids.moved, self._ids.untimed)
        return part.slice(done - sent_before, part.rows.num_rows)

    def finish(self, named: bool) -> None:
        """Wait until all rows are confirmed, and note that the file was loaded to its end."""
        if self._earlier is not None:
            raise UsageError(changed(self._job.file, self._earlier))
        assert self._sender is not None
        with defer_interrupts():
            self._confirm(self._sender.finish())
        self.report.seconds = time.monotonic() - self._started
        self.report.ended = True
        self._tell(self.report)
        if not named:
            self._link.client.delete(self._key)
        elif self.report.loaded:
            done = replace(self._marker.state(self._sent), done=True)
            self._link.client.set(self._key, done.encoded(), px=self._marker.life_ms)

    def broken_off(self, stop: BaseException) -> None:
        """Find out how many rows are in the stream, after an error or Ctrl-C."""
        if self._sender is None:
            return
        settled = False
        try:
            with defer_interrupts():
                if isinstance(stop, KeyboardInterrupt | UsageError) and not self._sending:
                    with suppress(HeadraceError):
                        self._confirm(self._sender.finish())
                        settled = True
                if not settled:
                    self._close_sender()  # what was not yet executed is dropped with the connection
                    self._confirm(self._rows_there())
                settled = True
        except (HeadraceError, RedisError, OSError, KeyboardInterrupt):
            self.report.uncertain = not settled and self._sent + self._settled > self.report.rows
        self.report.seconds = time.monotonic() - self._started
        self._tell(self.report)

    def _rows_there(self) -> int:
        """Return how many rows of this run the server has."""
        state = self._state()
        return state.run_rows if state is not None and state.run == self._marker.batch else 0

    def _close_sender(self) -> None:
        if self._sender is not None:
            self._sender.close()

    def close(self) -> None:
        """Close the connections."""
        self._close_sender()


def cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of so many at most, and of BATCH_BYTES at most on average."""
    share = BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)
    step = max(1, min(rows, share))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def taken(stream: str, last: tuple[int, int], first: str) -> str:
    """Return why the rows cannot simply be added, and what the choices are."""
    return (
        f"stream {stream!r} already has entries up to {last[0]}-{last[1]}, and the first row would be "
        f"{first}; choose --append to put the rows after them, --new-ids to have the server generate the "
        "IDs, or another --stream"
    )


def overtaken_text(stream: str, error: str) -> str:
    """Return what to do when others have added later entries while a load went on."""
    return (
        f"{error.partition('. ')[0]}. Others have added later entries to stream {stream!r} meanwhile: "
        "--append --resume puts the remaining rows after them"
    )


def incomplete(stream: str, state: LoadState) -> str:
    """Return what the choices are when a load that broke off is begun again."""
    return (
        f"an earlier load of {state.file or 'this file'} into stream {stream!r} broke off after "
        f"{state.rows:,} rows; choose --resume to add the other rows, or --append to add all rows again "
        "after them"
    )


def changed(file: str, state: LoadState) -> str:
    """Return why a file cannot be resumed."""
    return (
        f"the first {state.rows:,} rows of {file or 'the file'} are not those that were loaded: the file has "
        "changed, or it is read with other options. --append adds all its rows after the entries that are "
        "there"
    )
