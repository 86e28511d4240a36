"""Split ID ranges into even tasks without scanning the entries, and find the ID of the n-th entry.

Redis cannot return the n-th entry. But a probe, XRANGE p upto COUNT 32, shows how dense the entries around p
are. If the 32 entries extend past the next probe, the range between the two is counted exactly:

    first                                                                last
      |x-x-x-x-- -- -- --|x--- ---- ---- ---|xxxxxxxxxxxxxxxx---|x   x   |     x: returned by a probe
      '-- 16 of 40 ------'- gap: 4, exactly -'-- dense: probe again -----'

Dense ranges are probed again, at most twice. Then the range is split at equal shares. Each split point moves
to the entry before it, because a task begins with its anchor, the last entry of the task before it: if that
is missing, entries were trimmed. The same entries give the same split points, so a repeated micro-batch has
the same tasks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.client.connection import RawConnection
from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.errors import CommandError
from headrace.positions.entry_ids import START, EntryId, parse_id
from headrace.positions.offsets import Offsets, is_timestamp_offset
from headrace.positions.position import Position
from headrace.positions.stream_state import StreamReadError
from headrace.spark.decode.page_tokenizer import ReplyPageTokenizer
from headrace.spark.options import Options
from headrace.spark.source.adaptive_count import AdaptiveCount

PROBE_ENTRIES_MAX = 32  # entries that a probe asks for; fewer if they are large
PROBES_BYTES = 32 << 20  # maximum size of the replies to all probes of a stream
LARGE_ENTRY_BYTES = PROBES_BYTES // (4 * PROBE_ENTRIES_MAX)  # a stream of entries of this size is never long
PROBE_ROUNDS = 3  # maximum rounds of probes
TASK_ENTRIES_MIN = 50_000  # minimum entries of a task unless minPartitions is given
SCAN_PAGE_ENTRIES = 10_000
SEQ_MAX = (1 << 64) - 1

Command = tuple[str | bytes | int, ...]
T = TypeVar("T")
ProbeSteps = Generator[
    list[Command], list[Any], T
]  # yields commands about one stream, receives their replies


@dataclass(frozen=True)
class OffsetRange:
    """A task: the entries of stream after `after`, up to and including `upto`.

    upto               at most the stream's last ID, so if that is lower later, entries were lost
    anchored           whether `after` was an entry at planning time, and so must still exist
    after_number       how many entries had been added to the stream up to `after`; None if unknown
    expected_position  a position that the stream had reached at planning time; detects recreated streams
    """

    stream: str
    after: str
    upto: str
    anchored: bool
    after_number: int | None = None
    expected_position: Position | None = None


@dataclass(frozen=True)
class RangeEstimate:
    """The number of entries with IDs in [low, high); both bounds are results of id_to_int().

    exact: whether the entries were counted, not estimated.
    """

    low: int
    high: int
    entry_count: float
    exact: bool


def id_to_int(entry_id: EntryId) -> int:
    """Return an ID as one number, for interpolation."""
    return entry_id[0] << 64 | entry_id[1]


def plan_ranges(
    servers: Servers,
    start: Offsets,
    end: Offsets,
    options: Options,
    numbers: Mapping[str, int] | None = None,
    chosen_starts: Mapping[str, str] | None = None,
    expected_positions: Mapping[str, Position] | None = None,
) -> list[OffsetRange]:
    """Return tasks that read each entry from start to end once; none for streams without new entries.

    Args:
        chosen_starts: start IDs that options chose. They need not be entries, so they are not anchors.
        numbers: for each stream, how many entries had been added up to its start, if known. With it, a task
            can report how many entries are missing.
        expected_positions: positions by which a task detects that its stream was recreated.
    """
    unread = [s for s in end if parse_id(end[s]) > parse_id(start.get(s, START))]
    probes, min_entries = _probe_budget(options)
    estimates = run_in_rounds(
        servers,
        {s: range_estimate_steps(s, start.get(s, START), end[s], probes, min_entries) for s in unread},
    )
    shares = _tasks_per_stream({s: _total_entries(estimates[s]) for s in unread}, options)
    cuts = run_in_rounds(servers, {s: split_point_steps(s, estimates[s], shares[s]) for s in unread})
    ranges = []
    for stream in unread:
        after = start.get(stream, START)
        anchored = after not in (START, (chosen_starts or {}).get(stream)) and not is_timestamp_offset(after)
        number = (numbers or {}).get(stream)
        for upto in [*cuts[stream], end[stream]]:
            ranges.append(
                OffsetRange(stream, after, upto, anchored, number, (expected_positions or {}).get(stream))
            )
            after, anchored, number = upto, True, None
    return ranges


def run_in_rounds(servers: Servers, steps: Mapping[str, ProbeSteps[T]]) -> dict[str, T]:
    """Run the steps of many streams together: each round is one round trip to each server."""
    results = {}
    commands: dict[str, list[Command]] = {}

    def advance(stream: str, replies: list[Any] | None) -> None:
        try:
            work = steps[stream]
            commands[stream] = next(work) if replies is None else work.send(replies)
        except StopIteration as done:
            commands.pop(stream, None)
            results[stream] = done.value

    def enqueue(pipe: Any, stream: str) -> None:
        for command in commands[stream]:
            pipe.execute_command(*command)

    for stream in steps:
        advance(stream, None)
    while commands:
        for stream, replies in servers.request_many(list(commands), enqueue).items():
            for reply in replies:
                if isinstance(reply, Exception):
                    raise StreamReadError(stream, reply)
            advance(stream, replies)
    return results


def _probe_budget(options: Options) -> tuple[int, int]:
    """Return how many probes to begin with, and the minimum entries for which more probes are worthwhile."""
    if options.min_partitions or options.max_records_per_partition:
        return 4 * (options.min_partitions or 4), 0
    return 4 * (os.cpu_count() or 1), TASK_ENTRIES_MIN


def _total_entries(estimates: list[RangeEstimate]) -> float:
    return sum(each.entry_count for each in estimates)


def _tasks_per_stream(entry_counts: dict[str, float], options: Options) -> dict[str, int]:
    """Return the number of tasks for each stream."""
    total = sum(entry_counts.values()) or 1.0
    tasks = options.min_partitions or min(os.cpu_count() or 1, int(total / TASK_ENTRIES_MIN))
    shares = {s: max(1, round(tasks * count / total)) for s, count in entry_counts.items()}
    maximum = options.max_records_per_partition
    if maximum:
        shares = {s: max(n, math.ceil(entry_counts[s] / maximum)) for s, n in shares.items()}
    return shares


def range_estimate_steps(
    stream: str, after: str, upto: str, probes: int, min_entries: int = 0
) -> ProbeSteps[list[RangeEstimate]]:
    """Estimate how the entries of a range are distributed; yields commands, and is sent their replies.

    It reads only the range itself. So a plan that is repeated after entries were added or trimmed outside of
    the range has the same tasks.

    Args:
        stream: the stream.
        after: the ID after which the range begins.
        upto: its last ID.
        probes: into how many equal pieces to divide the range in the first round; fewer if entries are large.
            Some entries at both ends of each are read.
        min_entries: end after the first round if the estimate is below this number.

    Returns:
        Adjacent ranges in order; an empty list if the range has no entry.
    """
    first, last = yield [
        ("XRANGE", stream_key(stream), f"({after}", upto, "COUNT", 1),
        ("XREVRANGE", stream_key(stream), upto, f"({after}", "COUNT", 1),
    ]
    if not first or not last:
        return []
    low, high = id_to_int(_entry_id(first[0])), id_to_int(_entry_id(last[0])) + 1
    entry_bytes = max(_entry_bytes(first[0]), _entry_bytes(last[0]), 1)
    if high - low == 1 or (min_entries and entry_bytes > LARGE_ENTRY_BYTES):
        return [RangeEstimate(low, high, 1.0, False)]
    window = max(2, min(PROBE_ENTRIES_MAX, PROBES_BYTES // (probes * entry_bytes)))
    probes = max(4, min(probes, PROBES_BYTES // (window * entry_bytes)))
    estimates = yield from _probe_steps(stream, _split_evenly(low, high, probes), window)
    for _ in range(PROBE_ROUNDS - 1):
        average = _total_entries(estimates) / probes
        again = [s for s in estimates if not s.exact and s.entry_count > average]
        if not again or _total_entries(estimates) < min_entries:
            break
        kept = [s for s in estimates if s.exact or s.entry_count <= average]
        pieces = [piece for s in again for piece in _split_evenly(s.low, s.high, 4)]
        estimates = sorted(kept + (yield from _probe_steps(stream, pieces, window)), key=lambda s: s.low)
    return estimates


def _int_to_id(number: int) -> str:
    """Return the ID of a number of id_to_int, as Redis writes it."""
    return f"{number >> 64}-{number & SEQ_MAX}"


def _split_evenly(low: int, high: int, n: int) -> list[tuple[int, int]]:
    """Split the numbers from low up to high into n equal pieces; fewer if there are fewer numbers."""
    points = sorted({low + (high - low) * i // n for i in range(n)})
    return list(zip(points, [*points[1:], high], strict=True))


def _entry_id(entry: Any) -> EntryId:
    return parse_id(entry[0].decode())


def _entry_bytes(entry: Any) -> int:
    """Return the bytes of an entry's fields."""
    return sum(len(name) + len(value) for name, value in entry[1].items())


