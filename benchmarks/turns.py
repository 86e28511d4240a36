"""Measure the longest turn that hostile but legal requests cause: CPU time of the engine's thread.

    python -m benchmarks.turns [--only NAME,...] [--scale 1.0]

The event loop runs one request at a time, so one that works for long delays all clients. Each row fills an
engine with large data, then sends requests and lets timers run; effects are recorded as for a log. The
longest call counts. The goal is GOAL_MS for each row. --scale multiplies the sizes.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from headrace.engine.engine import Engine

GOAL_MS = 2.0
START_MS = 1_700_000_000_000
BATCH = 5_000  # entries or IDs in one request while data are prepared


class TimedEngine:
    """An engine with one client, a clock that the rows set, and the longest call so far."""

    def __init__(self, scale: float) -> None:
        self.engine = Engine()
        self.engine.set_effect_recording(True)
        self.session = self.engine.create_session()
        self.now_ms = START_MS
        self.longest_ns = 0
        self.scale = scale

    def size(self, n: int) -> int:
        """Return a size of --scale 1 as it is to be measured."""
        return max(int(n * self.scale), 1)

    def __call__(self, *words: str | bytes | int, other_client: bool = False) -> bytes:
        """Run a request and the timers that are due; return the reply's bytes."""
        session = self.engine.create_session() if other_client else self.session
        argv = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        started = time.thread_time_ns()
        self.engine.execute(session, argv, self.now_ms)
        self.engine.tick(self.now_ms)
        self.longest_ns = max(self.longest_ns, time.thread_time_ns() - started)
        self.engine.effects.take()
        self.engine.take_woken()
        reply: bytes = session.reply.take()
        assert not reply.startswith(b"-"), f"{argv[:5]}: {reply[:200]!r}"
        return reply

    def load(self, requests: Iterable[list[bytes]]) -> None:
        """Execute requests that are not measured, and drop their replies and effects."""
        for argv in requests:
            self.engine.execute(self.session, argv, self.now_ms)
        self.session.reply.take()
        self.engine.effects.take()

    def fill(self, entries: int) -> None:
        """Add entries with the IDs 1-0 and so on to the stream `s`."""
        self.load([b"XADD", b"s", b"%d-0" % number, b"f", b"v"] for number in range(1, entries + 1))

    def deliver(self, group: str, entries: int, *rules: str) -> None:
        """Deliver that many entries of `s` to the consumer `ann` of a new group with these rules."""
        self("XGROUP", "CREATE", "s", group, "0")
        if rules:
            self("XGROUP", "CFGSET", "s", group, *rules)
        for _ in range(0, entries, BATCH):
            self("XREADGROUP", "GROUP", group, "ann", "COUNT", min(BATCH, entries), "STREAMS", "s", ">")


@dataclass(frozen=True)
class Row:
    """Requests whose longest turn is measured."""

    name: str
    prepare: Callable[[TimedEngine], None]
    attack: Callable[[TimedEngine], None]


def _pending(run: TimedEngine, entries: int = 300_000, *rules: str) -> None:
    n = run.size(entries)
    run.fill(n)
    run.deliver("g", n, *rules)


def _trimmed_pending(run: TimedEngine, left: int) -> None:
    _pending(run, 200_000)
    run("XTRIM", "s", "MAXLEN", left)
    run.now_ms += 100_000


def _claimed_beside_trimmed(run: TimedEngine) -> None:
    """All entries but ten are trimmed; bob has claimed these, so that a reader has to wait."""
    _trimmed_pending(run, 10)
    for _ in range(100):
        run("XREADGROUP", "GROUP", "g", "bob", "COUNT", 10, "CLAIM", 1000, "STREAMS", "s", ">")


def _block_with_claim(run: TimedEngine) -> None:
    words = "XREADGROUP GROUP g ann BLOCK 0 CLAIM 100000 STREAMS s >"
    run(*words.split(), other_client=True)
    for _ in range(30):
        run.now_ms += 10
        run("PING")


def _many_groups(run: TimedEngine) -> None:
    run.fill(1_000)
    for number in range(run.size(2_000)):
        run.deliver(f"g{number}", 20)


def _copy_of_many_groups(run: TimedEngine) -> None:
    run.fill(1_000)
    for number in range(run.size(2_000)):
        run.deliver(f"g{number}", 20)
        run.load([[b"XACK", b"s", b"g%d" % number, *(b"%d-0" % one for one in range(1, 21))]])
    run("COPY", "s", "t")


