"""Cold runs that are written again: what they keep, when they are, and what may happen meanwhile."""

import random

import pytest

from headrace.engine.engine import Engine
from support.cold_support import RunsInMemory

LATER = 6000  # ms, after which runs are searched


class Fixture:
    """An engine with a stream s of 100 entries, ten in each run, and the same stream without cold runs."""

    def __init__(self, writer=None):
        self.engines = [Engine(), Engine()]
        self.sessions = [engine.create_session() for engine in self.engines]
        self.cold = self.engines[0].open_cold_storage(RunsInMemory(), 1)
        self.cold.run_bytes = 100
        self.now = 1000
        for engine in self.engines:
            engine.keyspace.settings.stream_node_max_entries = 5
        for number in range(1, 101):
            self.both(b"XADD s %d-0 n %d" % (number, number))
        self.cold.cool_all_to_limit()
        self.cold.run_bytes = 600  # of memory, when runs are written again
        self.cold.start_writing = writer

    def both(self, line):
        """Run a command in both; return the reply, which is the same."""
        replies = []
        for engine, session in zip(self.engines, self.sessions, strict=True):
            engine.execute(session, line.split(), self.now)
            replies.append(session.reply.take())
        assert replies[0] == replies[1], line
        return replies[0]

    def stream(self):
        return self.engines[0].keyspace.databases[0].values.find(b"s")

    def wait(self):
        """Let time pass."""
        for _ in range(3):
            self.now += LATER
            for _ in range(20):
                self.engines[0].tick(self.now)

    def compare(self):
        self.stream().check()
        for line in (b"XRANGE s - +", b"XREVRANGE s + -", b"XLEN s", b"XRANGE s 33 77 COUNT 7"):
            self.both(line)


def test_neighbours_with_few_entries_become_one_run():
    both = Fixture()
    runs = both.stream().run_count()
    for number in range(1, 61):
        if number % 10 not in (3, 7):
            both.both(b"XDEL s %d" % number)
    noted = both.stream().memory.total
    both.wait()
    assert both.cold.runs_rewritten >= 5 and both.stream().run_count() == runs - 4
    assert both.stream().memory.total < noted
    both.compare()
    rewritten = both.cold.runs_rewritten
    both.wait()
    assert both.cold.runs_rewritten == rewritten  # once is enough
    both.both(b"XTRIM s MAXLEN = 45")
    both.both(b"XDEL s 57")
    both.compare()


def test_files_and_runs_are_searched_also_while_a_server_always_writes():
    both = Fixture()
    both.wait()
    before = both.cold.store.removals
    for number in range(1, 9):
        both.both(b"XDEL s %d" % number)
    for number in range(1000, 1200):  # a batch is stored every 100 ms
        both.now += 100
        both.both(b"XADD s %d-0 n 1" % number)
        for _ in range(3):
            both.engines[0].tick(both.now)
    assert both.cold.store.removals - before >= 3 and both.cold.runs_rewritten > 0
    both.compare()


def test_half_a_run_stays_as_it_is():
    both = Fixture()
    for number in range(1, 91, 2):
        both.both(b"XDEL s %d" % number)
    both.wait()
    assert both.cold.runs_rewritten == 0


def test_runs_leave_files_of_which_most_is_dead():
    both = Fixture()
    stale = list(both.cold.store.stored)[:4]
    both.cold.store.stale.update(stale)
    both.wait()
    assert both.cold.runs_rewritten == 4
    for place in stale:
        both.cold.store.stored.pop(place)
    both.compare()


@pytest.mark.parametrize("change", [b"XDEL s 3", b"XTRIM s MAXLEN = 84", b"XTRIM s MAXLEN = 50"])
def test_a_change_while_runs_are_written_again_is_kept(change):
    batches = []
    both = Fixture(batches.append)
    for number in (1, 2, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18):
        both.both(b"XDEL s %d" % number)
    both.wait()
    (batch,) = batches
    places = both.cold.write(batch)
    both.both(change)
    both.cold.replace_with_stored_runs(batch, places)
    assert both.cold.runs_given_up == 1 and both.cold.runs_rewritten == 0
    both.compare()


def test_a_run_that_cannot_be_read_stays_and_the_others_are_written():
    both = Fixture()
    lost = next(iter(both.cold.store.stored))
    for first in (1, 51):
        for number in range(first, first + 8):
            both.both(b"XDEL s %d" % number)
    both.cold.cache.limit = 1
    both.both(b"XRANGE s 90 92")  # the other runs leave the cache
    stored = both.cold.store.stored.pop(lost)
    both.wait()
    assert both.cold.runs_given_up > 0 and both.cold.runs_rewritten == 1
    both.cold.store.stored[lost] = stored
    both.compare()
    both.both(b"XDEL s 9")
    both.wait()
    both.compare()


def test_a_full_disk_is_tried_again():
    both = Fixture()
    for number in range(1, 9):
        both.both(b"XDEL s %d" % number)
    both.cold.store.error = OSError(28, "No space left on device")
    both.wait()
    assert both.cold.failures > 0 and both.cold.last_error == "no space left on device"
    both.cold.store.error = None
    both.both(b"XDEL s 9")
    both.wait()
    assert both.cold.last_error == "" and both.cold.runs_rewritten > 0
    both.compare()


@pytest.mark.parametrize("seed", range(20))
def test_random_deletions(seed):
    chance = random.Random(seed)
    both = Fixture()
    both.cold.cache.limit = chance.choice([1, 1 << 20])
    for _ in range(40):
        numbers = [chance.randrange(1, 140) for _ in range(chance.randrange(1, 9))]
        line = chance.choice(
            [
                b"XDEL s " + b" ".join(b"%d" % number for number in numbers),
                b"XADD s * n 1",
                b"XTRIM s MAXLEN ~ %d" % chance.randrange(60, 100),
                b"XRANGE s %d + COUNT 9" % chance.randrange(100),
                b"COPY s t REPLACE",
            ]
        )
        if line.startswith(b"XADD"):
            line = b"XADD s %d-0 n 1" % (200 + both.now // 100)
        both.now += 100
        both.both(line)
        if chance.random() < 0.3:
            both.wait()
        both.compare()
    both.both(b"XRANGE t - +")
