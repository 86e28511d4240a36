"""ID ranges into even tasks, and limits into offsets, without scanning what will be read.

Redis cannot say which entry is the n-th. But a probe, XRANGE p upto COUNT 32, tells how dense the entries
lie around p, and a window of 32 that runs past the next probe has counted its stretch exactly:

    first                                                                last
      |x-x-x-x-- -- -- --|x--- ---- ---- ---|xxxxxxxxxxxxxxxx---|x   x   |     x: seen by a probe
      '-- 16 of 40 ------'- gap: 4, exactly -'-- much: probe again ------'

Stretches that turn out heavy are probed again, twice at most. Cuts are then laid at equal shares and moved to
the entry before them, for a task begins by finding its anchor, the last entry of the task before it: if that
is gone, entries were trimmed. For the same entries the cuts are the same, so a micro-batch that is run again
has the same tasks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.spark.offsets import START, Id, Offsets, in_order, parse_id
from headrace.spark.options import Options
from headrace.spark.page_scanner import PageScanner
from headrace.spark.shards import Wire

if TYPE_CHECKING:
    import redis

WINDOW = 32  # entries a probe asks for
ROUNDS = 3  # of probes, the first included
WORTH_SPLITTING = 50_000  # entries a task should at least have when nobody asked for a number of tasks
SCAN_PAGE = 10_000
SEQ_MAX = (1 << 64) - 1


@dataclass(frozen=True)
class Range:
    """A task: the entries of stream after `after`, up to and including `upto`.

    anchored: `after` was an entry when this was planned, so it should still be there.
    """

    stream: str
    after: str
    upto: str
    anchored: bool


@dataclass(frozen=True)
class Stretch:
    """About mass entries from the place low up to, not including, high. A place is an ID as one number."""

    low: int
    high: int
    mass: float
    exact: bool


def place(entry_id: Id) -> int:
    """An ID as one number, so that one can interpolate."""
    return entry_id[0] << 64 | entry_id[1]


def plan(client: redis.Redis, start: Offsets, end: Offsets, options: Options) -> list[Range]:
    """The tasks that read from start to end, every entry once. Streams without news have none."""
    news = [s for s in end if parse_id(end[s]) > parse_id(start.get(s, START))]
    chosen = options.starting_offsets if isinstance(options.starting_offsets, dict) else {}
    surveys = {s: survey(client, s, start.get(s, START), end[s], _few(client, s, options)) for s in news}
    shares = _shares({s: _mass(surveys[s]) for s in news}, options)
    ranges = []
    for stream in news:
        after = start.get(stream, START)
        anchored = after != START and after != chosen.get(stream)
        cuts = cut(client, stream, surveys[stream], shares[stream])
        for upto in [*cuts, end[stream]]:
            ranges.append(Range(stream, after, upto, anchored))
            after, anchored = upto, True
    return ranges


def _few(client: redis.Redis, stream: str, options: Options) -> int:
    """How many probes to begin with: none for a stream too short to be split unasked."""
    if options.min_partitions or options.max_records_per_partition:
        return 4 * (options.min_partitions or 4)
    return 4 * (os.cpu_count() or 1) if int(client.xlen(stream)) >= 2 * WORTH_SPLITTING else 0


def _mass(stretches: list[Stretch]) -> float:
    return sum(stretch.mass for stretch in stretches)


def _shares(masses: dict[str, float], options: Options) -> dict[str, int]:
    """How many tasks each stream gets."""
    total = sum(masses.values()) or 1.0
    tasks = options.min_partitions or min(os.cpu_count() or 1, int(total / WORTH_SPLITTING))
    shares = {s: max(1, round(tasks * mass / total)) for s, mass in masses.items()}
    most = options.max_records_per_partition
    if most:
        shares = {s: max(n, math.ceil(masses[s] / most)) for s, n in shares.items()}
    return shares


def survey(client: redis.Redis, stream: str, after: str, upto: str, probes: int) -> list[Stretch]:
    """How the entries of a range are spread: stretches in order, without a gap; none if it is empty."""
    pipe = client.pipeline(transaction=False)
    pipe.xrange(stream, f"({after}", upto, 1)
    pipe.xrevrange(stream, upto, f"({after}", 1)
    first, last = pipe.execute()
    if not first or not last:
        return []
    low, high = place(_id(first[0])), place(_id(last[0])) + 1
    if probes == 0:
        return [Stretch(low, high, 1.0, False)]
    stretches = _probe(client, stream, _points(low, high, probes), high)
    for _ in range(ROUNDS - 1):
        heavy = _mass(stretches) / probes
        again = [s for s in stretches if not s.exact and s.mass > heavy]
        if not again:
            break
        points = {p for s in again for p in _points(s.low, s.high, 4)}
        bounds = {s.low: s for s in again}
        kept = [s for s in stretches if s.low not in bounds]
        for old in again:
            inside = sorted(p for p in points if old.low <= p < old.high)
            kept += _probe(client, stream, inside, old.high)
        stretches = sorted(kept, key=lambda s: s.low)
    return stretches


def _name(number: int) -> str:
    """The ID at a place, as Redis writes it."""
    return f"{number >> 64}-{number & SEQ_MAX}"


def _points(low: int, high: int, n: int) -> list[int]:
    """n places from low on, evenly spaced, fewer if there are not so many."""
    return sorted({low + (high - low) * i // n for i in range(n)})


def _id(entry: Any) -> Id:
    return parse_id(entry[0].decode())


def _probe(client: redis.Redis, stream: str, points: list[int], end: int) -> list[Stretch]:
    """Probe at each point, and at the end of each stretch not yet counted: two round trips."""
    pipe = client.pipeline(transaction=False)
    upto = _name(end - 1)
    for point in points:
        pipe.xrange(stream, _name(point), upto, WINDOW)
    stretches = []
    full = []
    for low, high, entries in zip(points, [*points[1:], end], pipe.execute(), strict=True):
        head = [p for e in entries if (p := place(_id(e))) < high]
        if len(head) < WINDOW:
            stretches.append(Stretch(low, high, len(head), True))
        else:
            full.append((low, high, head))
    for low, high, head in full:
        ms = head[0] >> 64
        pipe.xrevrange(stream, _name(high - 1), _name(low), WINDOW)
        pipe.xrevrange(stream, f"{ms}-{SEQ_MAX}", f"{ms}-0", 1)
    answers = iter(pipe.execute())
    for low, high, head in full:
        tail = [place(_id(e)) for e in next(answers)] or head[::-1]  # trimmed this moment: any guess will do
        last_of_ms = max((place(_id(e)) for e in next(answers)), default=head[-1])
        stretches += _measure(low, high, head, tail[::-1], last_of_ms)
    return sorted(stretches, key=lambda s: s.low)


def _measure(low: int, high: int, head: list[int], tail: list[int], last_of_ms: int) -> list[Stretch]:
    """What the windows at its two ends tell: where the entries of a stretch begin and end, and how dense.

    A window full of one millisecond says nothing about time: that millisecond is set apart, and its entries
    are counted by their sequence numbers, which mostly run without a gap.
    """
    first, last = head[0], tail[-1]
    spacings = [(window[-1] - window[0]) / (WINDOW - 1) for window in (head, tail)]
    parts = [Stretch(low, first, 0, True), Stretch(last + 1, high, 0, True)]
    if first >> 64 != last >> 64:
        if head[0] >> 64 == head[-1] >> 64:
            parts.append(Stretch(first, last_of_ms + 1, last_of_ms - first + 1, False))
            first = last_of_ms + 1
            spacings[0] = spacings[1]
        if tail[0] >> 64 == tail[-1] >> 64:
            begin = max(first, last >> 64 << 64)
            parts.append(Stretch(begin, last + 1, last + 1 - begin, False))
            last = begin - 1
            spacings[1] = spacings[0] if head[0] >> 64 != head[-1] >> 64 else 1 << 64
            spacings[0] = spacings[1]
    parts.append(Stretch(first, last + 1, 2 * (last + 1 - first) / sum(spacings), False))
    return [part for part in parts if part.low < part.high]


def cut(client: redis.Redis, stream: str, stretches: list[Stretch], parts: int) -> list[str]:
    """At most parts - 1 IDs of entries that cut the stretches into even parts, in order; each ends a part."""
    if parts < 2 or not stretches:
        return []
    share = _mass(stretches) / parts
    pipe = client.pipeline(transaction=False)
    first = _name(stretches[0].low)
    passed = 0.0
    wanted = 1
    for stretch in stretches:
        while wanted < parts and share * wanted <= passed + stretch.mass:
            inside = (share * wanted - passed) / stretch.mass if stretch.mass else 0.0
            at = stretch.low + int((stretch.high - stretch.low) * min(inside, 1.0))
            pipe.xrevrange(stream, _name(max(at - 1, stretches[0].low)), first, 1)
            wanted += 1
        passed += stretch.mass
    found = {place(_id(entries[0])) for entries in pipe.execute() if entries}
    return [_name(p) for p in sorted(found) if p < stretches[-1].high - 1]


def limited(client: redis.Redis, start: Offsets, end: Offsets, most: int, options: Options) -> Offsets:
    """The offsets at most `most` entries after start and not past end, shared by backlog. Counts exactly."""
    news = [s for s in end if parse_id(end[s]) > parse_id(start.get(s, START))]
    pipe = client.pipeline(transaction=False)
    for stream in news:
        pipe.xlen(stream)
    lengths = dict(zip(news, pipe.execute(), strict=True))
    if sum(lengths.values()) <= most:
        return end
    backlog = lengths
    if len(news) > 1:
        backlog = {s: _mass(survey(client, s, start.get(s, START), end[s], 8)) for s in news}
    cut_down = dict(end)
    for stream, quota in quotas(backlog, most).items():
        after = start.get(stream, START)
        cut_down[stream] = nth_id(options.url, stream, after, end[stream], quota)
    return in_order({s: i for s, i in cut_down.items() if s in start or i != START})


def quotas(backlog: dict[str, float], most: int) -> dict[str, int]:
    """most entries shared in proportion to the backlogs; the largest remainders get what is left over."""
    total = sum(backlog.values())
    if not total:
        return dict.fromkeys(backlog, 0)
    exact = {s: most * mass / total for s, mass in backlog.items()}
    shares = {s: int(part) for s, part in exact.items()}
    left = most - sum(shares.values())
    by_remainder: Iterable[str] = sorted(exact, key=lambda s: (shares[s] - exact[s], s))
    for stream in list(by_remainder)[:left]:
        shares[stream] += 1
    return shares


def nth_id(url: str, stream: str, after: str, upto: str, n: int) -> str:
    """The ID of the n-th entry after `after`, or upto if that comes first. Reads, but decodes nothing."""
    if n == 0:
        return after
    scanner = PageScanner()
    buffer = bytearray(1 << 18)
    left = n
    wire = Wire(url)
    try:
        while True:
            asked = min(left, SCAN_PAGE)
            wire.send(b"XRANGE", stream.encode(), b"(" + after.encode(), upto.encode(), b"COUNT", asked)
            scanner.page(b"")
            whole = False
            while not whole:
                scanner.feed(buffer, wire.receive(buffer))
                whole = scanner.scan()
                scanner.skip()
            if scanner.entries < asked:
                return upto
            after = scanner.last_id.decode()
            left -= asked
            if left == 0:
                return after
    finally:
        wire.close()
