"""An engine whose streams are cold as soon as possible replies and records what one without limit does."""

import random

import pytest

from headrace.engine.engine import Engine
from headrace.errors import DamagedColdRun
from headrace.streams.node_walk import EntryWalk
from headrace.streams.stream import Stream
from support.cold_support import RunsInMemory
from support.command_generator import CommandGenerator

LOST = b"-COLDERR the entries 1-0 to 10-0 cannot be read: cold file lost.cold, at byte 0: it is lost\r\n"
STATE = (b"XLEN s", b"XPENDING s g", b"XPENDING s g - + 9", b"XINFO CONSUMERS s g")
SEEDS = range(6)
TURNS = 400
LATER = 6000  # ms, after which runs to be written again are searched


class Cold:
    """An engine that moves nodes to files after each command, and loads them at once or later."""

    def __init__(self, seed, later, rewriting=False):
        self.engine = Engine()
        self.engine.set_effect_recording(True)
        self.chance = random.Random(seed)
        self.cold = self.engine.open_cold_storage(RunsInMemory(), 1)
        self.cold.run_bytes = self.chance.choice([40, 200, 1000])
        self.cold.cache.limit = self.chance.choice([1, 2000, 1 << 20])
        self.rewriting = rewriting
        self.later = 0
        self.waiting = []
        if later:
            self.engine.enable_parking(self.waiting.append)
        self.session = self.engine.create_session()

    def execute(self, argv, now):
        self.engine.execute(self.session, argv, now)
        while self.waiting:
            run = self.waiting.pop(0)
            self.engine.on_run_loaded(run, self.cold.store.load(run.storage_location), now)
        if self.chance.random() < 0.7:
            self.cold.cool_all_to_limit()
        if self.rewriting and self.chance.random() < 0.3:
            stored = self.cold.store.stored
            self.cold.store.stale = {place for place in stored if self.chance.random() < 0.3}
            self.later = max(self.later, now) + LATER
            for _ in range(4):
                self.cold.step(self.later)
            self.cold.store.stale.clear()


def hot_engine():
    engine = Engine()
    engine.set_effect_recording(True)
    return engine, engine.create_session()


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    "grammar", ["streams", "groups", "policies", "changes", "group_changes", "crashes_with_rules"]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_replies_and_effects_are_the_same(seed, grammar, later):
    compare_with_hot(Cold(seed, later), grammar, seed)


@pytest.mark.parametrize("grammar", ["policies", "groups", "group_changes"])
@pytest.mark.parametrize("seed", SEEDS)
def test_replies_stay_the_same_when_runs_are_written_again(seed, grammar):
    cold = Cold(seed, later=True, rewriting=True)
    cold.cold.cache.limit = 1
    compare_with_hot(cold, grammar, seed)
    assert cold.cold.runs_rewritten


def compare_with_hot(cold, grammar, seed):
    hot, session = hot_engine()
    stored = 0
    for engine, client in ((hot, session), (cold.engine, cold.session)):
        engine.keyspace.settings.stream_node_max_entries = 3
        engine.keyspace.settings.stream_compact_tombstones = (
            False  # it leaves cold runs alone, which DUMP shows
        )
        engine.execute(client, [b"XGROUP", b"CREATE", b"s", b"g", b"0", b"MKSTREAM"], 1000)
        client.reply.take()
        engine.effects.take()
    now = 1000
    for argv in CommandGenerator(grammar, seed).commands(TURNS):
        now += 7
        hot.tick(now)
        cold.engine.tick(now)
        hot.execute(session, list(argv), now)
        cold.execute(list(argv), now)
        assert (cold.session.waiter is None) == (session.waiter is None), argv
        if session.waiter is not None:
            hot.unblock(session)
            cold.engine.unblock(cold.session)
        ours, theirs = cold.session.reply.take(), session.reply.take()
        if argv[0].upper() not in (b"XINFO", b"MEMORY", b"INFO", b"DEBUG"):
            assert ours == theirs, argv
        assert cold.engine.effects.take() == hot.effects.take(), argv
        hot.take_woken()
        cold.engine.take_woken()
        stored = max(stored, cold.cold.runs_stored)
    cold.cold.hot_bytes_limit = 1 << 30  # DUMP rejects what is larger than memory
    for key in list(hot.keyspace.databases[0].values):
        hot.execute(session, [b"DUMP", key], now)
        cold.execute([b"DUMP", key], now)
        assert cold.session.reply.take() == session.reply.take() or cold.rewriting
        value = cold.engine.keyspace.databases[0].values.find(key)
        if hasattr(value, "check"):
            value.check()
    assert stored or grammar == "streams"


