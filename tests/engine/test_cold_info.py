"""XINFO STREAM of a stream with cold runs, and of one without."""

import pytest

from headrace.client.stream_info import first_entry_id
from headrace.commands.server_interface import ServerInterface
from headrace.console.server_stats import stream_stats
from headrace.engine.engine import Engine
from support.cold_support import RunsInMemory
from support.engine_talk import decode

FIELDS = ["cold-entries", "cold-bytes", "cold-files"]


class Client:
    """A client of an engine whose nodes have three entries, and become cold by cool()."""

    def __init__(self, protocol=2):
        self.engine = Engine()
        self.engine.keyspace.settings.stream_node_max_entries = 3
        self.cold = self.engine.open_cold_storage(RunsInMemory(), 0)
        self.cold.run_bytes = 1
        self.session = self.engine.create_session()
        self.execute("HELLO", protocol)

    def execute(self, *words):
        self.engine.execute(self.session, [str(word).encode() for word in words], 1000)
        return self.session.reply.take()

    def add(self, entries):
        for n in range(1, entries + 1):
            self.execute("XADD", "s", f"{n}-0", "f", "v")

    def cool(self):
        self.cold.hot_bytes_limit = 1
        self.cold.cool_all_to_limit()
        self.cold.hot_bytes_limit = 0

    def info(self, *more):
        reply, rest = decode(self.execute("XINFO", "STREAM", "s", *more))
        assert not rest
        return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))

    def cold_fields(self, *more):
        info = self.info(*more)
        return [info.get(name) for name in FIELDS]


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("more", [(), ("FULL",), ("FULL", "COUNT", "1")])
def test_the_fields_are_there_while_there_are_runs(protocol, more):
    client = Client(protocol)
    client.add(30)
    hot = client.info(*more)
    assert not set(FIELDS) & set(hot)
    memory = client.engine.keyspace.databases[0].stream(b"s").memory.total
    client.cool()
    info = client.info(*more)
    assert info["cold-entries"] == 27
    assert memory * 0.8 < info["cold-bytes"] < memory
    assert info["cold-files"] == 3  # of three runs each
    assert info.pop("cold-file-names", None) == (["0", "1", "2"] if more else None)
    assert {name: value for name, value in info.items() if name not in FIELDS} == hot
    client.execute("XTRIM", "s", "MINID", "25-0")
    assert client.cold_fields(*more)[::2] == [3, 1]
    client.execute("XTRIM", "s", "MINID", "28-0")
    assert set(client.info(*more)) == set(hot)


def test_the_rules_are_last():
    client = Client()
    client.add(30)
    client.execute("XCFGSET", "s", "MAX-LEN", "1000")
    client.cool()
    assert list(client.info())[-4:] == [*FIELDS, "rules"]
    assert list(client.info("FULL"))[-5:] == [*FIELDS, "cold-file-names", "rules"]


def test_deletions_and_copies_are_counted():
    client = Client()
    client.add(30)
    client.cool()
    client.execute("XDEL", "s", "1-0", "2-0", "3-0", "5-0")
    assert client.cold_fields()[::2] == [23, 3]
    client.execute("COPY", "s", "t")
    before = client.cold_fields()
    client.execute("DEL", "s")
    client.execute("RENAME", "t", "s")
    assert client.cold_fields() == before


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_lost_first_run_is_shown_as_an_error_beside_all_else(protocol):
    client = Client(protocol)
    client.add(30)
    client.execute("XDEL", "s", "1-0")
    client.cool()
    client.cold.cache.limit = 1
    before = client.info()
    client.execute("XRANGE", "s", "20", "20")  # the first run leaves the cache
    client.cold.store.stored.clear()
    info = client.info()
    assert info.pop("first-entry") is None
    assert info.pop("cold-error").startswith("the entries 2-0 to 3-0 cannot be read: cold file lost.cold")
    assert info["recorded-first-entry-id"] == "2-0"
    assert info == {name: value for name, value in before.items() if name != "first-entry"}
    assert list(info)[-3:] == FIELDS
    assert client.execute("XINFO", "STREAM", "s", "FULL").startswith(b"-COLDERR")
    client.execute("XADD", "t", "1-0", "f", "v")
    client.execute("XTRIM", "s", "MAXLEN", "0")
    assert "cold-error" not in client.info()


def test_readers_of_xinfo_know_the_first_id_of_a_lost_run():
    reply = {"first-entry": None, "recorded-first-entry-id": b"2-0"}
    assert first_entry_id(reply) is None
    assert first_entry_id(reply | {"cold-error": b"it is lost"}) == b"2-0"
    assert first_entry_id(reply | {"first-entry": (b"5-0", {})}) == b"5-0"
    stats = stream_stats(0, b"s", {**reply, "length": 3, "cold-error": b"it is lost"})
    assert stats.first_entry_id == b"2-0"
    assert stream_stats(0, b"s", {**reply, "length": 3}).first_entry_id is None


def test_dump_of_a_stream_larger_than_memory_is_rejected():
    client = Client()
    client.add(30)
    hot = client.execute("DUMP", "s")
    client.cool()
    assert client.execute("DUMP", "s") == hot, "no limit is set"
    client.cold.hot_bytes_limit = 1000
    assert client.execute("DUMP", "s") == hot, "the cache has room for it"
    client.cold.cache.limit = 100
    error = client.execute("DUMP", "s")
    assert error.startswith(b"-ERR the stream takes ") and b"cold-cache-memory together (1100)" in error
    assert b"XRANGE" in error and b"headrace export" in error
    assert client.execute("COPY", "s", "t") == b":1\r\n"
    client.execute("XTRIM", "s", "MAXLEN", "2")
    assert client.execute("DUMP", "s").startswith(b"$")


def test_dump_of_a_stream_larger_than_an_argument_is_rejected(monkeypatch):
    client = Client()
    client.add(30)
    client.cool()
    monkeypatch.setattr(ServerInterface, "config_get", lambda self, patterns: [(patterns[0], b"500")])
    assert b"proto-max-bulk-len (500)" in client.execute("DUMP", "s")
    client.execute("XADD", "hot", "1-0", "f", "v" * 1000)
    assert client.execute("DUMP", "hot").startswith(b"$")
