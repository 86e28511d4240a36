"""How often waiting readers are tried: news must not cost keys times waiters times keys."""

from __future__ import annotations

import itertools
import sys
from collections import Counter

import pytest

from headrace.commands.session import Session
from headrace.engine.engine import Engine

NOW = 1_700_000_000_000
KEYS = [b"k%d" % i for i in range(50)]


class Tried:
    """An engine with one client that waits and one that writes."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.reader, self.writer = self.engine.create_session(), self.engine.create_session()

    def say(self, *words: bytes, session: Session | None = None) -> bytes:
        session = session or self.writer
        self.engine.execute(session, list(words), NOW)
        return session.reply.take()

    def misses(self) -> int:
        """Return how many keys tries have looked up and not found."""
        return self.engine.keyspace.misses


@pytest.fixture
def tried() -> Tried:
    return Tried()


def test_a_reader_of_many_keys_is_not_tried_for_keys_without_news(tried):
    tried.say(b"XREAD", b"BLOCK", b"0", b"STREAMS", *KEYS, *[b"$"] * len(KEYS), session=tried.reader)
    before = tried.misses()
    for key in KEYS[1:]:
        tried.say(b"SET", key, b"v")
    assert tried.misses() == before
    assert tried.reader.waiter is not None
    tried.say(b"XADD", KEYS[0], b"1-1", b"f", b"v")
    assert tried.reader.waiter is None
    assert tried.misses() - before <= len(KEYS)


def test_an_exec_does_not_try_a_reader_of_later_ids(tried):
    for key in KEYS:
        tried.say(b"XADD", key, b"1-1", b"f", b"v")
    tried.say(b"XREAD", b"BLOCK", b"0", b"STREAMS", *KEYS, *[b"5-5"] * len(KEYS), session=tried.reader)
    hits = tried.engine.keyspace.hits
    tried.say(b"MULTI")
    for key in KEYS:
        tried.say(b"XADD", key, b"2-1", b"f", b"v")
    tried.say(b"EXEC")
    assert tried.reader.waiter is not None
    assert tried.engine.keyspace.hits == hits


def test_a_reader_by_claim_is_tried_once_in_a_round(tried):
    for key in KEYS:
        tried.say(b"XGROUP", b"CREATE", key, b"g", b"0", b"MKSTREAM")
    pairs = [*KEYS, *[b">"] * len(KEYS)]
    head = [b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"0", b"CLAIM", b"1000", b"STREAMS"]
    tried.say(*head, *pairs, session=tried.reader)
    counts: Counter[str] = Counter()
    waiter = tried.reader.waiter
    assert waiter is not None
    blocking = tried.engine.keyspace.blocking
    for key in KEYS:
        blocking.signal(0, key)
    for index, key in blocking.take_ready():
        database = tried.engine.keyspace.databases[index]
        counts[str(waiter.begin_retry_if_useful(blocking.round_number, database, key))] += 1
    assert counts == {"True": 1, "False": len(KEYS) - 1}


def test_a_key_named_twice_is_waited_for_from_its_lowest_id(tried):
    ids = (b"7-0", b"3-0", b"9-0")
    tried.say(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"s", b"s", *ids, session=tried.reader)
    tried.say(b"XADD", b"s", b"2-0", b"f", b"v")
    assert tried.reader.waiter is not None
    tried.say(b"XADD", b"s", b"4-0", b"f", b"v")
    assert tried.reader.waiter is None
    assert tried.reader.reply.take().startswith(b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n4-0\r\n")


def test_a_reader_of_the_last_entry_is_tried_for_any_entry(tried):
    tried.say(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"s", b"9-0", b"+", session=tried.reader)
    tried.say(b"XADD", b"s", b"4-0", b"f", b"v")
    assert tried.reader.waiter is None


def test_a_group_reader_gets_an_error_when_its_group_is_removed(tried):
    for key in KEYS[:3]:
        tried.say(b"XGROUP", b"CREATE", key, b"g", b"0", b"MKSTREAM")
    words = [b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"0", b"STREAMS", *KEYS[:3], b">", b">", b">"]
    tried.say(*words, session=tried.reader)
    tried.say(b"XGROUP", b"DESTROY", KEYS[1], b"g")
    assert tried.reader.waiter is None
    assert tried.reader.reply.take().startswith(b"-NOGROUP")


def with_rules(tried: Tried, groups: int, *rules: bytes) -> None:
    """Create groups with rules, which have 1-0 to 3-0 pending, and a reader that waits in the first one."""
    for number in (b"1-0", b"2-0", b"3-0"):
        tried.say(b"XADD", b"s", number, b"f", number)
    for name in [b"g%d" % number for number in range(groups)]:
        tried.say(b"XGROUP", b"CREATE", b"s", name, b"0")
        tried.say(b"XREADGROUP", b"GROUP", name, b"ann", b"STREAMS", b"s", b">")
        tried.say(b"XGROUP", b"CFGSET", b"s", name, *rules)
    words = [b"XREADGROUP", b"GROUP", b"g0", b"bob", b"BLOCK", b"0", b"STREAMS", b"s", b">"]
    tried.say(*words, session=tried.reader)
    assert tried.reader.waiter is not None


def calls_of(tried: Tried, *words: bytes) -> int:
    """Return how many functions of Python a request calls; compiled ones are not counted."""
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(frame) if event == "call" else None)
    try:
        tried.say(*words)
    finally:
        sys.setprofile(None)
    return len(calls)


@pytest.mark.compiled  # a compiled loop visits the groups
def test_an_ack_beside_a_reader_calls_no_function_of_python_for_each_group():
    counts = []
    for groups in (10, 200):
        tried = Tried()
        with_rules(tried, groups, b"LEASE", b"60000", b"MAX-DELIVERIES", b"5")
        tried.engine.tick(NOW)
        counts.append(calls_of(tried, b"XACK", b"s", b"g0", b"1-0"))
    assert counts[0] == counts[1] > 0


def test_the_orders_of_many_groups_are_created_in_several_turns(tried):
    def orders() -> int:
        groups = tried.engine.keyspace.databases[0].stream(b"s").unsorted_groups()
        found = [group.pending.key_order for group in groups]
        return sum(order is not None and order.are_values_read for order in found)

    with_rules(tried, 120, b"LEASE", b"60000", b"ORDERED-BY", b"f")
    counts = [orders()]
    while counts[-1] < 120:
        tried.engine.tick(NOW)
        counts.append(orders())
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert 0 < max(steps) <= 50