def talk(engine, session, line, now=1000):
    engine.execute(session, line.split(), now)
    return session.reply.take()


def cold_engine(entries=100, later=None):
    """An engine with a stream s whose nodes are cold but the last, and a session."""
    engine = Engine()
    engine.keyspace.settings.stream_node_max_entries = 5
    cold = engine.open_cold_storage(RunsInMemory(), 1)
    cold.run_bytes = 100
    if later is not None:
        engine.enable_parking(later.append)
    session = engine.create_session()
    for number in range(1, entries + 1):
        talk(engine, session, b"XADD s %d-0 n %d" % (number, number))
    cold.cool_all_to_limit()
    return engine, session, cold


def load_all(engine, cold, asked):
    """Load the runs that parked requests wait for, until none does."""
    while asked:
        run = asked.pop(0)
        try:
            stored = cold.store.load(run.storage_location)
        except DamagedColdRun:
            stored = None
        engine.on_run_loaded(run, stored, 1000)


def test_a_parked_request_waits_for_its_run_and_others_go_on():
    asked = []
    engine, session, cold = cold_engine(later=asked)
    other = engine.create_session()
    assert talk(engine, session, b"XRANGE s 1 1") == b"" and session.waiter is not None
    assert talk(engine, other, b"XLEN s") == b":100\r\n"
    assert talk(engine, other, b"XRANGE s 2 2") == b"" and len(asked) == 1  # the same run is read once
    engine.on_run_loaded(asked[0], cold.store.load(asked[0].storage_location), 1000)
    assert engine.take_woken() == [session, other]
    assert b"$3\r\n1-0" in session.reply.take() and b"$3\r\n2-0" in other.reply.take()


def test_a_parked_request_counts_its_lookups_once():
    asked = []
    engine, session, cold = cold_engine(later=asked)
    counts = []
    for _ in range(2):  # the second read finds the run in the cache
        hits, misses = engine.keyspace.hits, engine.keyspace.misses
        talk(engine, session, b"XREAD COUNT 1 STREAMS missing s 0 0")
        load_all(engine, cold, asked)
        counts.append((engine.keyspace.hits - hits, engine.keyspace.misses - misses))
    assert engine.parking.parked_count == 1
    assert counts[0] == counts[1] and min(counts[0]) > 0


def test_a_client_that_leaves_while_its_request_is_parked():
    asked = []
    engine, session, cold = cold_engine(later=asked)
    talk(engine, session, b"XRANGE s 1 1")
    engine.close(session)
    engine.on_run_loaded(asked[0], cold.store.load(asked[0].storage_location), 1000)
    assert engine.take_woken() == [] and not engine.parking.waiters_by_run and not engine.parking.times_parked


def test_a_read_of_more_runs_than_the_cache_holds_ends():
    asked = []
    engine, session, cold = cold_engine(later=asked)
    cold.cache.limit = 1
    talk(engine, session, b"XRANGE s - +")
    turns = 0
    while session.waiter is not None:
        run = asked.pop(0)
        engine.on_run_loaded(run, cold.store.load(run.storage_location), 1000)
        turns += 1
    assert turns <= 10 and session.reply.take().startswith(b"*100\r\n")


