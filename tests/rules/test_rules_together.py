"""Random rules, changed while readers wait: the engine becomes idle after each command, and nothing breaks.

Checked are the invariants of all groups, that no rule has raised an exception other than an error reply, and
that tick() finds an end.
"""

from __future__ import annotations

import logging
import random

import pytest

from headrace.streams.stream import Stream
from support.engine_talk import Talk

STEPS = 300
TURNS_MAX = 3000  # for the work that one command leaves
KEYS = ("s", "t")
CONSUMERS = ("ann", "bob", "cid")
STREAM_RULES = (
    "MAX-LEN 5",
    "MAX-LEN 3 EXACT 1",
    "MAX-LEN 4 KEEP-UNACKED 1",
    "MAX-LEN 3 KEEP-UNARCHIVED 1",
    "MAX-LEN 6 DISCARD NEW",
    "MAX-AGE 200 EXACT 1",
    "MAX-BYTES 700",
    "DROP-ACKED 1",
    "DROP-ACKED 0",
    "MAX-LEN 0 MAX-AGE 0 MAX-BYTES 0 EXACT 0 KEEP-UNACKED 0 KEEP-UNARCHIVED 0 DISCARD -",
)
GROUP_RULES = (
    "LEASE 50",
    "LEASE 1",
    "LEASE 100 BACKOFF 10,70",
    "LEASE 80 ORDERED-BY k",
    "ORDERED-BY j",
    "ORDERED-BY -",
    "MAX-DELIVERIES 2",
    "MAX-DELIVERIES 1 DEAD-LETTER graves",
    "MAX-DELIVERIES 0 DEAD-LETTER -",
    "MAX-PENDING 1",
    "MAX-PENDING 0",
    "CONSUMER-TTL 150",
    "CONSUMER-TTL 0",
    "LEASE 0 BACKOFF - ORDERED-BY - MAX-DELIVERIES 0 DEAD-LETTER -",
)
OTHERS = (
    *("SET graves x", "DEL graves", "SET {s}:dead x", "DEL {s}:dead", "XGROUP SETID s g 0", "DEL t"),
    *("XGROUP DESTROY t g", "XGROUP CREATE t g 0 MKSTREAM", "XGROUP CREATE s g 0 MKSTREAM", "RENAME s t"),
    *("COPY s t REPLACE", "SWAPDB 0 1", "SWAPDB 0 1", "FLUSHALL"),
)
CLAIM_OPTIONS = ("", "JUSTID", "TIME 0 JUSTID", "TIME 5", "RETRYCOUNT 0", "IDLE 100", "FORCE")


class World:
    """Two streams with groups g and h, and readers that wait."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.talk = Talk()
        self.talk.now = 10_000
        self.talk.node_entries(self.chance.choice((1, 3, 100)))
        for key in KEYS:
            self.talk(f"XGROUP CREATE {key} g 0 MKSTREAM")
            self.talk(f"XGROUP CREATE {key} h $")

    def step(self) -> None:
        kind = self.chance.random()
        if kind < 0.15:
            self.wait()
        elif kind < 0.2:
            self.talk.tick(self.talk.now + self.chance.choice((1, 17, 60, 140)))
        else:
            self.talk(self.request())
        turns = 0
        while 0 <= self.talk.engine.next_deadline() <= self.talk.now:
            self.talk.tick(self.talk.now)
            turns += 1
            assert turns < TURNS_MAX, "the engine does not become idle"
        for database in self.talk.engine.keyspace.databases[:2]:
            for value in database.values.values():
                for group in value.groups() if isinstance(value, Stream) else ():
                    group.check()

    def wait(self) -> None:
        """Let a reader wait; one that waits is unblocked."""
        chance, talk, name = self.chance, self.talk, f"reader {self.chance.randint(0, 4)}"
        session = talk.clients.get(name)
        if session is not None:
            if session.waiter is not None:
                talk.engine.unblock(session)
            session.reply.take()
        options = chance.choice(("", "COUNT 1 ", "COUNT 2 ", "CLAIM 20 ")) + f"BLOCK {chance.choice((0, 30))}"
        keys = chance.choice(("s >", "t >", "s t > >"))
        talk(f"XREADGROUP GROUP g {chance.choice(CONSUMERS)} {options} STREAMS {keys}", client=name)

    def request(self) -> str:
        pick = self.chance.choice
        key, group, consumer = pick(KEYS), pick("gggh"), pick(CONSUMERS)
        rows = self.talk(f"XPENDING {key} {group} - + 100")
        some = pick([row[0] for row in rows]) if isinstance(rows, list) and rows else "1-0"
        read = pick(("", "COUNT 1 ", "COUNT 3 ", "CLAIM 10 ", "NOACK "))
        requests = (
            (25, f"XADD {key} {pick(('', '', 'MAXLEN ~ 4 '))}* {pick('kkkj')} {pick('xyz')}"),
            (15, f"XREADGROUP GROUP {group} {consumer} {read}STREAMS {key} >"),
            (12, f"XACK {key} {group} {some}"),
            (5, f"XNACK {key} {group} {pick(('FAIL', 'SILENT', 'FATAL'))} IDS 1 {some}"),
            (5, f"XCLAIM {key} {group} {consumer} 0 {some} {pick(CLAIM_OPTIONS)}".strip()),
            (2, f"XDEL {key} {some}"),
            (2, f"XAUTOCLAIM {key} {group} {consumer} 0 - COUNT 2"),
            (2, f"XGROUP DELCONSUMER {key} {group} {consumer}"),
            (5, f"XCFGSET {key} {pick(STREAM_RULES)}"),
            (7, f"XGROUP CFGSET {key} {group} {pick(GROUP_RULES)}"),
            (2, f"XADD {key} DELAY {pick((0, 30, 200))} * k x"),
            (1, pick(OTHERS)),
        )
        weights = [weight for weight, _ in requests]
        return self.chance.choices([text for _, text in requests], weights)[0]


@pytest.mark.parametrize("seed", range(40))
def test_the_engine_becomes_idle(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    bugs = [record for record in caplog.records if record.exc_info]
    assert bugs == [] and logging.getLogger("headrace").isEnabledFor(logging.ERROR)
