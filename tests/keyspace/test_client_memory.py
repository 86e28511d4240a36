"""Keys that clients watch or are blocked on count as memory: in used_memory, maxmemory and CLIENT LIST."""

import random
import re

import pytest

from headrace.engine.engine import Engine
from headrace.keyspace.blocking import Blocking, Waiter
from headrace.streams.memory_account import MemoryAccount

NOW_MS = 1000


class Clients:
    """Some clients of one engine."""

    def __init__(self):
        self.engine = Engine()
        self.sessions = [self.engine.create_session() for _ in range(3)]

    def __call__(self, client, *words):
        session = self.sessions[client]
        argv = [word if isinstance(word, bytes) else word.encode() for word in words]
        self.engine.execute(session, argv, NOW_MS)
        return session.reply.take()

    @property
    def used(self):
        return self.engine.keyspace.memory.total

    def tot_mem(self, client):
        lines = self(2, "CLIENT", "LIST", "ID", str(self.sessions[client].id))
        return int(re.search(rb"tot-mem=(\d+)", lines)[1])


def names(n):
    return [b"key-%06d" % number for number in range(n)]


@pytest.fixture
def clients():
    return Clients()


@pytest.mark.parametrize("seed", range(5))
def test_memory_of_waiters_is_returned_in_whatever_order_they_leave(seed):
    dice = random.Random(seed)
    memory = MemoryAccount()
    blocking, waiters = Blocking(memory), []
    for number in range(60):
        keys = [dice.choice([b"a", b"bb", b"ccc"]) for _ in range(dice.randrange(1, 5))]
        waiter = Waiter(
            number, 0, [], keys, dice.choice([0, 5]), bool, bool, wait_class=dice.choice([None, 1, 2])
        )
        before = memory.total
        blocking.add_waiter(waiter)
        waiters.append(waiter)
        assert before < memory.total <= before + waiter.memory_bytes()
        if dice.random() < 0.1:
            blocking.clear_wait_classes(0, b"a")
        if dice.random() < 0.4:
            blocking.remove(waiters.pop(dice.randrange(len(waiters))))
    for waiter in waiters:
        blocking.remove(waiter)
    assert memory.total == 0 and not blocking.queues


def test_watched_keys_count_until_the_transaction_ends(clients):
    before = clients.used, clients.tot_mem(0)
    for end in (["UNWATCH"], ["DISCARD"], ["EXEC"], ["RESET"]):
        clients(0, "WATCH", *names(1000))
        clients(0, "WATCH", *names(10))  # they are watched already
        clients(1, "WATCH", *names(10))
        assert clients.used - before[0] > 1010 * 400
        assert clients.tot_mem(0) - before[1] > 1000 * 400
        if end[0] in ("DISCARD", "EXEC"):
            clients(0, "MULTI")
        clients(0, *end)
        clients(1, "UNWATCH")
        assert clients.used == before[0]
        assert clients.tot_mem(0) < before[1] + 10_000  # with the buffer of the reply


def test_keys_of_a_blocked_client_count_until_it_is_served_or_closed(clients):
    before = clients.used
    clients(0, "XREAD", "BLOCK", "0", "STREAMS", *names(1000), *["$"] * 1000)
    assert clients.used - before > 1000 * 800
    assert clients.tot_mem(0) > 1000 * 800
    clients.engine.close(clients.sessions[0])
    assert clients.used == before
    clients(1, "XREAD", "BLOCK", "100", "STREAMS", "s", "$")
    assert clients.used > before
    clients.engine.tick(NOW_MS + 100)
    assert clients.used == before


def test_writes_are_rejected_when_watched_keys_fill_the_memory(clients):
    clients.engine.keyspace.memory.limit = 100_000
    assert clients(0, "XADD", "s", "1-0", "f", "v").startswith(b"$")
    clients(1, "WATCH", *names(1000))
    assert clients(0, "XADD", "s", "2-0", "f", "v").startswith(b"-OOM")
    clients(1, "UNWATCH")
    assert clients(0, "XADD", "s", "2-0", "f", "v").startswith(b"$")
