"""Groups and deletions of a stream with a cold run that cannot be read."""

from __future__ import annotations

import pytest

from headrace.engine.engine import Engine
from support.cold_support import RunsInMemory
from support.engine_talk import decode

ENTRIES = 30
LOST = 1  # the second run: 4-0 to 6-0
LAST = 8  # the last one: 25-0 to 27-0


class Client:
    """A client of an engine whose runs have three entries each, of 1-0 to 27-0; lose() loses the second."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.engine.set_effect_recording(True)
        self.engine.keyspace.settings.stream_node_max_entries = 3
        self.store = RunsInMemory()
        self.cold = self.engine.open_cold_storage(self.store, 0)
        self.cold.run_bytes = 1
        self.cold.cache.limit = 1
        self.session = self.engine.create_session()
        for n in range(1, ENTRIES + 1):
            self.say("XADD", "s", f"{n}-0", "f", "v")
        self.say("XGROUP", "CREATE", "s", "g", "0")
        self.cold.hot_bytes_limit = 1
        self.cold.cool_all_to_limit()
        self.cold.hot_bytes_limit = 0

    def lose(self, lost: int = LOST) -> None:
        other = "1-0" if lost == LAST else "27-0"
        self.say("XRANGE", "s", other, other)  # the other runs leave the cache
        self.lost = {lost: self.store.stored.pop(lost)}

    def put_back(self) -> None:
        self.store.stored.update(self.lost)

    def say(self, *words: str) -> bytes:
        self.engine.execute(self.session, [word.encode() for word in words], 1000)
        return bytes(self.session.reply.take())

    def group(self, name: str = "g") -> dict[str, object]:
        reply, _ = decode(self.say("XINFO", "GROUPS", "s"))
        groups = [dict(zip(each[::2], each[1::2], strict=True)) for each in reply]
        return next(each for each in groups if each["name"] == name)

    def read(self, name: str = "g", count: int = 1) -> bytes:
        return self.say("XREADGROUP", "GROUP", name, "ann", "COUNT", str(count), "STREAMS", "s", ">")

    def losses(self, name: str = "g") -> object:
        return self.group(name).get("lost-unread", 0)


@pytest.mark.parametrize("after", range(ENTRIES + 2))
@pytest.mark.parametrize("command", ["CREATE", "SETID"])
def test_a_position_can_be_set_anywhere_and_nothing_is_changed_by_an_error(command: str, after: int) -> None:
    client = Client()
    client.lose()
    name = "h" if command == "CREATE" else "g"
    assert client.say("XGROUP", command, "s", name, f"{after}-0") == b"+OK\r\n"
    assert client.group(name)["last-delivered-id"] == f"{after}-0"
    assert client.losses(name) == 0
    before = client.group(name)
    reply = client.read(name)
    if 3 <= after < 6:
        assert reply.startswith(b"-COLDERR the entries 4-0 to 6-0 cannot be read")
        assert client.group(name)["last-delivered-id"] == before["last-delivered-id"]
    elif after < ENTRIES:
        assert b"%d-0" % (after + 1) in reply, reply
    client.put_back()
    while (reply := client.read(name, 7)) != b"*-1\r\n":
        assert reply.startswith(b"*"), reply
    assert client.losses(name) == 0 and client.group(name)["lag"] in (0, None)


def test_a_group_at_the_end_of_a_lost_run_counts_exactly() -> None:
    client = Client()
    client.lose()
    client.say("XGROUP", "SETID", "s", "g", "6-0")
    assert client.say("XLAG", "s", "g").startswith(b":24") or client.group()["lag"] in (24, None)
    client.say("XTRIM", "s", "MAXLEN", "20")
    assert client.losses() == 4, "7-0 to 10-0"


@pytest.mark.parametrize("position", ["2-0", "5-0", "6-0"])
def test_groups_are_shown_beside_a_lost_run(position: str) -> None:
    client = Client()
    client.say("XGROUP", "SETID", "s", "g", position)
    client.say("XTRIM", "s", "MAXLEN", str(ENTRIES - 1))
    client.lose()
    assert client.group()["last-delivered-id"] == position
    assert client.say("XGROUP", "SETID", "s", "g", "9-0") == b"+OK\r\n"
    assert client.losses() == 0
    assert client.say("XSETID", "s", "40-0") == b"+OK\r\n"
    assert client.losses() == 0


def test_the_log_of_a_group_is_replayed_beside_a_lost_run() -> None:
    """The commands that a log has of reads and acknowledgements need no entry."""
    source, target = Client(), Client()
    source.engine.effects.take()
    source.read(count=8)
    source.say("XACK", "s", "g", "1-0", "5-0")
    source.say("XCLAIM", "s", "g", "bob", "0", "4-0", "7-0")
    target.lose()
    effects = [argv for _, argv in source.engine.effects.take()]
    assert any(argv[0] == b"XCLAIM" for argv in effects)
    session = target.engine.create_session()
    session.replayed = True
    for argv in effects:
        target.engine.execute(session, argv, 1000)
        assert not bytes(session.reply.take()).startswith(b"-"), argv
    for words in (("XPENDING", "s", "g", "-", "+", "20"), ("XINFO", "CONSUMERS", "s", "g")):
        assert target.say(*words) == source.say(*words)
    assert target.group() == source.group()
    assert target.say("XCLAIM", "s", "g", "bob", "0", "6-0").startswith(b"-COLDERR"), "not a replay"


@pytest.mark.parametrize("command", [("XDEL", "s"), ("XDELEX", "s", "IDS"), ("XACKDEL", "s", "g", "IDS")])
@pytest.mark.parametrize("lost", [LOST, LAST])
def test_a_deletion_of_all_that_is_in_memory_is_done_or_changes_nothing(
    command: tuple[str, ...], lost: int
) -> None:
    """The last run comes back into memory then."""
    client = Client()
    client.read(count=ENTRIES)
    client.lose(lost)
    client.engine.effects.take()
    ids = [f"{n}-0" for n in range(28, ENTRIES + 1)]
    count = [] if command[0] == "XDEL" else ["3"]
    reply = client.say(*command, *count, *ids)
    effects = client.engine.effects.take()
    if lost == LAST:
        assert reply.startswith(b"-COLDERR the entries 25-0 to 27-0 cannot be read")
        assert client.say("XLEN", "s") == b":30\r\n" and not effects
        assert client.say(*command, *(["1"] if count else []), "29-0") != reply, "not all of them"
        client.put_back()
        reply = client.say(*command, *count, *ids)
    assert client.say("XLEN", "s") == b":27\r\n" and not reply.startswith(b"-")
    assert client.say("XADD", "s", "50-0", "f", "v") == b"$4\r\n50-0\r\n"
    assert client.say("XREVRANGE", "s", "+", "-", "COUNT", "2").count(b"-0") == 2


def test_the_last_run_comes_back_from_the_cache() -> None:
    client = Client()
    client.cold.cache.limit = 1 << 20
    client.say("XRANGE", "s", "25-0", "27-0")
    used = client.cold.cache.memory.total
    client.store.stored.pop(LAST)
    assert client.say("XDEL", "s", "28-0", "29-0", "30-0") == b":3\r\n"
    assert client.cold.cache.memory.total < used
    assert client.say("XRANGE", "s", "25-0", "+").count(b"-0") == 3
    assert client.say("XDEL", "s", "25-0", "26-0") == b":2\r\n"
    assert client.say("XRANGE", "s", "25-0", "+").count(b"-0") == 1
