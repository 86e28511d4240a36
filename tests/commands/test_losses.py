"""Entries that a group has lost: removed before it read them, or while they were pending. XINFO and log."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.engine.engine import Engine
from headrace.keyspace.keyspace import LOSS_LOG_LINES_MAX
from headrace.persistence.aof.rewrite import commands_of
from headrace.streams.stream import Stream
from support.engine_talk import Talk
from support.rule_replays import replay, restarted

GROUPS = (b"g", b"h")


def losses(engine: Engine, key: bytes = b"s") -> dict[bytes, tuple[int, int]]:
    """Return what each group has lost: unread and pending entries."""
    stream = engine.keyspace.databases[0].values[key]
    assert isinstance(stream, Stream)
    return {
        group.name: (stream.lost_unread_count(group), group.lost_pending_count) for group in stream.groups()
    }


def shown(talk: Any, group: str = "g") -> tuple[int, int]:
    """Return the same of one group, as XINFO GROUPS and XINFO STREAM FULL show it."""
    found = []
    for groups in (talk("XINFO GROUPS s"), pairs(talk("XINFO STREAM s FULL"))["groups"]):
        about = next(one for one in map(pairs, groups) if one["name"] == group)
        found.append((about.get("lost-unread", 0), about.get("lost-pending", 0)))
        assert ("lost-unread" in about) == ("lost-pending" in about) == (found[-1] != (0, 0))
    assert found[0] == found[1]
    return found[0]


def pairs(items: list[Any]) -> dict[str, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


@pytest.fixture
def eight(talk: Any) -> Any:
    """A stream s of 1-0 to 8-0; the consumer ann of the group g has 1-0 and 2-0 pending."""
    talk.node_entries(3)
    for n in range(1, 9):
        talk(f"XADD s {n}-0 f {n}")
    talk("XGROUP CREATE s g 0")
    talk("XREADGROUP GROUP g ann COUNT 2 STREAMS s >")
    return talk


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("XTRIM s MINID 8-0", 5),
        ("XTRIM s MAXLEN ~ 2", 4),
        ("XTRIM s MAXLEN 0", 6),
        ("XADD s MAXLEN 2 9-0 f v", 5),
        ("XDEL s 4-0 5-0 9-0", 2),
        ("XDELEX s DELREF IDS 2 7-0 8-0", 2),
        ("XCFGSET s MAX-LEN 1 EXACT 1", 5),
        ("XTRIM s MINID 3-0", 0),
        ("XDEL s 2-0", 0),
    ],
)
def test_entries_that_are_removed_before_the_group_reads_them_are_counted(
    eight: Any, line: str, lost: int
) -> None:
    assert shown(eight) == (0, 0)
    eight(line)
    while eight.engine.next_deadline() == eight.now:
        eight.tick(eight.now)
    assert shown(eight) == (lost, 0)
    eight("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
    eight("XREADGROUP GROUP g ann STREAMS s >")
    assert shown(eight) == (lost, 0), "reading on does not change what is lost"


@pytest.mark.parametrize(
    "lines",
    [
        ["XTRIM s MINID 3-0", "XAUTOCLAIM s g ann 0 0"],
        ["XTRIM s MINID 3-0", "XCLAIM s g bob 0 1-0 2-0"],
        ["XNACK s g FAIL IDS 2 1-0 2-0", "XDEL s 1-0 2-0", "XAUTOCLAIM s g bob 0 0"],
        ["XDELEX s DELREF IDS 2 1-0 2-0"],
        ["XTRIM s MINID 3-0 DELREF"],
        ["XGROUP CFGSET s g LEASE 1", "XDEL s 1-0 2-0", "tick", "XREADGROUP GROUP g bob COUNT 1 STREAMS s >"],
    ],
    ids=["autoclaim", "claim", "released", "delref", "trim with delref", "lease"],
)
def test_deleted_entries_that_leave_the_pending_list_are_counted(eight: Any, lines: list[str]) -> None:
    for line in lines:
        if line == "tick":
            eight.tick(eight.now + 10)
        else:
            assert not str(eight(line)).startswith("-")
    assert shown(eight) == (0, 2)


def test_acknowledged_entries_and_deliberate_steps_are_no_losses(eight: Any) -> None:
    eight("XACKDEL s g IDS 1 1-0")
    eight("XACK s g 2-0")
    eight("XGROUP SETID s g 6-0")
    eight("XTRIM s MINID 6-0")
    assert shown(eight) == (0, 0), "3-0 to 6-0 were skipped"
    eight("XGROUP SETID s g 0")
    eight("XREADGROUP GROUP g ann STREAMS s >")
    eight("XGROUP CREATE s h 0")
    assert shown(eight) == shown(eight, "h") == (0, 0), "what was removed before belongs to no group"
    eight("XGROUP SETID s g 100-0")
    for n in (50, 100, 101, 102):
        eight(f"XADD s {n}-0 f v")
    eight("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
    assert shown(eight) == (0, 0), "the group has skipped 50-0 and 100-0"
    eight("XTRIM s MAXLEN 0")
    assert shown(eight) == (1, 0)
    eight("XSETID s 500-0 ENTRIESADDED 5000")
    assert shown(eight) == (1, 0)


@pytest.mark.parametrize(
    ("read", "kept", "added", "expected"),
    [
        (8, 2, 2, (2, 0)),
        (7, 2, 2, (1, 1)),
        (7, 2, 7, (6, 1)),
        (2, 2, 2, (0, 2)),
        (7, 2, 8, (7, 1)),
        (8, 0, 0, (0, 0)),
    ],
)
def test_xsetid_limits_what_groups_have_read_to_what_was_added(
    eight: Any, read: int, kept: int, added: int, expected: tuple[int, int]
) -> None:
    if read > 2:
        eight(f"XREADGROUP GROUP g ann COUNT {read - 2} STREAMS s >")
    eight("XGROUP CREATE s unknown 8-0")
    eight(f"XTRIM s MAXLEN {kept}")
    eight(f"XSETID s 8-0 ENTRIESADDED {added}")
    assert progress(eight) == [expected, (None, 0)]
    assert eight("XLAG s g") == expected[1]
    for engine in (restarted(eight), replay(eight.engine.effects.take(), eight.now)):
        other = Talk()
        other.engine = engine
        assert progress(other) == [expected, (None, 0)]
    eight("XADD s 9-0 f 9")
    eight("XREADGROUP GROUP g ann STREAMS s >")
    assert progress(eight)[0] == (added + 1, 0)


def progress(talk: Any) -> list[tuple[Any, Any]]:
    """Return entries-read and lag of all groups."""
    return [(group["entries-read"], group["lag"]) for group in map(pairs, talk("XINFO GROUPS s"))]


class World:
    """Random requests on one stream, and what two groups have lost by a simple model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.talk = Talk()
        self.talk.node_entries(self.random.choice((1, 2, 5)))
        self.records: list[tuple[int, list[bytes]]] = []
        self.last = 0
        self.live: set[int] = set()
        self.position: dict[bytes, int] = {}
        self.unread: dict[bytes, int] = {}
        self.pending: dict[bytes, set[int]] = {}
        self.lost: dict[bytes, int] = {}
        self.talk("XADD s MAXLEN 0 0-1 f v")
        for group in GROUPS:
            self.create(group)

    def create(self, group: bytes) -> None:
        start = self.random.choice([0, self.last, self.random.randint(0, self.last)])
        self.talk.words("XGROUP", "DESTROY", "s", group)
        self.talk.words("XGROUP", "CREATE", "s", group, f"{start}-0")
        self.position[group], self.unread[group], self.lost[group] = start, 0, 0
        self.pending[group] = set()

    def step(self) -> None:
        chance, group = self.random.random(), self.random.choice(GROUPS)
        if chance < 0.4:
            self.last += self.random.randint(1, 2)
            self.talk(f"XADD s {self.last}-0 f v")
            self.live.add(self.last)
        elif chance < 0.65:
            self.read(group)
        elif chance < 0.75:
            entry = self.random.randint(1, self.last + 1)
            if self.talk(f"XDEL s {entry}-0"):
                self.remove({entry})
        elif chance < 0.85:
            self.talk(f"XTRIM s MAXLEN ~ {self.random.randint(0, len(self.live) + 1)}")
            self.remove(self.live - {int(e[0].split("-")[0]) for e in self.talk("XRANGE s - +")})
        elif chance < 0.9:
            self.position[group] = self.random.randint(0, self.last)
            self.talk.words("XGROUP", "SETID", "s", group, f"{self.position[group]}-0")
        elif chance < 0.95:
            for word in self.talk.words("XAUTOCLAIM", "s", group, "bob", "0", "0")[2]:
                self.pending[group].discard(int(word.split("-")[0]))
                self.lost[group] += 1
        elif chance < 0.97:
            self.create(group)
        else:
            acked = self.random.randint(1, self.last + 1)
            self.talk.words("XACK", "s", group, f"{acked}-0")
        self.records += self.talk.engine.effects.take()

    def read(self, group: bytes) -> None:
        reply = self.talk.words(
            *("XREADGROUP", "GROUP", group, "ann", "COUNT", str(self.random.randint(1, 4))),
            *(self.random.choice([[], ["NOACK"]])),
            *("STREAMS", "s", ">"),
        )
        if reply != "nil-array":
            self.position[group] = int(reply[0][1][-1][0].split("-")[0])

    def remove(self, entries: set[int]) -> None:
        self.live -= entries
        for group in GROUPS:
            self.unread[group] += sum(entry > self.position[group] for entry in entries)

    def expected(self) -> dict[bytes, tuple[int, int]]:
        return {group: (self.unread[group], self.lost[group]) for group in GROUPS}


