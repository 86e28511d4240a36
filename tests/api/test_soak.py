"""Four consumers of two threads each, killed and restarted at random, whose handlers fail at random.

HEADRACE_LONG=1 does it with a million entries.
"""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import pytest

import headrace
from api.stepping import Killed, MortalBackend, on
from headrace.api.retry_policy import Backoff

ENTRIES = 1_000_000 if os.environ.get("HEADRACE_LONG") else 20_000
CONSUMERS, THREADS = 4, 2
HOPELESS_EVERY = 499 if ENTRIES > 100_000 else 97
SEED = 20_240


class Soak:
    """A group, what was handled, and processes that come and go."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.handled = bytearray(ENTRIES)
        self.over = threading.Event()
        self.kills = 0
        self.counted = threading.Lock()
        self.errors: list[BaseException] = []

    def handle(self, entry: Any) -> None:
        n = int(entry["n"])
        if n % HOPELESS_EVERY == 0:
            raise ValueError("hopeless")
        if entry.times_delivered < 3 and random.Random(n * 8 + entry.times_delivered).random() < 0.02:
            raise ValueError("not now")
        self.handled[n] = 1

    def live(self, number: int) -> None:
        """One consumer after the other, each in a process of its own until that is killed."""
        chance = random.Random(SEED + number)
        life = 0
        try:
            while not self.over.is_set():
                self.live_once(number, life, chance)
                life += chance.random() < 0.2  # mostly it comes back with the name that it had
        except BaseException as error:
            self.errors.append(error)

    def live_once(self, number: int, life: int, chance: random.Random) -> None:
        backend = MortalBackend(
            self.group.backend, int(chance.expovariate(1 / 60)) + 10, chance.random() < 0.5
        )
        consumer = on(self.group, backend).consumer(f"{number}-{life}", concurrency=THREADS, block=0.2)
        try:
            consumer.run(self.handle)
        except Killed:
            with self.counted:
                self.kills += 1


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # a keeper that was killed
def test_every_entry_is_handled_and_what_always_fails_is_buried(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "headrace.consumer")
    with headrace.open() as db:
        orders = db.stream("orders")
        for start in range(0, ENTRIES, 10_000):
            orders.add_many({"n": n} for n in range(start, start + 10_000))
        group = orders.group(
            "billing", max_deliveries=8, lease=1.0, backoff=Backoff(initial=0.001, multiplier=2, maximum=0.01)
        )
        soak = Soak(group)
        threads = [threading.Thread(target=soak.live, args=(n,)) for n in range(CONSUMERS)]
        for thread in threads:
            thread.start()
        while not soak.errors:
            info = group.info()
            if info.lag == 0 and info.pending == 0:
                break
            threading.Event().wait(0.05)
        soak.over.set()
        for thread in threads:
            thread.join()
        assert not soak.errors
        hopeless = set(range(0, ENTRIES, HOPELESS_EVERY))
        assert {n for n in range(ENTRIES) if not soak.handled[n]} == hopeless
        assert {int(letter["n"]) for letter in group.dead_letters} == hopeless
        assert group.info().pending == 0 and soak.kills > 10
