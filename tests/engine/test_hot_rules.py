"""HOT-BYTES and HOT-AGE: how much of one stream is in memory."""

import pytest

from headrace.engine.engine import Engine
from headrace.keyspace.cold_storage import RETRY_MS
from headrace.keyspace.hot_rules import CHECK_MS
from support.cold_support import RunsInMemory

DAY_MS = 86_400_000


class Client:
    """A client of an engine with a clock, whose nodes have three entries and whose runs have one node."""

    def __init__(self):
        self.now = 10 * DAY_MS
        self.engine = Engine()
        self.engine.set_effect_recording(True)
        self.engine.keyspace.settings.stream_node_max_entries = 3
        self.engine.rule_registry.open_cold_storage = self.open
        self.session = self.engine.create_session()

    def open(self):
        if self.engine.cold_storage is None:
            self.engine.open_cold_storage(RunsInMemory(), 0).run_bytes = 1

    def __call__(self, line):
        self.engine.execute(self.session, line.encode().split(), self.now)
        return self.session.reply.take()

    def add(self, key, entries):
        for _ in range(entries):
            self(f"XADD {key} * f v")
            self.now += 1

    def wait(self, ms):
        """Let time pass, and do what becomes due; return how often something was."""
        end, steps = self.now + ms, 0
        while 0 <= (due := self.engine.next_deadline()) <= end:
            steps += 1
            assert steps < 10_000
            self.now = max(self.now, due)
            self.engine.tick(self.now)
        self.now = end
        return steps

    def stream(self, key):
        return self.engine.keyspace.databases[0].stream(key.encode())

    def hot(self, key):
        """The number of nodes in memory."""
        stream = self.stream(key)
        return stream.nodes.key_count - stream.run_count()


@pytest.fixture
def client():
    return Client()


def test_hot_bytes_bounds_the_nodes_in_memory_of_this_stream_only(client):
    client.add("s", 60)
    client.add("t", 60)
    assert client("XCFGSET s HOT-BYTES 3000") == b"+OK\r\n"
    client.wait(1000)
    assert 3 <= client.hot("s") <= 8
    assert client.hot("t") == 20
    before = client.hot("s")
    client.add("s", 300)
    client.wait(1000)
    assert abs(client.hot("s") - before) <= 1
    assert client("XLEN s") == b":360\r\n"
    assert client("XRANGE s - +").count(b"$1\r\nv\r\n") == 360
    assert client("XCFGSET s HOT-BYTES 0") == b"+OK\r\n"
    client.add("s", 60)
    client.wait(1000)
    assert client.hot("s") >= before + 19


def test_an_idle_server_does_not_look_again_and_again(client):
    client.add("s", 60)
    client("XCFGSET s HOT-BYTES 3000")
    client.wait(2 * CHECK_MS + 10_000)
    assert client.engine.next_deadline() < 0 or client.wait(3_600_000) < 1000  # files are looked for
    assert client.engine.cold_storage.runs_stored > 0
    stored = client.engine.cold_storage.runs_stored
    client.wait(3_600_000)
    assert client.engine.cold_storage.runs_stored == stored


def test_hot_age_moves_nodes_whose_entries_are_all_older(client):
    client.add("s", 9)
    client("XCFGSET s HOT-AGE 60000")
    client.engine.cold_storage.run_bytes = 256 << 10
    client.wait(59_000)
    client.add("s", 3)
    assert client.hot("s") == 4
    client.wait(7500)  # an incomplete run waits for a tenth of the age
    assert client.hot("s") == 1
    client.add("s", 1)
    client.wait(58_000)
    assert client.hot("s") == 2
    client.wait(3_600_000)
    assert client.hot("s") == 1
    assert client("XLEN s") == b":13\r\n"


def test_a_whole_run_of_old_nodes_does_not_wait(client):
    client("XADD s 1-0 f v")
    client("XCFGSET s HOT-AGE 60000")
    client("XTRIM s MAXLEN 0")
    client.add("s", 30)
    client.engine.cold_storage.run_bytes = 100
    client.wait(60_100)
    client("XADD t * f v")  # it looks again after any change
    client.wait(200)
    assert client.hot("s") <= 3  # less than a run is left


def test_the_rules_hold_after_a_copy_and_end_with_the_stream(client):
    client.add("s", 60)
    client("XCFGSET s HOT-BYTES 1500")
    client("COPY s t")
    client("RENAME t u")
    client.wait(1000)
    assert client.hot("s") < 5
    assert client.hot("u") < 5
    client("DEL s u")
    assert not client.engine.rule_registry.hot_rule_streams
    client.wait(1000)


def test_each_of_many_streams_is_looked_at(client):
    for number in range(500):
        client(f"XCFGSET s{number} MKSTREAM HOT-BYTES 1000")
    client.wait(1000)
    for number in range(500):
        client.add(f"s{number}", 12)
    client.wait(5000)
    assert all(client.hot(f"s{number}") <= 3 for number in range(500))


def test_a_failure_is_tried_again(client):
    client.add("s", 60)
    client("XCFGSET s HOT-BYTES 1500")
    client.engine.cold_storage.store.error = OSError(28, "No space left on device")
    client.wait(10 * RETRY_MS)
    assert client.hot("s") == 20
    assert 5 <= client.engine.cold_storage.failures <= 11
    client.engine.cold_storage.store.error = None
    client.wait(2 * RETRY_MS)
    assert client.hot("s") < 5


def test_setting_a_rule_is_recorded_and_moving_nodes_is_not(client):
    client.add("s", 60)
    client.engine.effects.take()
    client("XCFGSET s HOT-BYTES 1500 HOT-AGE 60000")
    client.wait(1000)
    [(_, effect)] = client.engine.effects.take()
    assert effect[0] == b"PUBLISH"
    assert b"HOT-AGE" in effect[2]
    assert client("XINFO STREAM s").endswith(
        b"$5\r\nrules\r\n*4\r\n$9\r\nHOT-BYTES\r\n$4\r\n1500\r\n$7\r\nHOT-AGE\r\n$5\r\n60000\r\n"
    )


def test_a_read_only_replica_moves_its_own_nodes(client):
    client.add("s", 60)
    client("XCFGSET s HOT-BYTES 1500")
    client.engine.write_gate.set_read_only(True)
    client.engine.keyspace.hide_expired = True
    client.wait(1000)
    assert client.hot("s") < 5


def test_without_a_data_directory_the_rules_are_rejected(client):
    client.engine.rule_registry.open_cold_storage = None
    client.add("s", 3)
    error = b"-ERR HOT-BYTES and HOT-AGE need a data directory, and these data are in memory only\r\n"
    assert client("XCFGSET s HOT-BYTES 1500 MAX-LEN 5") == error
    assert client("XCFGSET s HOT-AGE 1") == error
    assert client("XCFGSET t MKSTREAM HOT-AGE 1") == error
    assert b"rules" not in client("XINFO STREAM s")
    assert client("EXISTS t") == b":0\r\n"
    assert client("XCFGSET s HOT-BYTES 0 HOT-AGE -") == b"+OK\r\n"