@pytest.mark.parametrize("seed", range(12))
def test_the_counts_are_exact_and_survive_logs_snapshots_and_rewrites(seed: int) -> None:
    world = World(seed)
    for step in range(1, 241):
        world.step()
        assert losses(world.talk.engine) == world.expected(), step
        if step % 60 == 0:
            rewritten = list(commands_of(world.talk.engine.keyspace, world.talk.now))
            assert losses(replay(world.records, world.talk.now)) == world.expected(), "the log"
            assert losses(restarted(world.talk)) == world.expected(), "a snapshot"
            assert losses(replay(rewritten, world.talk.now)) == world.expected(), "a rewritten log"
    world.talk.engine.keyspace.databases[0].values[b"s"].check()
    world.talk("COPY s t")
    assert losses(world.talk.engine, b"t") == world.expected()
    world.talk("RENAME t u")
    assert losses(world.talk.engine, b"u") == world.expected()


def test_a_group_that_waits_after_the_last_id_counts_the_same_after_a_restart() -> None:
    talk = Talk()
    talk("XADD s 1-0 f v")
    talk("XGROUP CREATE s g 5-0")
    for ms in range(6, 10):
        talk(f"XADD s {ms}-0 f v")
    again = Talk()
    again.engine, again.now = restarted(talk), talk.now
    rewritten = Talk()
    rewritten.engine = replay(list(commands_of(talk.engine.keyspace, talk.now)), talk.now)
    rewritten.now = talk.now
    for each in (talk, again, rewritten):
        each("XTRIM s MAXLEN 1")
        assert shown(each) == (0, 0)
        each("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
        each("XADD s 10-0 f v")
        each("XTRIM s MAXLEN 0")
        assert shown(each) == (1, 0)


def test_what_other_servers_store_tells_the_losses_that_groups_have_not_passed(eight: Any) -> None:
    payload = dumped(eight)
    eight("XTRIM s MINID 6-0")
    trimmed = dumped(eight)
    eight.words("RESTORE", "s", "0", payload, "REPLACE")
    assert shown(eight) == (0, 0)
    eight.words("RESTORE", "s", "0", trimmed, "REPLACE")
    assert shown(eight) == (3, 0)
    eight("XGROUP SETID s g 0 ENTRIESREAD 0")  # a count that cannot be right
    eight("XGROUP SETID s g 7-0 ENTRIESREAD 1")
    eight.words("RESTORE", "s", "0", dumped(eight), "REPLACE")
    assert shown(eight)[0] <= 5, "no more than were ever removed"


def dumped(talk: Any) -> bytes:
    talk.say(["DUMP", "s"], "a")
    payload: bytes = talk.clients["a"].reply.take().split(b"\r\n", 1)[1][:-2]
    return payload


def test_a_clients_losses_option_is_rejected(eight: Any) -> None:
    assert "unknown subcommand" in eight("XGROUP SETID s g 1-0 LOSSES 1 2 3")
    assert "unknown subcommand" in eight("XGROUP SETID s g 1-0 ENTRIESREAD 1 LOSSES 1 2 3")


# The log.


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return lines


def test_the_log_names_a_loss_once_and_a_group_once_a_minute(
    eight: Any, caplog: pytest.LogCaptureFixture
) -> None:
    eight("XTRIM s MINID 6-0")
    assert lines_of(caplog) == []
    for _ in range(2):
        eight("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
        eight("XADD s * f v")
    (line,) = lines_of(caplog)
    assert line == (
        "group g of stream s has lost entries, which were removed too early:"
        " 3 before it read them, 0 pending (in total 3 and 0)"
    )
    eight("XAUTOCLAIM s g ann 0 0")
    eight("XDEL s 8-0")
    eight("XREADGROUP GROUP g ann STREAMS s >")
    assert lines_of(caplog) == []
    eight.now += 60_000
    eight("XREADGROUP GROUP g ann STREAMS s >")
    (line,) = lines_of(caplog)
    assert line.endswith("1 before it read them, 2 pending (in total 4 and 2)")
    eight("XREADGROUP GROUP g ann STREAMS s >")
    assert lines_of(caplog) == []


def test_a_restart_does_not_log_the_losses_again(eight: Any, caplog: pytest.LogCaptureFixture) -> None:
    eight("XTRIM s MINID 6-0")
    eight("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
    assert len(lines_of(caplog)) == 1
    records = eight.engine.effects.take()
    for engine in (restarted(eight), replay(records, eight.now)):
        again = Talk()
        again.engine, again.now = engine, eight.now
        again("XREADGROUP GROUP g ann COUNT 1 STREAMS s >")
        assert lines_of(caplog) == []
        again("XTRIM s MAXLEN 0")
        again("XADD s * f v")
        again("XREADGROUP GROUP g ann STREAMS s >")
        assert len(lines_of(caplog)) == 1


def test_the_lines_of_all_groups_are_limited(eight: Any, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(2 * LOSS_LOG_LINES_MAX):
        eight(f"XGROUP CREATE s g{number} 0")
    eight("XTRIM s MAXLEN 1")
    for number in range(2 * LOSS_LOG_LINES_MAX):
        eight(f"XREADGROUP GROUP g{number} ann STREAMS s >")
    assert len(lines_of(caplog)) == LOSS_LOG_LINES_MAX
    eight.now += 60_000
    for number in range(2 * LOSS_LOG_LINES_MAX):
        eight(f"XREADGROUP GROUP g{number} ann STREAMS s >")
    assert len(lines_of(caplog)) == LOSS_LOG_LINES_MAX, "those that were left out"


def test_ordered_groups_count_and_log_their_losses(eight: Any, caplog: pytest.LogCaptureFixture) -> None:
    eight("XGROUP CFGSET s g LEASE 100 ORDERED-BY f")
    eight("XTRIM s MINID 6-0")
    eight("XREADGROUP GROUP g bob STREAMS s >")
    assert shown(eight) == (3, 0)
    assert len(lines_of(caplog)) == 1
    eight.tick(eight.now + 1000)
    eight("XREADGROUP GROUP g bob STREAMS s >")
    assert shown(eight) == (3, 2)
