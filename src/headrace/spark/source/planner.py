"""ID ranges into even tasks, without scanning what will be read; and the ID of the n-th entry.

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
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.errors import CommandError
from headrace.spark.decode.page_scanner import PageScanner
from headrace.spark.options import Options
from headrace.spark.servers import Servers, StreamRefused, Wire
from headrace.spark.source.adaptive_count import PageSize
from headrace.spark.source.offsets import START, Id, Offsets, is_time, parse_id
from headrace.spark.source.positions import Position
from headrace.spark.stream_names import key

WINDOW = 32  # entries a probe asks for, unless they are so large that
PROBES_BYTES = 32 << 20  # the answers to all probes of a stream would be larger than this
LARGE = PROBES_BYTES // (4 * WINDOW)  # streams of entries like this are never long
ROUNDS = 3  # of probes, the first included
WORTH_SPLITTING = 50_000  # entries a task should at least have when nobody asked for a number of tasks
SCAN_PAGE = 10_000
SEQ_MAX = (1 << 64) - 1

Command = tuple[str | bytes | int, ...]
T = TypeVar("T")
Questions = Generator[list[Command], list[Any], T]  # yields commands about one stream, is sent their answers


@dataclass(frozen=True)
class Range:
    """A task: the entries of stream after `after`, up to and including `upto`.

    upto: not past the last ID that the stream has given, so if that is smaller later, entries were lost.
    anchored: `after` was an entry when this was planned, so it should still be there.
    number: how many entries the stream had been given up to `after`, if that is known.
    seen: a position up to which the stream had come when this was planned: it must be the same stream still.
    """

    stream: str
    after: str
    upto: str
    anchored: bool
    number: int | None = None
    seen: Position | None = None


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


def plan(
    servers: Servers,
    start: Offsets,
    end: Offsets,
    options: Options,
    numbers: Mapping[str, int] | None = None,
    chosen: Mapping[str, str] | None = None,
    seen: Mapping[str, Position] | None = None,
) -> list[Range]:
    """The tasks that read from start to end, every entry once. Streams without news have none.

    chosen: starts that somebody chose, which need be no entry's IDs and so are no anchors. numbers: of the
    streams for which it is known, how many entries they had been given up to start (stream_state.py tells it
    of last IDs). A task that misses entries can then say how many. seen: positions by which a task recognizes
    that the stream was recreated.
    """
    news = [s for s in end if parse_id(end[s]) > parse_id(start.get(s, START))]
    probes, least = _pains(options)
    surveys = together(servers, {s: survey(s, start.get(s, START), end[s], probes, least) for s in news})
    shares = _shares({s: _mass(surveys[s]) for s in news}, options)
    cuts = together(servers, {s: cut(s, surveys[s], shares[s]) for s in news})
    ranges = []
    for stream in news:
        after = start.get(stream, START)
        anchored = after not in (START, (chosen or {}).get(stream)) and not is_time(after)
        number = (numbers or {}).get(stream)
        for upto in [*cuts[stream], end[stream]]:
            ranges.append(Range(stream, after, upto, anchored, number, (seen or {}).get(stream)))
            after, anchored, number = upto, True, None
    return ranges


def together(servers: Servers, questions: Mapping[str, Questions[T]]) -> dict[str, T]:
    """Ask about many streams at once: a round trip a shard for each round, not for each stream."""
    results = {}
    commands: dict[str, list[Command]] = {}

    def advance(stream: str, answers: list[Any] | None) -> None:
        try:
            work = questions[stream]
            commands[stream] = next(work) if answers is None else work.send(answers)
        except StopIteration as done:
            commands.pop(stream, None)
            results[stream] = done.value

    def put(pipe: Any, stream: str) -> None:
        for command in commands[stream]:
            pipe.execute_command(*command)

    for stream in questions:
        advance(stream, None)
    while commands:
        for stream, answers in servers.ask_each(list(commands), put).items():
            for answer in answers:
                if isinstance(answer, Exception):
                    raise StreamRefused(stream, answer)
            advance(stream, answers)
    return results


def _pains(options: Options) -> tuple[int, int]:
    """How many probes to begin with, and how few entries are not worth any more than these."""
    if options.min_partitions or options.max_records_per_partition:
        return 4 * (options.min_partitions or 4), 0
    return 4 * (os.cpu_count() or 1), WORTH_SPLITTING


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


def survey(stream: str, after: str, upto: str, probes: int, least: int = 0) -> Questions[list[Stretch]]:
    """How the entries of a range are spread: stretches in order, without a gap; none if it is empty.

    probes: how many to begin with. least: no more if they tell of fewer entries than this. Nothing but the
    range itself is looked at, so what comes later, or is trimmed before it, makes no other tasks of it.
    """
    first, last = yield [
        ("XRANGE", key(stream), f"({after}", upto, "COUNT", 1),
        ("XREVRANGE", key(stream), upto, f"({after}", "COUNT", 1),
    ]
    if not first or not last:
        return []
    low, high = place(_id(first[0])), place(_id(last[0])) + 1
    size = max(_size(first[0]), _size(last[0]), 1)
    if high - low == 1 or (least and size > LARGE):
        return [Stretch(low, high, 1.0, False)]
    window = max(2, min(WINDOW, PROBES_BYTES // (probes * size)))
    probes = max(4, min(probes, PROBES_BYTES // (window * size)))
    stretches = yield from _probe(stream, _pieces(low, high, probes), window)
    for _ in range(ROUNDS - 1):
        heavy = _mass(stretches) / probes
        again = [s for s in stretches if not s.exact and s.mass > heavy]
        if not again or _mass(stretches) < least:
            break
        kept = [s for s in stretches if s.exact or s.mass <= heavy]
        pieces = [piece for s in again for piece in _pieces(s.low, s.high, 4)]
        stretches = sorted(kept + (yield from _probe(stream, pieces, window)), key=lambda s: s.low)
    return stretches


def _name(number: int) -> str:
    """The ID at a place, as Redis writes it."""
    return f"{number >> 64}-{number & SEQ_MAX}"


def _pieces(low: int, high: int, n: int) -> list[tuple[int, int]]:
    """The places from low up to high in n equal pieces, fewer if there are not so many."""
    points = sorted({low + (high - low) * i // n for i in range(n)})
    return list(zip(points, [*points[1:], high], strict=True))


def _id(entry: Any) -> Id:
    return parse_id(entry[0].decode())


def _size(entry: Any) -> int:
    """How many bytes the fields of an entry have."""
    return sum(len(name) + len(value) for name, value in entry[1].items())


def _probe(stream: str, pieces: list[tuple[int, int]], window: int) -> Questions[list[Stretch]]:
    """Probe at the begin of each piece, and at the end of those that this does not count: two round trips."""
    heads = yield [
        ("XRANGE", key(stream), _name(low), _name(high - 1), "COUNT", window) for low, high in pieces
    ]
    stretches = []
    full = []
    for (low, high), entries in zip(pieces, heads, strict=True):
        if len(entries) < window:
            stretches.append(Stretch(low, high, len(entries), True))
        else:
            full.append((low, high, [place(_id(e)) for e in entries]))
    if not full:
        return stretches
    questions: list[Command] = []
    for low, high, head in full:
        ms = head[0] >> 64
        questions.append(("XREVRANGE", key(stream), _name(high - 1), _name(low), "COUNT", window))
        questions.append(("XREVRANGE", key(stream), f"{ms}-{SEQ_MAX}", f"{ms}-0", "COUNT", 1))
    answers = iter((yield questions))
    for low, high, head in full:
        tail = [place(_id(e)) for e in next(answers)]
        if len(tail) < 2:
            tail = head[::-1]  # trimmed this moment: any guess will do
        last_of_ms = max((place(_id(e)) for e in next(answers)), default=head[-1])
        stretches += _measure(low, high, head, tail[::-1], last_of_ms)
    return sorted(stretches, key=lambda s: s.low)


def _measure(low: int, high: int, head: list[int], tail: list[int], last_of_ms: int) -> list[Stretch]:
    """What the windows at its two ends tell: where the entries of a stretch begin and end, and how dense.

    A window full of one millisecond says nothing about time: that millisecond is set apart, and its entries
    are counted by their sequence numbers, which mostly run without a gap.
    """
    first, last = head[0], tail[-1]
    spacings = [(window[-1] - window[0]) / (len(window) - 1) for window in (head, tail)]
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


def cut(stream: str, stretches: list[Stretch], parts: int) -> Questions[list[str]]:
    """At most parts - 1 IDs of entries that cut the stretches into even parts, in order; each ends a part."""
    if parts < 2 or not stretches:
        return []
    share = _mass(stretches) / parts
    first = _name(stretches[0].low)
    passed = 0.0
    wanted = 1
    questions: list[Command] = []
    for stretch in stretches:
        while wanted < parts and share * wanted <= passed + stretch.mass:
            inside = (share * wanted - passed) / stretch.mass if stretch.mass else 0.0
            at = stretch.low + int((stretch.high - stretch.low) * min(inside, 1.0))
            before = _name(max(at - 1, stretches[0].low))
            questions.append(("XREVRANGE", key(stream), before, first, "COUNT", 1))
            wanted += 1
        passed += stretch.mass
    found = {place(_id(entries[0])) for entries in (yield questions) if entries}
    return [_name(p) for p in sorted(found) if p < stretches[-1].high - 1]


def nth_id(servers: Servers, stream: str, after: str, upto: str, n: int) -> str:
    """The ID of the n-th entry after `after`, or upto if that comes first. Reads, but decodes nothing."""
    return servers.patiently(lambda: _nth_id(servers, stream, after, upto, n)) if n else after


def _nth_id(servers: Servers, stream: str, after: str, upto: str, left: int) -> str:
    scanner = PageScanner()
    buffer = bytearray(1 << 18)
    size = PageSize(SCAN_PAGE)
    wire = servers.wire(stream)
    try:
        while left:
            asked = min(left, size.entries)
            wire.send(b"XRANGE", key(stream), b"(" + after.encode(), upto.encode(), b"COUNT", asked)
            size.learn(asked, _skip_page(wire, scanner, buffer))
            if scanner.entries < asked:
                return upto
            after = scanner.last_id.decode()
            left -= asked
        return after
    finally:
        wire.close()


def _skip_page(wire: Wire, scanner: PageScanner, buffer: bytearray) -> int:
    """Receive a page for the sake of its IDs; how many bytes it had."""
    received = 0
    scanner.page(b"")
    try:
        whole = False
        while not whole:
            n = wire.receive(buffer)
            received += n
            scanner.feed(buffer, n)
            whole = scanner.scan()
            scanner.skip()
    except CommandError as refused:
        wire.moved(refused)
        raise
    return received
