"""A snapshot that is written while commands go on equals one that was written at once when it began."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from headrace.engine.engine import Engine
from headrace.keyspace import key_table, lazy_free
from headrace.keyspace.eviction import STREAM_OLDEST
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.rdb.encoder import RdbEncoder
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.versions import VERSIONS, RdbVersion
from headrace.persistence.rdb.writer import rdb_steps, write_rdb
from support.all_commands import START_MS, History

TRAILER_BYTES = 8


def at_once(keyspace: Keyspace, version: RdbVersion, now_ms: int) -> bytes:
    """What SAVE would write now."""
    pieces: list[bytes] = []
    write_rdb(keyspace, pieces.append, version=version, now_ms=now_ms)
    return b"".join(pieces)[:-TRAILER_BYTES]


class Walk:
    """A snapshot that is being written, and what it must become."""

    def __init__(
        self, keyspace: Keyspace, version: RdbVersion, now_ms: int, step_bytes: int, deferred: bool = False
    ) -> None:
        self.keyspace = keyspace
        self.expected = at_once(keyspace, version, now_ms)
        self.image = keyspace.freeze(now_ms, step_bytes)
        self.pieces: list[Any] = []
        self.out = RdbOutput(self.pieces.append, deferred=deferred)
        self.steps = rdb_steps(self.image, self.out, version=version)
        self.count = 0

    def step(self) -> bool:
        """Write some more; return whether this was the end, and then compare."""
        if next(self.steps, None) is not None:
            self.count += 1
            return False
        self.out.flush()
        if self.out.deferred:  # encoded as late as possible
            encoder = RdbEncoder()
            self.pieces = [bytes(encoder.encode(piece)) for piece in self.pieces]
        self.keyspace.release_image(self.image)
        assert b"".join(self.pieces) == self.expected
        return True


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("seed", range(24))
def test_a_snapshot_among_random_commands(seed: int, deferred: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:  # so that some keys are not copied yet when others are added and removed
        monkeypatch.setattr(key_table, "SPLIT_AT", 3)
    if seed % 3:  # so that nothing is freed at once
        monkeypatch.setattr(lazy_free, "STREAM_BYTES_MIN", 0)
        monkeypatch.setattr(lazy_free, "KEYS_MIN", 0)
        monkeypatch.setattr(lazy_free, "STEP_OBJECTS", 3)
    history = History(seed)
    random = Random(seed)
    history.run(random.randrange(400))
    keyspace = history.engine.keyspace
    steps = 0
    for _ in range(4):
        version = random.choice(VERSIONS)
        walk = Walk(keyspace, version, history.latest, random.choice([1, 1, 50, 1000]), deferred)
        turns = random.choice([0, 1, 1, 3, 30])
        while not walk.step():
            history.run(turns)
        steps += walk.count
        history.run(50)
        for database in keyspace.databases:
            for value in database.values.values():
                if not isinstance(value, bytes | bytearray):
                    value.check()  # type: ignore[attr-defined]
    assert steps > 4


def engine_and_run() -> tuple[Engine, Callable[..., None]]:
    """Return an engine, and a function that runs a command in it, which must succeed."""
    engine = Engine()
    session = engine.create_session()

    def run(line: str, now_ms: int = START_MS) -> None:
        engine.execute(session, line.encode().split(), now_ms)
        reply = session.reply.take()
        assert not reply.startswith(b"-"), reply

    return engine, run


def test_nodes_that_change_before_the_walk_reaches_them() -> None:
    engine, run = engine_and_run()
    run("CONFIG SET stream-node-max-entries 5")
    for i in range(1, 101):
        run(f"XADD s {i}-0 f {i}")
    walk = Walk(engine.keyspace, VERSIONS[0], START_MS, 1)
    walk.step()
    run("XADD s 200-0 f v")  # the tail
    run("XDEL s 50-0 51-0 99-0")
    for i in range(61, 66):
        run(f"XDEL s {i}-0")  # a whole node
    run("XTRIM s MAXLEN 40")
    run("RENAME s t")
    run("XADD s 1-0 new stream")
    run("XTRIM t MAXLEN 0")
    run("XSETID t 100-1")
    run("XADD t 100-2 f v")
    run("DEL t")
    while not walk.step():
        pass


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("first_steps", [0, 8, 60])
def test_consumers_that_change_before_the_walk_reaches_them(first_steps: int, version: RdbVersion) -> None:
    engine, run = engine_and_run()
    for i in range(1, 121):
        run(f"XADD s {i}-0 f {i}")
    run("XGROUP CREATE s g 0")
    for i in range(10):
        run(f"XREADGROUP GROUP g c{i} COUNT 10 STREAMS s >")
    run("XGROUP CREATECONSUMER s g idle")
    walk = Walk(engine.keyspace, version, START_MS, 1)
    for _ in range(first_steps):
        walk.step()
    later = START_MS + 5000
    for line in (
        "XREADGROUP GROUP g idle COUNT 3 STREAMS s >",
        "XREADGROUP GROUP g c0 COUNT 3 STREAMS s >",
        "XACK s g 1-0 15-0 95-0 96-0",
        "XCLAIM s g c9 0 21-0 22-0 2-0",
        "XCLAIM s g idle 0 23-0 TIME 5 RETRYCOUNT 9 JUSTID",
        "XAUTOCLAIM s g c5 0 30-0 COUNT 4",
        "XNACK s g FAIL IDS 2 71-0 72-0",
        "XREADGROUP GROUP g c7 STREAMS s 0",
        "XGROUP DELCONSUMER s g c8",
        "XGROUP DELCONSUMER s g c0",
        "XGROUP CREATECONSUMER s g new",  # it has the number of a deleted one
        "XREADGROUP GROUP g new COUNT 2 STREAMS s >",
    ):
        run(line, later)
        stream = engine.keyspace.databases[0].stream(b"s")
        assert stream is not None
        stream.check()
        walk.step()
    for i in range(1, 121):  # from all consumers, while the walk is among their entries
        run(f"XACK s g {i}-0", later)
        walk.step()
    run("XGROUP DESTROY s g", later)
    while not walk.step():
        pass


def test_two_snapshots_one_after_the_other_share_consumers_with_the_stream() -> None:
    engine, run = engine_and_run()
    run("XGROUP CREATE s g $ MKSTREAM")
    for i in range(20):
        run(f"XGROUP CREATECONSUMER s g c{i}", START_MS + i)
    for turn in range(3):
        walk = Walk(engine.keyspace, VERSIONS[0], START_MS, 1)
        run("XADD s * f v", START_MS + 100 + turn)
        run(f"XREADGROUP GROUP g c{turn} STREAMS s >", START_MS + 200 + turn)
        while not walk.step():
            run("XREADGROUP GROUP g c15 STREAMS s >", START_MS + 300 + turn)


@pytest.mark.parametrize(
    "change", ["", "SET new v", "DEL k5000", "DEL k10", "RENAME k1 r", "SWAPDB 0 1", "FLUSHALL"]
)
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("keys", [8192, 8193])  # one part, which is split when a key is added, and many parts
def test_keys_of_one_and_of_many_parts(keys: int, steps: int, change: str) -> None:
    engine, run = engine_and_run()
    for i in range(keys):
        run(f"SET k{i} v")
    walk = Walk(engine.keyspace, VERSIONS[0], START_MS, 1000)  # not all keys are copied in three steps
    for _ in range(steps):
        assert not walk.step()
    if change:
        run(change)
    run("SET k2 w")  # no key is added or removed
    while not walk.step():
        pass
    assert walk.count > 6


@pytest.mark.parametrize("seed", range(20))
def test_shared_nodes_change_after_the_walk_has_passed_them(seed: int) -> None:
    """Nodes of more than SHARED_MIN bytes are encoded at the end, long after they were passed on."""
    random = Random(seed)
    engine, run = engine_and_run()
    run("CONFIG SET stream-node-max-entries 4")
    last = 0

    def add(n: int) -> None:
        nonlocal last
        for _ in range(n):
            last += 1
            value = random.randrange(10) * "text" + "x" * random.randrange(100, 900)
            run(f"XADD s{random.randrange(3)} {last}-0 f {value}")

    add(90)
    walk = Walk(engine.keyspace, VERSIONS[0], START_MS, 1, deferred=True)
    while not walk.step():
        for _ in range(random.randrange(4)):
            key, first = f"s{random.randrange(3)}", random.randrange(last)
            change = random.randrange(5)
            if change < 2:
                add(random.randrange(1, 6))
            elif change == 2:
                run(f"XDEL {key} {first}-0 {first + 1}-0 {first + 3}-0 {first + random.randrange(9)}-0")
            elif change == 3:
                run(f"XTRIM {key} MAXLEN {random.randrange(15, 40)}")
            else:
                run(f"XTRIM {key} MINID ~ {random.randrange(last // 2)}")
    assert walk.count > 3


def test_a_full_tail_that_was_passed_on_does_not_lend_its_block_to_the_next_node() -> None:
    engine, run = engine_and_run()
    run("CONFIG SET stream-node-max-entries 2")
    for i in range(1, 5):
        run(f"XADD s {i}-0 f {i}{'x' * 600}")
    walk = Walk(engine.keyspace, VERSIONS[0], START_MS, 1, deferred=True)
    while len(walk.out.shared_owners) + sum(len(piece.shared) for piece in walk.pieces) < 2:
        assert not walk.step()
    run(f"XADD s 5-0 f {'y' * 700}")
    while not walk.step():
        pass


def test_work_in_the_background_while_a_snapshot_is_written() -> None:
    """Compaction waits for it, and eviction keeps the nodes that it drops."""
    engine, run = engine_and_run()
    run("CONFIG SET stream-node-max-entries 10")
    for i in range(1, 101):
        run(f"XADD s {i}-0 f {i}")
    for i in range(2, 90):
        if i % 10:
            run(f"XDEL s {i}-0")
    walk = Walk(engine.keyspace, VERSIONS[0], START_MS, 1)
    walk.step()
    before = engine.keyspace.memory.total
    for now in range(START_MS + 1, START_MS + 10):
        engine.tick(now)
    assert engine.keyspace.memory.total == before
    engine.write_gate.eviction.policy = STREAM_OLDEST
    engine.keyspace.memory.limit = before - 1000
    assert engine.write_gate.eviction.make_room(0)
    while not walk.step():
        pass
    engine.keyspace.memory.limit = 1 << 40
    before = engine.keyspace.memory.total
    for now in range(START_MS + 20, START_MS + 30):
        engine.tick(now)
    assert engine.keyspace.memory.total < before  # compaction goes on


def test_what_a_released_image_leaves() -> None:
    """After an abort nothing more is kept, and the next snapshot is right."""
    history = History(2)
    history.run(300)
    keyspace = history.engine.keyspace
    walk = Walk(keyspace, VERSIONS[0], history.latest, 1)
    for _ in range(20):
        walk.step()
        history.run(5)
    walk.steps.close()  # type: ignore[attr-defined]
    keyspace.release_image(walk.image)
    assert keyspace.image is None
    assert all(database.image is None for database in keyspace.databases)
    history.run(50)
    again = Walk(keyspace, VERSIONS[0], history.latest, 1)
    while not again.step():
        history.run(1)


def test_flush_swap_and_expiry_while_a_snapshot_is_written() -> None:
    engine, run = engine_and_run()
    for change in (
        ["FLUSHALL", "XADD s0 1-1 f other", "SET t1 other", "APPEND t1 more", "EXPIRE t1 9"],
        ["SWAPDB 0 1", "XADD s0 9-9 f other", "SET t1 other", "SETRANGE t2 0 zz", "EXPIRE t1 100"],
        [
            "PERSIST t1",
            "EXPIRE t2 1",
            "APPEND t3 more",
            "SETRANGE t4 0 zz",
            "SELECT 1",
            "FLUSHDB",
            "SELECT 0",
        ],
        ["COPY t1 c", "MOVE t1 3", "RENAME t2 t3", "GETDEL t4", "SET t5 1 EX 7", "GETEX t6 EX 8"],
    ):
        for point in range(14):
            engine.keyspace.flush_all()
            for i in range(5):
                run(f"XADD s{i} 1-1 f v")
                run("SELECT 1")
                run(f"XADD s{i} 1-1 f v{i}")
                run("SELECT 0")
                run(f"SET t{i} value{i}")
                run(f"APPEND t{i} x")
            run("EXPIRE t1 50")
            run("EXPIRE t6 1")
            run("SET t5 5")
            walk = Walk(engine.keyspace, VERSIONS[0], START_MS, 1)
            for _ in range(point):
                if walk.step():
                    break
            else:
                for line in change:
                    run(line)
                engine.tick(START_MS + 60_000)
                while not walk.step():
                    pass