@pytest.mark.parametrize("line", [b"XRANGE s 0-5 + COUNT 25", b"XREAD COUNT 25 STREAMS s 0"])
def test_all_runs_of_a_read_are_loaded_at_once_and_the_next_one_ahead(line):
    asked = []
    engine, session, cold = cold_engine(later=asked)
    assert talk(engine, session, line) == b"" and len(asked) == 4  # of ten entries each
    load_all(engine, cold, asked)
    assert engine.parking.parked_count == 1 and session.reply.take().count(b"-0\r\n") == 25
    assert talk(engine, session, b"XRANGE s 31 + COUNT 3").count(b"-0\r\n") == 3 and asked == []
    assert talk(engine, session, b"XRANGE s 31 40 COUNT 99").count(b"-0\r\n") == 10 and asked == []
    assert talk(engine, session, b"XREVRANGE s 40 31").count(b"-0\r\n") == 10 and asked == []
    assert talk(engine, session, b"XREAD COUNT 3 STREAMS s 34").count(b"-0\r\n") == 3 and asked == []
    assert talk(engine, session, b"XREAD COUNT 4 STREAMS s 37") == b"" and len(asked) == 2
    load_all(engine, cold, asked)
    assert session.reply.take().count(b"-0\r\n") == 4
    assert talk(engine, session, b"XRANGE s 75 + COUNT 3") == b"" and len(asked) == 1  # not in order


def test_a_lost_run_is_not_read_ahead_again_and_again():
    asked = []
    engine, session, cold = cold_engine(later=asked)
    cold.store.stored.pop(1)
    talk(engine, session, b"XREAD COUNT 10 STREAMS s 0")
    assert len(asked) == 2
    load_all(engine, cold, asked)
    assert session.reply.take().count(b"-0\r\n") == 10
    assert talk(engine, session, b"XREAD COUNT 10 STREAMS s 0").count(b"-0\r\n") == 10 and asked == []
    talk(engine, session, b"XREAD COUNT 10 STREAMS s 10")
    load_all(engine, cold, asked)
    assert session.reply.take().startswith(b"-COLDERR the entries 11-0 to 20-0")


def test_a_lost_run_is_an_error_that_changes_nothing():
    asked = []
    for later in (None, asked):
        engine, session, cold = cold_engine(later=later)
        talk(engine, session, b"XGROUP CREATE s g 0")
        for number in (2, 20):
            talk(engine, session, b"XCLAIM s g ann 0 %d FORCE JUSTID" % number)
            load_all(engine, cold, asked)
        session.reply.take()
        engine.keyspace.cold_storage.cache.limit = 1
        talk(engine, session, b"XRANGE s 90 90")
        load_all(engine, cold, asked)
        session.reply.take()
        before = [talk(engine, session, line) for line in STATE]
        cold.store.stored.pop(0)
        engine.set_effect_recording(True)
        for line in (
            b"XRANGE s - +",
            b"XREADGROUP GROUP g ann COUNT 1 STREAMS s >",
            b"XREADGROUP GROUP g ann STREAMS s 0",
            b"XDEL s 20 1",
            b"XDELEX s IDS 2 20 1",
            b"XACKDEL s g IDS 2 20 2",
            b"XCLAIM s g bob 0 20 2",
            b"XAUTOCLAIM s g bob 0 0",
            b"XNACK s g FAIL IDS 2 20 1 FORCE",
        ):
            engine.execute(session, line.split(), 1000)
            load_all(engine, cold, asked)
            assert session.reply.take() == LOST, line
            assert engine.effects.take() == [], line
        assert [talk(engine, session, line) for line in STATE] == before
        if later is None:
            assert b"$4\r\n20-0" in talk(engine, session, b"XRANGE s 20 20")


