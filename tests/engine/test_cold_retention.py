"""Rules that limit a stream drop whole cold runs without reading them, and end before one that is lost."""

import pytest

from headrace.engine.engine import Engine
from support.cold_support import RunsInMemory

ENTRIES = 300


class Client:
    """A client of an engine with nodes of three entries; cold: in runs of about five nodes."""

    def __init__(self, cold):
        self.now = ENTRIES
        self.engine = Engine()
        self.engine.keyspace.settings.stream_node_max_entries = 3
        self.runs = RunsInMemory()
        self.session = self.engine.create_session()
        for n in range(1, ENTRIES + 1):
            self.execute("XADD", "s", f"{n}-0", "f", "v" * (n % 7))
        if cold:
            storage = self.engine.open_cold_storage(self.runs, 1)
            storage.run_bytes = 150
            storage.cool_all_to_limit()
            storage.hot_bytes_limit = 0
            assert storage.cache.cold_run_totals.run_count > 10

    def execute(self, *words):
        self.engine.execute(self.session, [str(word).encode() for word in words], self.now)
        return self.session.reply.take()

    def apply(self, *rules):
        """Set rules, let them do what they have to, and return the length of the stream."""
        assert self.execute("XCFGSET", "s", *rules) == b"+OK\r\n"
        for _ in range(50):
            self.engine.tick(self.now)
            self.engine.effects.items.clear()
        return int(self.execute("XLEN", "s")[1:])


@pytest.mark.parametrize(
    "rules",
    [
        ("MAX-LEN", 100),
        ("MAX-LEN", 101, "EXACT", 1),
        ("MAX-AGE", 121, "EXACT", 1),
        ("MAX-AGE", 120),
        ("MAX-LEN", 299),
    ],
)
def test_rules_remove_as_much_as_in_memory_and_read_only_the_last_run(rules):
    cold, hot = Client(True), Client(False)
    assert cold.apply(*rules) == hot.apply(*rules)
    assert cold.runs.loads <= 3
    assert cold.execute("XRANGE", "s", "-", "+") == hot.execute("XRANGE", "s", "-", "+")


def test_a_rule_ends_before_a_run_that_is_lost():
    client = Client(True)
    nodes = client.runs.stored.pop(5)
    first = int.from_bytes(nodes[0][0][:8], "big")
    assert client.apply("MAX-AGE", ENTRIES - first - 4) == ENTRIES - first + 1  # the limit is inside the run


def test_a_lost_run_is_dropped_as_a_whole():
    client = Client(True)
    del client.runs.stored[2]
    assert client.apply("MAX-LEN", 100) in range(100, 103)