def _probe_steps(stream: str, pieces: list[tuple[int, int]], window: int) -> ProbeSteps[list[RangeEstimate]]:
    """Probe the start of each piece, then the end of the pieces not counted by this: two round trips."""
    heads = yield [
        ("XRANGE", stream_key(stream), _int_to_id(low), _int_to_id(high - 1), "COUNT", window)
        for low, high in pieces
    ]
    estimates = []
    full = []
    for (low, high), entries in zip(pieces, heads, strict=True):
        if len(entries) < window:
            estimates.append(RangeEstimate(low, high, len(entries), True))
        else:
            full.append((low, high, [id_to_int(_entry_id(e)) for e in entries]))
    if not full:
        return estimates
    commands: list[Command] = []
    for low, high, head in full:
        ms = head[0] >> 64
        commands.append(
            ("XREVRANGE", stream_key(stream), _int_to_id(high - 1), _int_to_id(low), "COUNT", window)
        )
        commands.append(("XREVRANGE", stream_key(stream), f"{ms}-{SEQ_MAX}", f"{ms}-0", "COUNT", 1))
    replies = iter((yield commands))
    for low, high, head in full:
        tail = [id_to_int(_entry_id(e)) for e in next(replies)]
        if len(tail) < 2:
            tail = head[::-1]  # trimmed meanwhile: a rough estimate is enough
        last_of_ms = max((id_to_int(_entry_id(e)) for e in next(replies)), default=head[-1])
        estimates += _estimate_piece(low, high, head, tail[::-1], last_of_ms)
    return sorted(estimates, key=lambda s: s.low)