def test_nodes_without_live_entries_become_cold_only_with_others():
    engine = Engine()
    cold = engine.open_cold_storage(RunsInMemory(), 1)
    cold.run_bytes = 10
    stream = Stream()
    stream.compaction = engine.keyspace.compaction
    for ms in range(1, 9):
        node = Stream()
        node.append(ms, 0, [b"f", b"v"], 0, 0, 1)
        walk = EntryWalk(node.tail)
        if ms not in (3, 8) and walk.next():
            node.tail.mark_deleted(walk.at)
            node.tail.set_counts(0, 1)
        stream.append_stored_node(node.tail.key(), node.tail.pack.to_bytes())
    stream.length, stream.entries_added = 2, 8
    stream.update_first_id()
    engine.keyspace.databases[0].put(b"s", stream)
    cold.cool_all_to_limit()
    stream.check()
    assert (cold.runs_stored, stream.cold.totals.node_count, len(stream.nodes)) == (1, 3, 6)
    assert not cold.has_work()
    assert b"$3\r\n3-0" in talk(engine, engine.create_session(), b"XRANGE s - +")


def test_nodes_stay_in_memory_if_they_cannot_be_stored(caplog):
    engine = Engine()
    engine.keyspace.settings.stream_node_max_entries = 5
    cold = engine.open_cold_storage(RunsInMemory(), 1)
    cold.store.error = OSError(28, "No space left on device")
    session = engine.create_session()
    for number in range(1, 30):
        talk(engine, session, b"XADD s %d-0 n %d" % (number, number))
    for now in (2000, 2100, 2900):
        engine.tick(now)
    assert cold.failures == 1 and cold.last_error == "no space left on device"
    assert engine.next_deadline() == 3000
    engine.tick(3000)
    assert cold.failures == 2 and len(caplog.records) == 1
    cold.store.error = None
    engine.tick(4000)
    assert cold.last_error == "" and cold.runs_stored == 1
    assert (
        talk(engine, session, b"XRANGE s - + COUNT 1")
        == b"*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nn\r\n$1\r\n1\r\n"
    )


def test_nodes_that_change_while_they_are_stored():
    engine = Engine()
    engine.keyspace.settings.stream_node_max_entries = 5
    cold = engine.open_cold_storage(RunsInMemory(), 1)
    cold.run_bytes = 200
    batches = []
    cold.start_writing = batches.append
    session = engine.create_session()
    for number in range(1, 101):
        talk(engine, session, b"XADD s %d-0 n %d" % (number, number))
    engine.tick(2000)
    (batch,) = batches
    assert len(batch) > 3
    places = cold.write(batch)
    talk(engine, session, b"XTRIM s MAXLEN = 95")  # drops a node of the first run
    second = batch[1].nodes[1]
    talk(engine, session, b"XDEL s %d" % second.ms)
    cold.replace_with_stored_runs(batch, places)
    stream = engine.keyspace.databases[0].values.find(b"s")
    stream.check()
    assert cold.runs_given_up == 1 and cold.runs_stored == len(batch) - 1
    assert talk(engine, session, b"XLEN s") == b":94\r\n"
    assert talk(engine, session, b"XRANGE s - +").startswith(b"*94\r\n")
    talk(engine, session, b"DEL s")
    assert not cold.has_work()


def test_a_trim_ends_before_a_lost_run_and_is_recorded():
    engine, session, cold = cold_engine()
    engine.set_effect_recording(True)
    runs = [place for place in cold.store.stored if place > 0]
    second = runs[0]
    first = talk(engine, session, b"XLEN s")
    cold.store.stored.pop(second)
    assert talk(engine, session, b"XTRIM s MAXLEN = 85") == b":10\r\n"  # 15 without the loss
    assert [argv for _, argv in engine.effects.take()] == [[b"XTRIM", b"s", b"MAXLEN", b"=", b"90"]]
    assert first == b":100\r\n" and talk(engine, session, b"XLEN s") == b":90\r\n"
    assert talk(engine, session, b"XTRIM s MAXLEN = 85").startswith(b"-COLDERR the entries 11-0 to 20-0")
    assert talk(engine, session, b"XTRIM s MAXLEN = 70") == b":20\r\n"  # the lost run as a whole, too
    engine.keyspace.databases[0].values.find(b"s").check()


TRIMS = [b"XTRIM s MAXLEN 75", b"XTRIM s MINID 26-0", b"XADD s MAXLEN 76 101-0 n 1", b"XTRIM s MAXLEN ~ 72"]


