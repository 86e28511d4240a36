"""Two thousand clients that send rubbish, stall and vanish, beside some that work: nothing is left of them.

HEADRACE_LONG=1 has them at it for five minutes.
"""

from __future__ import annotations

import re
import time

import pytest

from stress.mob import Mob
from stress.real_server import LONG, RealServer
from stress.working import Worker
from support.speaking import Client
from support.waiting import wait_until

pytestmark = pytest.mark.whole

SIZE = 2000
WORKERS = 3
SECONDS = 60.0 if LONG else 0.5
ROUNDS = 5 if LONG else 2
# What may be left after a round: less than one object for each client there was; and buffers that are kept
# for the next turn that needs them.
OBJECTS_LEFT_MAX = 500
BYTES_LEFT_MAX = 4 << 20
# RSS may be higher than before the first client, by pages that the interpreter cannot give back for there is
# one living object in each MiB; a leak would go on growing.
RSS_MORE_MAX = 64 << 20
EXPECTED = re.compile(
    r"closing 127\.0\.0\.1:\d+: it has "
    r"(left more reply bytes unread than client-output-buffer-limit allows|sent more .+)$"
    # Its XADD with MAXLEN trims what its group has not read or acknowledged.
    r"|group g of stream mob:s has lost entries, which were removed too early: "
)
LEFT_BEHIND = (
    "blocked_clients",
    "pubsub_channels",
    "pubsub_patterns",
    "total_blocking_keys",
    "watching_clients",
)


class Reader(Worker):
    """Adds an entry and reads it back: it knows what every answer must be."""

    slowest = 0.0

    def step(self) -> None:
        n = len(self.ids)
        begun = time.monotonic()
        made = self.client.request("XADD", self.key, "*", "n", n)
        assert isinstance(made, bytes)
        self.slowest = max(self.slowest, time.monotonic() - begun)
        self.ids.append(made)
        assert self.client.request("XRANGE", self.key, made, made) == [[made, [b"n", b"%d" % n]]]
        assert self.client.request("XLEN", self.key) == n + 1
        time.sleep(0.002)


def a_round(server: RealServer, admin: Client, number: int, descriptors: int) -> str:
    """One storm; afterwards all is as before, and here are its figures."""
    workers = [Reader(server.port, n) for n in range(WORKERS)]
    mob = Mob(server.port, SIZE, seed=number)
    mob.rage(SECONDS)
    for worker in workers:
        worker.end()
        entries = admin.request("XRANGE", worker.key, "-", "+")
        assert isinstance(entries, list)
        assert [entry[0] for entry in entries] == worker.ids != []
    made = sum(len(worker.ids) for worker in workers)
    wait_until(lambda: server.descriptors() == descriptors)
    info = admin.info()
    assert info["connected_clients"] == "1"
    assert {name: info.get(name, "0") for name in LEFT_BEHIND} == dict.fromkeys(LEFT_BEHIND, "0")
    listed = admin.ask("CLIENT LIST")
    assert isinstance(listed, bytes) and listed.count(b"\n") == 1
    assert admin.ask("FLUSHALL") == "OK"
    assert admin.ask("MEMORY PURGE") == "OK"
    slowest = max(worker.slowest for worker in workers) * 1000
    came = ", ".join(f"{n} {name}" for name, n in sorted(mob.played.items()))
    clients = sum(mob.played.values())
    return f"{clients} clients ({came}); {made} entries made beside, the slowest in {slowest:.0f} ms"


def test_two_thousand_that_rage_leave_nothing_behind(launch):
    quiet = ["--slowlog-log-slower-than", "-1", "--acllog-max-len", "0", "--latency-tracking", "no"]
    server = launch("--tcp-backlog", "4000", "--loglevel", "notice", *quiet, looked_into=True)
    admin = server.client()
    assert admin.ask("PING") == "PONG"
    descriptors = server.descriptors()
    first = server.rss()
    print(f"\nbefore: {first >> 10} KiB, {descriptors} descriptors, {server.allocated()}")
    after = []
    for number in range(ROUNDS):
        told = a_round(server, admin, number, descriptors)
        after.append((*server.allocated(), server.rss()))
        objects, held, resident = after[-1]
        print(f"round {number}: {told}; left: {objects} objects, {held >> 10} KiB, RSS {resident >> 10} KiB")
    assert after[-1][0] - after[0][0] < OBJECTS_LEFT_MAX, after
    assert after[-1][1] - after[0][1] < BYTES_LEFT_MAX, after
    assert after[-1][2] - first < RSS_MORE_MAX, after
    assert [line for line in server.log() if not EXPECTED.search(line)] == []
    assert server.end() == 0
