"""Random requests to a group with ORDERED-BY: order and exclusion hold for each value, and nothing gets lost.

Before each read the model derives from XPENDING and XRANGE what the consumer may and must receive.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from support.engine_talk import Talk
from support.portrait import portrait
from support.rule_replays import number_of, replay, restarted

STEPS = 250
CONSUMERS = ("ann", "bob", "cid")
VALUES = ("a", "b", "c", None)
CLAIM_OPTIONS = ("JUSTID", "", "TIME 5 JUSTID", "TIME 0 JUSTID", "RETRYCOUNT 1", "RETRYCOUNT 0 JUSTID")


class World:
    """A stream s with a group g that is ordered by the field k."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.talk = Talk()
        self.talk.now = 10_000
        self.talk.node_entries(self.chance.choice((1, 3, 100)))
        self.records: list[tuple[int, list[bytes]]] = []
        self.values: dict[str, str | None] = {}  # of all entries ever added
        self.deleted: set[str] = set()
        self.seen: set[str] = set()
        self.lease = self.chance.choice((50, 200))
        self.backoff = self.chance.choice(((), (30,), (10, 500)))
        self.max_deliveries = self.chance.choice((0, 0, 2, 3))
        self.max_pending = self.chance.choice((0, 0, 4))
        self.ttl = self.chance.choice((0, 300))
        self.talk("XGROUP CREATE s g 0 MKSTREAM")
        rules = f"LEASE {self.lease} MAX-DELIVERIES {self.max_deliveries} MAX-PENDING {self.max_pending}"
        rules += f" BACKOFF {','.join(map(str, self.backoff)) or 0} ORDERED-BY k CONSUMER-TTL {self.ttl}"
        assert self.talk(f"XGROUP CFGSET s g {rules}") == "OK"

    def pending(self) -> list[list[Any]]:
        return list(self.talk("XPENDING s g - + 10000"))

    def due_of(self, row: list[Any]) -> int:
        delay = self.backoff[min(max(row[3] - 1, 0), len(self.backoff) - 1)] if self.backoff else 0
        return int(self.talk.now - row[2] + self.lease + delay)

    def waits(self, row: list[Any]) -> bool:
        return not row[1] or row[2] == self.talk.now or row[3] == 0

    def read(self) -> None:
        consumer, count = self.chance.choice(CONSUMERS), self.chance.choice((1, 3, 1000))
        now, stored = self.talk.now, [entry for entry, _ in self.talk("XRANGE s - +")]
        before = [row for row in self.pending() if row[0] in stored]
        ghosts = {self.values[row[0]] for row in self.pending() if row[0] not in stored}
        last = number_of(self.talk("XINFO GROUPS s")[0][7])
        reply = self.talk(f"XREADGROUP GROUP g {consumer} COUNT {count} STREAMS s >")
        got = [] if reply == "nil-array" else [entry for entry, _ in reply[0][1]]
        assert len(got) == len(set(got)) <= count
        self.seen |= set(got)
        must: set[str] = set()
        for value in VALUES[:3]:
            ids = [entry for entry in stored if self.values[entry] == value]
            rows = [row for row in before if self.values[row[0]] == value]
            new = [entry for entry in ids if number_of(entry) > last]
            received = [entry for entry in got if self.values[entry] == value]
            held = [row for row in rows if not self.waits(row)]
            waiting = [row for row in rows if self.waits(row)]
            lost = {row[0] for row in rows if self.max_deliveries and row[3] >= self.max_deliveries}
            if any(self.due_of(row) > now for row in held):
                if received:  # only the holder, and only if no lease has ended
                    assert {row[1] for row in held} == {consumer}, (value, rows, received)
                    assert all(self.due_of(row) > now for row in held)
                    assert not {row[0] for row in held} & set(received)
                if {row[1] for row in held} != {consumer} or any(self.due_of(row) <= now for row in held):
                    continue
                allowed = [row[0] for row in waiting] + new
            else:
                allowed = [row[0] for row in rows] + new
            allowed = [entry for entry in allowed if entry not in lost]
            assert received == allowed[: len(received)], (value, rows, received, allowed)
            if value not in ghosts:
                must |= set(allowed) - (set(new) if lost else set())
        must |= {e for e in stored if self.values[e] is None and number_of(e) > last}
        if count == 1000 and not self.max_pending:
            assert must <= set(got), must - set(got)

    def step(self) -> None:
        chance, talk = self.chance, self.talk
        kind, rows = chance.random(), self.pending()
        if kind < 0.3:
            value = chance.choice(VALUES)
            entry = talk(f"XADD s * {'k ' + value if value else 'other a'} n 1")
            self.values[entry] = value
        elif kind < 0.62:
            self.read()
        elif kind < 0.76 and rows:
            acknowledged = [row[0] for row in chance.sample(rows, chance.randint(1, len(rows)))]
            self.seen |= set(acknowledged)
            talk("XACK s g " + " ".join(acknowledged))
        elif kind < 0.8 and rows:
            talk(f"XNACK s g FAIL IDS 1 {chance.choice(rows)[0]}")
        elif kind < 0.84 and rows:
            options = chance.choice(CLAIM_OPTIONS)
            talk(f"XCLAIM s g {chance.choice(CONSUMERS)} 0 {chance.choice(rows)[0]} {options}".strip())
        elif kind < 0.85 and rows:
            talk(f"XREADGROUP GROUP g {chance.choice(CONSUMERS)} STREAMS s 0")
        elif kind < 0.86 and rows:
            self.deleted.add(chance.choice(rows)[0])
            talk(f"XDEL s {chance.choice(sorted(self.deleted))}")
            self.deleted = set(self.values) - {entry for entry, _ in talk("XRANGE s - +")}
        elif kind < 0.865:
            self.lease = chance.choice((20, 50, 200, 1000))
            assert talk(f"XGROUP CFGSET s g LEASE {self.lease}") == "OK"
        elif kind < 0.87:
            for field in ("other", "k"):  # the order is forgotten and found again
                assert talk(f"XGROUP CFGSET s g ORDERED-BY {field}") == "OK"
        elif kind < 0.875:
            talk(f"XGROUP DELCONSUMER s g {chance.choice(CONSUMERS)}")
        elif kind < 0.89:
            self.restart()
        else:
            talk.tick(talk.now + chance.choice((1, 20, 150)))
        for _ in range(50):
            if talk.engine.next_deadline() not in range(talk.now + 1):
                break
            talk.tick(talk.now)
        talk.engine.keyspace.databases[0].stream(b"s").group(b"g").check()

    def restart(self) -> None:
        """Continue in an engine that has replayed the effects, or loaded a snapshot."""
        self.records += self.talk.engine.effects.take()
        engine = replay(self.records, self.talk.now) if self.chance.random() < 0.5 else restarted(self.talk)
        assert portrait(engine.keyspace, times=False) == portrait(self.talk.engine.keyspace, times=False)
        settings = engine.keyspace.settings
        settings.stream_node_max_entries = self.talk.engine.keyspace.settings.stream_node_max_entries
        engine.set_effect_recording(True)
        self.talk.engine, self.talk.clients = engine, {}

    def finish(self) -> None:
        """Process all that is left: every entry was received, deleted, or became a dead letter."""
        for _ in range(100):
            for consumer in CONSUMERS:
                self.talk(f"XREADGROUP GROUP g {consumer} COUNT 1000 STREAMS s >")
            rows = self.pending()
            ready = [row[0] for row in rows if not self.waits(row)]
            if ready:
                self.seen |= set(ready)
                self.talk("XACK s g " + " ".join(ready))
            self.talk.tick(self.talk.now + 1000)
        assert self.pending() == []
        dead = {fields[fields.index("dead:id") + 1] for _, fields in self.talk("XRANGE {s}:dead - +")}
        assert set(self.values) <= self.seen | self.deleted | dead