def _estimate_piece(
    low: int, high: int, head: list[int], tail: list[int], last_of_ms: int
) -> list[RangeEstimate]:
    """Estimate a piece from the windows of entries at its two ends: where its entries lie, and how dense.

    A window within one millisecond shows no density over time. That millisecond becomes a range of its own;
    its entries are counted by their sequence numbers, which mostly have no gaps.
    """
    first, last = head[0], tail[-1]
    spacings = [(window[-1] - window[0]) / (len(window) - 1) for window in (head, tail)]
    parts = [RangeEstimate(low, first, 0, True), RangeEstimate(last + 1, high, 0, True)]
    if first >> 64 != last >> 64:
        if head[0] >> 64 == head[-1] >> 64:
            parts.append(RangeEstimate(first, last_of_ms + 1, last_of_ms - first + 1, False))
            first = last_of_ms + 1
            spacings[0] = spacings[1]
        if tail[0] >> 64 == tail[-1] >> 64:
            begin = max(first, last >> 64 << 64)
            parts.append(RangeEstimate(begin, last + 1, last + 1 - begin, False))
            last = begin - 1
            spacings[1] = spacings[0] if head[0] >> 64 != head[-1] >> 64 else 1 << 64
            spacings[0] = spacings[1]
    parts.append(RangeEstimate(first, last + 1, 2 * (last + 1 - first) / sum(spacings), False))
    return [part for part in parts if part.low < part.high]


def split_point_steps(stream: str, estimates: list[RangeEstimate], parts: int) -> ProbeSteps[list[str]]:
    """Return the IDs, in order, that split the range into about even parts; at most parts - 1 IDs."""
    if parts < 2 or not estimates:
        return []
    share = _total_entries(estimates) / parts
    first = _int_to_id(estimates[0].low)
    passed = 0.0
    part = 1
    commands: list[Command] = []
    for estimate in estimates:
        while part < parts and share * part <= passed + estimate.entry_count:
            inside = (share * part - passed) / estimate.entry_count if estimate.entry_count else 0.0
            at = estimate.low + int((estimate.high - estimate.low) * min(inside, 1.0))
            before = _int_to_id(max(at - 1, estimates[0].low))
            commands.append(("XREVRANGE", stream_key(stream), before, first, "COUNT", 1))
            part += 1
        passed += estimate.entry_count
    found = {id_to_int(_entry_id(entries[0])) for entries in (yield commands) if entries}
    return [_int_to_id(p) for p in sorted(found) if p < estimates[-1].high - 1]


def nth_id(servers: Servers, stream: str, after: str, upto: str, n: int) -> str:
    """Return the ID of the n-th entry after `after`, at most upto. Receives the entries, but skips them."""
    return servers.with_retries(lambda: _nth_id(servers, stream, after, upto, n)) if n else after


def _nth_id(servers: Servers, stream: str, after: str, upto: str, left: int) -> str:
    tokenizer = ReplyPageTokenizer()
    buffer = bytearray(1 << 18)
    adaptive = AdaptiveCount(SCAN_PAGE_ENTRIES)
    connection = servers.open_raw(stream)
    try:
        while left:
            requested = min(left, adaptive.count)
            connection.send(
                b"XRANGE", stream_key(stream), b"(" + after.encode(), upto.encode(), b"COUNT", requested
            )
            adaptive.record_page(requested, _skip_page(connection, tokenizer, buffer))
            if tokenizer.entry_count < requested:
                return upto
            after = tokenizer.last_id.decode()
            left -= requested
        return after
    finally:
        connection.close()


def _skip_page(connection: RawConnection, tokenizer: ReplyPageTokenizer, buffer: bytearray) -> int:
    """Receive a page, of which only the IDs are used; return its size in bytes."""
    received = 0
    tokenizer.begin_page(b"")
    try:
        whole = False
        while not whole:
            n = connection.receive(buffer)
            received += n
            tokenizer.feed(buffer, n)
            whole = tokenizer.scan()
            tokenizer.skip_records()
    except CommandError as error:
        connection.raise_if_unavailable(error)
        raise
    return received
