"""Processes with consumers of one group, whose every step, death and standstill a seed decides. No threads.

HEADRACE_LONG=1 tries many more seeds.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

import headrace
from api.stepping import Killed, MortalBackend, Stepper, on
from headrace.api.delivery import Delivery
from headrace.api.local.clock import ManualClock
from headrace.api.retry_policy import Backoff
from headrace.errors import ConnectionLost

SEEDS = range(2000 if os.environ.get("HEADRACE_LONG") else 60)
AUTH_ERRORS = 7  # every seventh always fails
LEASE = 10.0


class ShakyLink(MortalBackend):
    """A mortal backend that also loses connections, before or after a request was carried out."""

    chance: random.Random

    def request_all(self, requests: Any, atomic: bool = False) -> list[Any]:
        fate = self.chance.random()
        if fate < 0.01:
            raise ConnectionLost("not sent")
        replies = super().request_all(requests, atomic)
        if fate < 0.02:
            raise ConnectionLost("sent, no answer", maybe_executed=True)
        return replies


class Process:
    """One consumer, and the entries that its handlers are at."""

    def __init__(self, story: Story, name: str) -> None:
        self.story = story
        self.name = name
        self.backend = ShakyLink(story.group.backend)
        self.backend.chance = story.chance
        order = (lambda entry: int(entry["n"]) % 4) if story.ordered else None
        batch = story.chance.choice([1, 5, None])
        self.stepper = Stepper(
            on(story.group, self.backend).consumer(name, fetch_count=batch, ordered_by=order)
        )
        self.running: list[Delivery[Any]] = []

    def step(self) -> None:
        """Something happens in this process."""
        chance, worker = self.story.chance, self.stepper.worker
        deed = chance.random()
        if deed < 0.5 or not self.running:
            if len(self.running) < 3 and (delivery := self.stepper.next()) is not None:
                self.running.append(delivery)
        elif deed < 0.95:
            delivery = self.running.pop(chance.randrange(len(self.running)))
            n = int(delivery["n"])
            if n % AUTH_ERRORS == 0 or (delivery.times_delivered < 3 and chance.random() < 0.1):
                worker.record_failure(delivery, ValueError(f"{n} fails"))
            else:
                self.story.handled.add(n)
                worker.ack(delivery)
        else:
            self.stepper.keep()


class Story:
    """What happens to a group by one seed."""

    def __init__(self, db: Any, clock: ManualClock, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = clock
        self.ordered = seed % 3 == 0
        self.handled: set[int] = set()
        self.added = 0
        self.stream = db.stream("orders")
        self.group = self.stream.group(
            "billing", lease=LEASE, max_deliveries=40, backoff=Backoff(initial=0.1, maximum=5), recreate="0"
        )
        self.processes: dict[str, Process] = {}

    def add(self) -> None:
        count = self.chance.randrange(1, 8)
        self.stream.add_many({"n": self.added + n} for n in range(count))
        self.added += count

    def one_thing(self) -> None:
        """A step of a process, or a blow."""
        chance = self.chance
        name = chance.choice("abcd"[: 3 + (chance.random() < 0.1)])
        process = self.processes.get(name)
        fate = chance.random()
        if process is None:
            self.processes[name] = Process(self, name)
        elif fate < 0.01:
            process.backend.dies_at = process.backend.calls + chance.randrange(1, 5)
            process.backend.after = chance.random() < 0.5
        elif fate < 0.015:
            del self.processes[name]  # killed at work
        elif fate < 0.02:
            process.stepper.worker.stop()
            process.running.clear()  # and what it was at never ends
        elif fate < 0.05:
            self.clock.advance(seconds=chance.choice([0.1, 1, 3, LEASE, 3 * LEASE]))
        elif fate < 0.052:
            self.group.destroy()
        elif fate < 0.1:
            self.add()
        else:
            self.step(process)

    def step(self, process: Process) -> None:
        try:
            process.step()
        except Killed:
            del self.processes[process.name]
            return
        if process.stepper.worker.is_stopping and not process.stepper.worker.has_unsettled_entries:
            self.processes.pop(process.name, None)

    def end(self) -> None:
        """No more blows: what is left is handled by one who lives."""
        self.processes = {"last": Process(self, "last")}
        self.processes["last"].backend = self.group.backend
        last = self.processes["last"]
        last.stepper.backend = self.group.backend
        for _ in range(20_000):
            last.step()
            if not last.running:
                info = self.group.info() if self.group.stream.groups() else None
                if info is not None and info.pending == 0 and info.lag == 0:
                    return
                self.clock.advance(seconds=1)
        raise AssertionError(f"it does not end: {self.group.pending()}")


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_every_entry_is_handled_or_buried(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "headrace.consumer")
    clock = ManualClock()
    with headrace.open(clock=clock) as db:
        story = Story(db, clock, seed)
        for _ in range(600):
            story.one_thing()
        story.end()
        hopeless = set(range(0, story.added, AUTH_ERRORS))
        buried = {int(letter["n"]) for letter in story.group.dead_letters}
        assert story.handled == set(range(story.added)) - hopeless
        assert buried == hopeless