@pytest.mark.parametrize("seed", range(24))
def test_random_requests(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.finish()
    world.records += world.talk.engine.effects.take()
    expected = portrait(world.talk.engine.keyspace, times=False)
    for with_rules in (True, False):
        assert portrait(replay(world.records, world.talk.now, with_rules).keyspace, times=False) == expected


@pytest.mark.parametrize("seed", range(12))
def test_a_blocked_consumer_finishes_what_others_leave(seed: int) -> None:
    chance, talk = random.Random(seed), Talk()
    talk.now = 10_000 + chance.randint(0, 200)
    talk("XGROUP CREATE s g 0 MKSTREAM")
    backoff = chance.choice(("-", "70,130"))
    talk(f"XGROUP CFGSET s g LEASE {chance.choice((50, 130))} ORDERED-BY k BACKOFF {backoff}")
    finished: list[str] = []

    def serve() -> None:
        """Let the blocked consumer acknowledge what it has received, and wait again."""
        while talk.clients["b"].waiter is None:
            got = talk.heard("b")
            if got != "(nothing)":
                entries = [entry for entry, _ in got[0][1]]
                finished.extend(entries)
                talk("XACK s g " + " ".join(entries))
            talk(f"XREADGROUP GROUP g bob COUNT {chance.choice((1, 5))} BLOCK 0 STREAMS s >", client="b")

    talk("PING", client="b")
    added = 0
    for _ in range(150):
        if chance.random() < 0.5:
            added += talk(f"XADD s * k {chance.choice('abc')}") != ""
        elif chance.random() < 0.5:
            talk(f"XREADGROUP GROUP g {chance.choice(CONSUMERS)} COUNT {chance.choice((1, 3))} STREAMS s >")
        else:
            talk.tick(talk.now + chance.choice((1, 20, 150)))
        if chance.random() < 0.5:
            serve()
    wakes = 0
    while wakes < 1000 and (len(finished) < added or talk("XPENDING s g")[0]):
        serve()
        deadline = talk.engine.next_deadline()
        if deadline < 0:
            break
        talk.tick(max(deadline, talk.now))
        wakes += 1
    assert talk("XPENDING s g")[0] == 0 and len(set(finished)) == added
    assert wakes < 500