@pytest.mark.parametrize("line", TRIMS)
def test_a_trim_waits_for_the_run_in_which_it_ends_before_it_changes_anything(line):
    asked = []
    engine, session, cold = cold_engine(later=asked)
    other = engine.create_session()
    assert talk(engine, session, line) == b"" and len(asked) == 1
    assert talk(engine, other, b"XLEN s") == b":100\r\n"
    load_all(engine, cold, asked)
    assert session.reply.take() in (b":25\r\n", b"$5\r\n101-0\r\n")
    assert talk(engine, other, b"XLEN s") == (b":76\r\n" if b"XADD" in line else b":75\r\n")
    assert cold.store.loads == 1


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("line", [b"XADD s MAXLEN 99 101-0 n 1", b"XADD s MAXLEN 50 DELREF 101-0 n 1"])
def test_an_entry_whose_trim_would_begin_in_a_lost_run_is_not_added(line, later):
    asked = []
    engine, session, cold = cold_engine(later=asked if later else None)
    engine.set_effect_recording(True)
    del cold.store.stored[0]
    reply = talk(engine, session, line)
    load_all(engine, cold, asked)
    assert (reply or session.reply.take()) == LOST
    assert talk(engine, session, b"XLEN s") == b":100\r\n" and engine.effects.take() == []


@pytest.mark.parametrize("rules", [b"", b"XGROUP CFGSET s g ORDERED-BY n"])
def test_a_group_gets_what_precedes_a_lost_run_and_the_log_has_it(rules):
    engine, session, cold = cold_engine()
    hot, reader = hot_engine()
    for number in range(1, 101):
        talk(hot, reader, b"XADD s %d-0 n %d" % (number, number))
    for each, client in ((engine, session), (hot, reader)):
        talk(each, client, b"XADD a 1-0 n 1")
        for line in (b"XGROUP CREATE a g 0", b"XGROUP CREATE s g 0", rules):
            if line:
                talk(each, client, line)
    hot.effects.take()
    cold.cache.limit = 1
    cold.store.stored.pop(3)
    engine.set_effect_recording(True)
    read = talk(engine, session, b"XREADGROUP GROUP g ann COUNT 60 STREAMS a s > >")
    assert read.count(b"-0\r\n") == 1 + 30
    assert talk(engine, session, b"XREADGROUP GROUP g bob STREAMS s >").startswith(
        b"-COLDERR the entries 31-0"
    )
    claimed = talk(engine, session, b"XCLAIM s g ann 0 30 31 FORCE JUSTID")
    assert claimed.startswith(b"-COLDERR")
    for _, words in engine.effects.take():
        hot.execute(reader, list(words), 1000)
        assert not reader.reply.take().startswith(b"-"), words
    for line in (*STATE, b"XPENDING a g", b"XPENDING s g - + 99", b"XINFO GROUPS s", b"XINFO GROUPS a"):
        assert talk(engine, session, line) == talk(hot, reader, line), line


def test_a_claim_ends_before_a_lost_run():
    engine, session, cold = cold_engine(1200)
    talk(engine, session, b"XGROUP CREATE s g 0")
    cold.cache.limit = 1
    talk(engine, session, b"XREADGROUP GROUP g ann STREAMS s >")
    firsts = {int.from_bytes(nodes[0][0][:8]): place for place, nodes in cold.store.stored.items()}
    lost = min(first for first in firsts if first > 1050)  # a claim requires the runs of 1,000 entries
    cold.store.stored.pop(firsts[lost])
    reply = talk(engine, session, b"XAUTOCLAIM s g bob 0 0 COUNT 1200 JUSTID")
    assert reply.startswith(b"*3\r\n$6\r\n%d-0\r\n*%d\r\n" % (lost, lost - 1))
    assert b"$3\r\nbob\r\n$4\r\n%d\r\n" % (lost - 1) in talk(engine, session, b"XPENDING s g")
    again = talk(engine, session, b"XAUTOCLAIM s g bob 0 %d-0 COUNT 1200 JUSTID" % lost)
    assert again.startswith(b"-COLDERR the entries %d-0" % lost)