def _backoff(run: TimedEngine) -> None:
    _pending(run, 80_000, "LEASE", "600000", "BACKOFF", "1000,60000")
    run("XREADGROUP", "GROUP", "g", "bob", "BLOCK", "0", "STREAMS", "s", ">", other_client=True)


def _one_key_of_two(run: TimedEngine) -> None:
    n = run.size(80_000)
    _pending(run, 80_000)
    for first in range(1, n // 2, 1000):
        run("XCLAIM", "s", "g", "bob", "0", *(f"{number}-0" for number in range(first, first + 1000)))
    run("XGROUP", "CFGSET", "s", "g", "LEASE", "600000", "ORDERED-BY", "f")
    for _ in range(0, n, 100):  # the first reads read the values
        run("XREADGROUP", "GROUP", "g", "carl", "STREAMS", "s", ">")
    assert run.engine.keyspace.databases[0].stream(b"s").group(b"g").pending.key_order.are_values_read


def _ruled_streams(run: TimedEngine) -> None:
    for number in range(run.size(3_000)):
        run("XADD", f"s{number}", "1-0", "f", "v")
        run("XGROUP", "CREATE", f"s{number}", "g", "0")
        run("XGROUP", "CFGSET", f"s{number}", "g", "LEASE", "60000", "MAX-DELIVERIES", "5")


def _swaps(run: TimedEngine) -> None:
    run("MULTI")
    for _ in range(run.size(1_500)):
        run("SWAPDB", 0, 1)
    run("EXEC")


def _ruled_groups(run: TimedEngine) -> None:
    run.fill(1)
    for number in range(run.size(8_000)):
        run("XGROUP", "CREATE", "s", f"g{number}", "0")
        run("XGROUP", "CFGSET", "s", f"g{number}", "LEASE", "60000", "MAX-DELIVERIES", "5")


def _ruled_groups_with_reader(run: TimedEngine) -> None:
    """A client waits for the second of thousands of groups; an entry is pending in the first one."""
    _ruled_groups(run)
    run("XREADGROUP", "GROUP", "g0", "ann", "STREAMS", "s", ">")
    run("XREADGROUP", "GROUP", "g1", "ann", "STREAMS", "s", ">")
    words = "XREADGROUP GROUP g1 ann BLOCK 0 STREAMS s >"
    run(*words.split(), other_client=True)
    run.now_ms += 1_000
    run("PING")


def _expiring_strings(run: TimedEngine) -> None:
    for number in range(run.size(1_000_000)):
        run.load([[b"SET", b"key:%d" % number, b"v", b"PX", b"10000000"]])


def _renew(run: TimedEngine) -> None:
    for number in range(run.size(1_000_000)):
        run("SET", b"key:%d" % number, "v", "PX", "20000000")


def _keep_unacked(run: TimedEngine) -> None:
    run.fill(1_000)
    for number in range(run.size(1_000)):
        run("XGROUP", "CREATE", "s", f"g{number}", "$")
    run("XCFGSET", "s", "MAX-LEN", "1000", "EXACT", "1", "KEEP-UNACKED", "1")


def _drop_acked(run: TimedEngine) -> None:
    """Half of the entries are acknowledged by all of 20 groups, when the rule is set."""
    n = run.size(20_000)
    run.fill(n)
    for number in range(20):
        run.deliver(f"g{number}", n)
        for first in range(1, n, 1_000):
            ids = (b"%d-0" % one for one in range(first, first + 1_000, 2))
            run.load([[b"XACK", b"s", b"g%d" % number, *ids]])


def _sweep(run: TimedEngine) -> None:
    run("XCFGSET", "s", "DROP-ACKED", "1")
    for _ in range(100):
        run.now_ms += 1
        run("PING")


def _strings_in_bgsave(run: TimedEngine) -> None:
    _strings(run)
    run.engine.keyspace.freeze(run.now_ms)


def _strings(run: TimedEngine) -> None:
    run.load([b"SET", b"key:%d" % number, b"v"] for number in range(run.size(1_000_000)))


def _consumers(run: TimedEngine) -> None:
    run.fill(10)
    run("XGROUP", "CREATE", "s", "g", "0")
    for number in range(run.size(100_000)):
        run("XGROUP", "CREATECONSUMER", "s", "g", f"c{number}")
    run.engine.keyspace.freeze(run.now_ms)


def _claims(run: TimedEngine) -> None:
    for number in range(1, 100):
        run(
            "XCLAIM", "s", "g", "carl", "0", f"{number * 7}-0", "TIME", run.now_ms - number, "RETRYCOUNT", "2"
        )


def _grow(run: TimedEngine) -> None:
    for number in range(run.size(800_000)):
        run("SET", f"key:{number}", "v")


def _requests(*lines: str) -> Callable[[TimedEngine], None]:
    def attack(run: TimedEngine) -> None:
        for line in lines:
            run(*line.split())

    return attack


_claim_idle = _requests("XREADGROUP GROUP g bob COUNT 10 CLAIM 1000 STREAMS s >")
ROWS = [
    Row("XREADGROUP CLAIM, all entries trimmed", lambda run: _trimmed_pending(run, 0), _claim_idle),
    Row("XREADGROUP CLAIM, all but ten entries trimmed", lambda run: _trimmed_pending(run, 10), _claim_idle),
    Row("XREADGROUP CLAIM BLOCK, all but ten entries trimmed", _claimed_beside_trimmed, _block_with_claim),
    Row("XPENDING IDLE, none idle", _pending, _requests("XPENDING s g IDLE 9999999 - + 10")),
    Row("XAUTOCLAIM, none idle", _pending, _requests("XAUTOCLAIM s g bob 9999999 0 COUNT 1000")),
    Row("XCLAIM TIME beside a waiting reader, BACKOFF", _backoff, _claims),
    Row(
        "XACK, ORDERED-BY, one value of two consumers",
        _one_key_of_two,
        _requests("XACK s g 1-0", "XACK s g 2-0"),
    ),
    Row(
        "XGROUP CFGSET, thousands of streams with rules",
        _ruled_streams,
        _requests("XGROUP CFGSET s1 g MAX-DELIVERIES 4"),
    ),
    Row(
        "XGROUP CFGSET, thousands of groups with rules",
        _ruled_groups,
        _requests("XGROUP CFGSET s g1 MAX-DELIVERIES 4", "XGROUP DESTROY s g2"),
    ),
    Row(
        "XACK beside a waiting reader, thousands of groups with rules",
        _ruled_groups_with_reader,
        _requests("XACK s g0 1-0"),
    ),
    Row("SWAPDB 1,500 times in EXEC, 3,000 streams with rules", _ruled_streams, _swaps),
    Row(
        "XTRIM DELREF of 100 entries after COPY, 2,000 groups",
        _copy_of_many_groups,
        _requests("XTRIM t MAXLEN 900 DELREF"),
    ),
    Row("XTRIM DELREF of 100 entries, 2,000 groups", _many_groups, _requests("XTRIM s MAXLEN 900 DELREF")),
    Row("XADD at the limit, KEEP-UNACKED, 1,000 groups", _keep_unacked, _requests("XADD s 2000-0 f v")),
    Row("XCFGSET DROP-ACKED, 20 groups", _drop_acked, _sweep),
    Row(
        "SET after the start of BGSAVE, a million strings",
        _strings_in_bgsave,
        _requests("SET new v", "DEL key:1"),
    ),
    Row("XADD after the start of BGSAVE, 100,000 consumers", _consumers, _requests("XADD s 2000-0 f v")),
    Row("SET of new keys, up to 800,000", lambda run: None, _grow),
    Row("SET PX of a million keys that expire already", _expiring_strings, _renew),
    Row("FLUSHALL ASYNC of a million strings", _strings, _requests("FLUSHALL ASYNC")),
    Row("DEL of a stream of 300,000 pending entries", _pending, _requests("DEL s")),
]


def measure(rows: list[Row], scale: float) -> Iterator[tuple[str, float]]:
    """Yield the name of each row and its longest turn in milliseconds."""
    for row in rows:
        run = TimedEngine(scale)
        row.prepare(run)
        gc.collect()
        gc.freeze()
        run.longest_ns = 0
        row.attack(run)
        yield row.name, run.longest_ns / 1e6
        del run
        gc.unfreeze()
        gc.collect()


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.turns", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default="", help="rows whose names begin so, separated by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the sizes")
    given = parser.parse_args()
    wanted = tuple(given.only.split(",")) if given.only else ("",)
    table = Table("longest turn, CPU time of the engine's thread", "ms", "")
    for name, ms in measure([row for row in ROWS if row.name.startswith(wanted)], given.scale):
        table.add_row(name, f"{ms:.2f}", "" if ms <= GOAL_MS else f"above {GOAL_MS:g}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
