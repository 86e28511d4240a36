"""Random requests to a stream with rules: clients see what a model says, and replays give the same data.

The model knows the rules from their documentation only. Before each read it derives from XPENDING and XRANGE
which entries must come; after each request it checks the limits. Now and then the engine is replaced by one
that has replayed all effects, or loaded a snapshot. At the end an engine without rules replays the effects.
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


class World:
    """A stream s with a group g, random rules, and the effects so far."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.talk = Talk()
        self.talk.now = 10_000
        self.talk.node_entries(self.chance.choice((1, 3, 100)))
        self.records: list[tuple[int, list[bytes]]] = []
        self.number = 0
        self.talk("XGROUP CREATE s g 0 MKSTREAM")
        self.keep = self.chance.random() < 0.5
        self.exact = self.chance.random() < 0.5
        self.max_len = self.chance.choice((0, 5, 20))
        self.max_age = self.chance.choice((0, 300))
        self.lease = self.chance.choice((50, 200))
        self.backoff = self.chance.choice(((), (30,), (10, 500)))
        self.max_deliveries = self.chance.choice((0, 2, 3))
        self.max_pending = self.chance.choice((0, 4))
        if self.max_len or self.max_age:
            rules = f"MAX-LEN {self.max_len} MAX-AGE {self.max_age}"
            rules += f" KEEP-UNACKED {self.keep:d} EXACT {self.exact:d}"
            assert self.talk(f"XCFGSET s {rules}") == "OK"
        rules = f"LEASE {self.lease} MAX-DELIVERIES {self.max_deliveries} MAX-PENDING {self.max_pending}"
        rules += f" BACKOFF {','.join(map(str, self.backoff)) or 0}"
        assert self.talk(f"XGROUP CFGSET s g {rules}") == "OK"

    # The model.

    def due_of(self, row: list[Any]) -> int:
        _, consumer, idle, deliveries = row
        if not consumer:
            return 0
        delay = self.backoff[min(max(deliveries - 1, 0), len(self.backoff) - 1)] if self.backoff else 0
        return self.talk.now - idle + self.lease + delay

    def pending(self) -> list[list[Any]]:
        return list(self.talk("XPENDING s g - + 10000"))

    def entries(self) -> list[str]:
        return [entry for entry, _ in self.talk("XRANGE s - +")]

    def read(self) -> None:
        """Read for a consumer, and compare with the model."""
        consumer, count = self.chance.choice(CONSUMERS), self.chance.choice((1, 3, 50))
        before, stored = self.pending(), set(self.entries())
        due = [row for row in before if self.due_of(row) <= self.talk.now]
        exhausted = [row[0] for row in due if self.max_deliveries and row[3] >= self.max_deliveries]
        deliverable = [row for row in due if row[0] in stored and row[0] not in exhausted]
        last = self.talk("XINFO GROUPS s")[0][7]
        new = [entry for entry in self.entries() if number_of(entry) > number_of(last)]
        reply = self.talk(f"XREADGROUP GROUP g {consumer} COUNT {count} STREAMS s >")
        assert isinstance(reply, list) or reply == "nil-array", reply
        got = [] if reply == "nil-array" else [entry for entry, _ in reply[0][1]]
        again = [entry for entry in got if entry not in new]
        assert [entry for entry in got if entry in new] == new[: len(got) - len(again)]
        assert got == again + got[len(again) :]  # entries that are due come first
        assert set(again) <= {row[0] for row in deliverable}
        dues = {row[0]: self.due_of(row) for row in deliverable}
        left = [value for entry, value in dues.items() if entry not in again]
        if again and left:
            assert max(dues[entry] for entry in again) <= min(left)
        room = count
        if self.max_pending:
            room = min(room, max(0, self.max_pending - sum(row[1] == consumer for row in before)))
        assert len(got) >= min(room, len(deliverable) + len(new)) if not exhausted else True
        held, owned = (sum(row[1] == consumer for row in rows) for rows in (before, self.pending()))
        assert len(got) <= count and (not self.max_pending or owned <= max(self.max_pending, held))
        assert not set(exhausted) & set(got)
        if len(got) < room:  # the read has reached all that are due
            assert not set(exhausted) & {row[0] for row in self.pending()}

    def check_limits(self) -> None:
        """Check what the stream keeps."""
        stored = self.entries()
        if self.max_len and self.exact and not self.keep:
            assert len(stored) <= self.max_len
        if self.max_age and self.exact and not self.keep:
            assert all(self.talk.now - number_of(entry)[0] <= self.max_age for entry in stored)
        if self.keep:
            last = number_of(self.talk("XINFO GROUPS s")[0][7])
            wanted = {row[0] for row in self.pending()} | {one for one in self.added if number_of(one) > last}
            assert wanted <= set(stored) | self.deleted

    # Requests.

    added: set[str] = set()
    deleted: set[str] = set()

    def step(self) -> None:
        chance, talk = self.chance, self.talk
        kind = chance.random()
        if kind < 0.35:
            reply = talk(f"XADD s * n {self.number}")
            self.number += 1
            if reply.startswith("-"):
                assert reply.startswith("-FULL") and self.keep
            else:
                self.added.add(reply)
        elif kind < 0.6:
            self.read()
        elif kind < 0.75 and (rows := self.pending()):
            talk("XACK s g " + " ".join(row[0] for row in chance.sample(rows, chance.randint(1, len(rows)))))
        elif kind < 0.8 and (rows := self.pending()):
            talk(f"XNACK s g FAIL IDS 1 {chance.choice(rows)[0]}")
        elif kind < 0.85 and (rows := self.pending()):
            options = chance.choice(("JUSTID", "", "TIME 5 JUSTID", "RETRYCOUNT 1"))
            talk(f"XCLAIM s g {chance.choice(CONSUMERS)} 0 {chance.choice(rows)[0]} {options}".strip())
        elif kind < 0.87 and (stored := self.entries()):
            self.deleted.add(chance.choice(stored))
            talk("XDEL s " + max(self.deleted, key=lambda entry: (entry in stored, entry)))
            self.deleted |= set(stored) - set(self.entries())
        elif kind < 0.9:
            talk(f"XADD s DELAY {chance.choice((0, 40))} * n late")
            self.added |= set(self.entries())
        elif kind < 0.92:
            self.restart()
        else:
            talk.tick(talk.now + chance.choice((1, 20, 150)))
        for _ in range(50):
            if talk.engine.next_deadline() not in range(talk.now + 1):
                break
            talk.tick(talk.now)
        self.added |= {entry for entry in self.entries() if entry not in self.added}

    def restart(self) -> None:
        """Continue in an engine that has replayed the effects, or loaded a snapshot."""
        self.records += self.talk.engine.effects.take()
        before = portrait(self.talk.engine.keyspace, times=False)
        if self.chance.random() < 0.5:
            engine = replay(self.records, self.talk.now)
        else:
            engine = restarted(self.talk)
        assert portrait(engine.keyspace, times=False) == before
        settings = engine.keyspace.settings
        settings.stream_node_max_entries = self.talk.engine.keyspace.settings.stream_node_max_entries
        engine.set_effect_recording(True)
        self.talk.engine, self.talk.clients = engine, {}


@pytest.mark.parametrize("seed", range(24))
def test_random_requests(seed: int) -> None:
    world = World(seed)
    world.added, world.deleted = set(), set()
    for _ in range(STEPS):
        world.step()
        world.check_limits()
    world.records += world.talk.engine.effects.take()
    expected = portrait(world.talk.engine.keyspace, times=False)
    for with_rules in (True, False):
        assert portrait(replay(world.records, world.talk.now, with_rules).keyspace, times=False) == expected
