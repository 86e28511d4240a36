"""The link of a replica: conversations of real servers, cut at every byte, and bad ones."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from headrace.replication.replica_link import LinkError, LinkSettings, ReplicaLink
from headrace.resp.parser import RequestParser
from headrace.resp.request import request

VECTORS = sorted((Path(__file__).parent.parent / "conformance" / "vectors" / "repl").glob("*.json"))
SETTINGS = LinkSettings(7841, capabilities=("eof", "psync2"))
ID = "0123456789" * 4
SELECT = request(b"SELECT", b"0")
GETACK = request(b"REPLCONF", b"GETACK", b"*")
PING = request(b"PING")


class Owner:
    """What a link tells its owner, recorded."""

    def __init__(self) -> None:
        self.snapshot = b""
        self.told: list[tuple[object, ...]] = []

    def on_continue(self, history: str) -> None:
        self.told.append(("continue", history))

    def on_snapshot_begins(self, history: str, offset: int) -> None:
        self.told.append(("full", history, offset))

    def on_snapshot_bytes(self, data: bytes) -> None:
        self.snapshot += data

    def on_snapshot_complete(self) -> None:
        self.told.append(("complete",))


class Replica:
    """A link, what it has sent, and the commands that it has passed on."""

    def __init__(
        self,
        history: str | None = None,
        offset: int = 0,
        settings: LinkSettings = SETTINGS,
        failover: bool = False,
    ) -> None:
        self.owner = Owner()
        self.now = 1_000_000
        self.link = ReplicaLink(settings, self.owner, history, offset, self.now, failover)
        self.sent = b""
        self.applied: list[list[bytes]] = []
        self.raw = b""
        self.collect()

    def collect(self) -> None:
        if self.link.is_loading:
            self.link.on_snapshot_loaded(self.now)
        while (argv := self.link.command_reader().next()) is not None:
            self.applied.append(argv)
        self.raw += self.link.take_applied_bytes()
        self.sent += self.link.outgoing
        self.link.outgoing.clear()

    def receive(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.link.receive(piece, self.now)
            self.collect()

    def take_sent(self) -> bytes:
        sent, self.sent = self.sent, b""
        return sent


def online(offset: int = 100, settings: LinkSettings = SETTINGS) -> Replica:
    """A replica that has continued at this offset."""
    replica = Replica(ID, offset, settings)
    replica.receive(b"+PONG\r\n", b"+OK\r\n", b"+OK\r\n", b"+CONTINUE\r\n")
    replica.take_sent()
    return replica


def events_of(path: Path) -> list[tuple[int, str, bytes]]:
    """The conversation as (connection, side, bytes), without what only one kind of server says.

    Redis 8 may transfer the snapshot over a second connection, and Valkey announces its version.
    """
    found = []
    for event in json.loads(path.read_text())["events"]:
        if "conn" in event:
            data = event["data"]
            raw = base64.b64decode(data["b64"]) if isinstance(data, dict) else data.encode()
            found.append((event["conn"], event["from"], raw))
    if path.name == "redis-8.0.6_diskless.json":
        begin = next(i for i, e in enumerate(found) if e[2].startswith(b"+RDBCHANNELSYNC"))
        end = next(i for i, e in enumerate(found) if e[2].startswith(b"+FULLRESYNC"))
        del found[begin:end]
        found = [(1 if connection < 3 else connection, side, raw) for connection, side, raw in found]
    version = request(b"REPLCONF", b"version", b"9.1.2")
    cleaned = []
    announced = False
    for connection, side, raw in found:
        rest = raw.replace(version, b"").replace(b"$4\r\ncapa\r\n$16\r\nrdb-channel-repl\r\n", b"")
        rest = rest.replace(b"*7\r\n$8\r\nREPLCONF", b"*5\r\n$8\r\nREPLCONF")
        if announced and side == "M":
            rest = rest.removeprefix(b"+OK\r\n")
        announced = side == "R" and version in raw
        if rest:
            cleaned.append((connection, side, rest))
    return cleaned


def commands_in(stream: bytes) -> list[list[bytes]]:
    parser = RequestParser()
    parser.feed(stream)
    found = []
    while (argv := parser.next()) is not None:
        if argv[0].upper() not in (b"PING", b"REPLCONF"):
            found.append(argv)
    return found


def replay(events: list[tuple[int, str, bytes]], cut_event: int, cut: int) -> list[Replica]:
    """Replay the conversation, one piece of the primary cut in two; with a cut of -1 all cut into bytes."""
    replicas: list[Replica] = []
    connection = 0
    for number, (on, side, data) in enumerate(events):
        if on != connection:
            connection = on
            last = replicas[-1].link if replicas else None
            replicas.append(Replica(last.replication_id, last.offset) if last else Replica())
        replica = replicas[-1]
        if side == "M":
            at = cut if number == cut_event else 0
            pieces = [data[:at], data[at:]] if cut >= 0 else [data[i : i + 1] for i in range(len(data))]
            replica.receive(*pieces)
            continue
        if not replica.sent:  # an acknowledgement by the clock
            replica.now += 1000
            replica.link.tick(replica.now)
            replica.collect()
        assert replica.sent.startswith(data), (number, data, replica.sent)
        replica.sent = replica.sent.removeprefix(data)
    assert not any(replica.sent for replica in replicas)
    return replicas


def check_conversation(events: list[tuple[int, str, bytes]], replicas: list[Replica]) -> None:
    first, second = replicas
    by_primary = b"".join(data for on, side, data in events if side == "M" and on == events[0][0])
    stream = by_primary[by_primary.rindex(first.owner.snapshot) + len(first.owner.snapshot) :]
    if b"$EOF:" in by_primary:
        stream = stream[40:]
    assert first.owner.snapshot.startswith((b"REDIS", b"VALKEY")) and first.owner.snapshot[-9] == 0xFF
    assert first.raw == stream and first.applied == commands_in(stream)
    assert first.link.offset == len(stream)
    after = b"".join(data for on, side, data in events if side == "M" and on != events[0][0])
    after = after[after.index(b"+CONTINUE") :].partition(b"\r\n")[2]
    assert second.raw == after and second.applied == commands_in(after)
    assert second.link.offset == len(stream) + len(after)
    assert second.owner.told == [("continue", first.owner.told[0][1])]


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_a_captured_conversation_is_held_however_it_is_cut(path: Path) -> None:
    events = events_of(path)
    check_conversation(events, replay(events, -1, 0))
    check_conversation(events, replay(events, -1, -1))
    for number, (_, side, data) in enumerate(events):
        if side == "M":
            for cut in range(1, len(data)):
                check_conversation(events, replay(events, number, cut))


def test_all_conversations_are_there() -> None:
    assert len(VECTORS) == 6


def test_the_replica_introduces_itself_as_configured() -> None:
    settings = LinkSettings(7000, "replica.example", "mirror", "secret", capabilities=("eof", "headrace"))
    replica = Replica(settings=settings)
    answers = [
        b"-NOAUTH Authentication required.\r\n",
        b"+OK\r\n",
        b"-ERR no\r\n",
        b"-ERR no\r\n",
        b"-ERR\r\n",
    ]
    asked = [replica.take_sent()]
    for answer in answers:
        replica.receive(answer)
        asked.append(replica.take_sent())
    assert asked == [
        request(b"PING"),
        request(b"AUTH", b"mirror", b"secret"),
        request(b"REPLCONF", b"listening-port", b"7000"),
        request(b"REPLCONF", b"ip-address", b"replica.example"),
        request(b"REPLCONF", b"capa", b"eof", b"capa", b"headrace"),
        request(b"PSYNC", b"?", b"-1"),
    ]
    assert replica.link.state == "handshake"


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([b"-LOADING Redis is loading\r\n"], "answered PING with '-LOADING"),
        ([b"HTTP/1.1 400 Bad Request\r\n"], "answered PING with 'HTTP"),
        ([b"x" * 5000], "sent no line, but 'xxx"),
        (
            [b"+PONG\r\n", b"+OK\r\n", b"+OK\r\n", b"-NOMASTERLINK no\r\n"],
            "answered PSYNC with '-NOMASTERLINK",
        ),
        ([b"+PONG\r\n", b"+OK\r\n", b"+OK\r\n", b"-LOADING no\r\n"], "answered PSYNC with '-LOADING"),
        ([b"+PONG\r\n", b"+OK\r\n", b"+OK\r\n", b"+CONTINUE\r\n"], "answered PSYNC with '.CONTINUE'"),
        ([b"+PONG\r\n", b"+OK\r\n", b"+OK\r\n", b"+FULLRESYNC x 1\r\n"], "invalid replication ID"),
        (
            [b"+PONG\r\n", b"+OK\r\n", b"+OK\r\n", b"+FULLRESYNC %s %d\r\n" % (b"a" * 40, 2**63 - 1)],
            "an offset that is too large",
        ),
        (
            [b"+PONG\r\n", b"+OK\r\n", b"+OK\r\n", b"+FULLRESYNC %s %s\r\n" % (b"a" * 40, b"9" * 5000)],
            "a line of 50",
        ),
        (
            [b"+PONG\r\n", b"+OK\r\n", b"+OK\r\n", b"+FULLRESYNC %s 0\r\n$%s\r\n" % (b"a" * 40, b"9" * 30)],
            "an invalid size",
        ),
        ([b"+PONG\r\n", b"+OK\r\n", b"+OK\r\n", b"-ERR what\r\n", b"-ERR no\r\n"], "instead of a snapshot"),
        ([b"+PONG\r\n", b"+OK\r\n", b"+OK\r\n", b"-ERR what\r\n", b"$EOF:short\r\n"], "an invalid size"),
    ],
)
def test_an_answer_that_ends_the_link_is_in_the_error(answers: list[bytes], text: str) -> None:
    replica = Replica()
    with pytest.raises(LinkError, match=text):
        replica.receive(*answers)


def test_a_wrong_password_ends_the_link() -> None:
    replica = Replica(settings=LinkSettings(7000, password="wrong"))
    replica.receive(b"+PONG\r\n")
    with pytest.raises(LinkError, match="masterauth: '-WRONGPASS"):
        replica.receive(b"-WRONGPASS invalid username-password pair\r\n")


def test_line_feeds_keep_the_connection_alive_before_the_snapshot() -> None:
    replica = Replica()
    replica.receive(b"+PONG\r\n+OK\r\n+OK\r\n\n\n+FULLRESYNC %s 7\r\n\n\n$3\r\nRDB" % ID.encode() + SELECT)
    assert replica.owner.snapshot == b"RDB"
    assert replica.owner.told == [("full", ID, 7), ("complete",)]
    assert replica.applied == [[b"SELECT", b"0"]] and replica.link.offset == 7 + len(SELECT)


def test_a_primary_without_psync_is_followed_by_sync() -> None:
    replica = Replica(ID, 50)
    replica.receive(b"+PONG\r\n+OK\r\n+OK\r\n-ERR unknown command 'PSYNC'\r\n")
    assert replica.take_sent().endswith(b"SYNC\r\n")
    replica.receive(b"\n$3\r\nRDB" + SELECT + PING)
    assert replica.owner.snapshot == b"RDB" and replica.applied == [[b"SELECT", b"0"]]
    replica.now += 5000
    replica.link.tick(replica.now)
    replica.collect()
    assert replica.sent == b""  # it knows no offsets


def test_a_snapshot_may_contain_the_beginning_of_its_mark() -> None:
    mark = bytes(range(48, 88))
    replica = Replica()
    replica.receive(b"+PONG\r\n+OK\r\n+OK\r\n+FULLRESYNC %s 0\r\n$EOF:%s\r\n" % (ID.encode(), mark))
    snapshot = b"x" + mark[:39] + b"y" + mark[:-1] + b"z" + mark[:4]
    replica.receive(*[(snapshot + mark)[i : i + 1] for i in range(len(snapshot + mark))])
    assert replica.owner.snapshot == snapshot
    assert replica.link.snapshot_received == len(snapshot) and replica.link.snapshot_size == 0


def test_states_are_named_as_role_names_them() -> None:
    replica = Replica()
    states = [replica.link.state]
    for piece in (b"+PONG\r\n+OK\r\n+OK\r\n", b"+FULLRESYNC %s 0\r\n" % ID.encode(), b"$9\r\nRDB", b"RDBRDB"):
        replica.receive(piece)
        states.append(replica.link.state)
    assert states == ["handshake", "handshake", "sync", "sync", "connected"]


def test_getack_is_answered_with_the_offset_before_it() -> None:
    replica = online(100)
    replica.receive(SELECT + GETACK + PING)
    assert replica.sent == request(b"REPLCONF", b"ACK", b"%d" % (100 + len(SELECT)))
    assert replica.link.offset == 100 + len(SELECT + GETACK + PING)
    assert replica.raw == SELECT + GETACK + PING


def test_the_synced_offset_of_the_log_is_reported_and_again_when_it_was_asked_for() -> None:
    replica = online(100)
    replica.link.report_synced(100, replica.now)
    replica.receive(SELECT + GETACK)
    end = 100 + len(SELECT)
    assert replica.take_sent() == request(b"REPLCONF", b"ACK", b"%d" % end, b"FACK", b"100")
    replica.link.report_synced(end, replica.now)
    replica.collect()
    total = b"%d" % (end + len(GETACK))
    assert replica.take_sent() == request(b"REPLCONF", b"ACK", total, b"FACK", b"%d" % end)
    replica.link.report_synced(end + len(GETACK), replica.now)
    replica.collect()
    assert replica.sent == b""


def test_a_transaction_counts_when_its_exec_is_applied() -> None:
    replica = online(0)
    group = request(b"MULTI") + request(b"SET", b"a", b"1") + SELECT
    replica.receive(SELECT + group)
    assert replica.link.offset == len(SELECT) and replica.raw == SELECT
    replica.receive(request(b"exec"))
    assert replica.raw == SELECT + group + request(b"exec")
    assert replica.link.offset == len(replica.raw)


def test_a_command_cut_in_the_middle_stays_in_the_buffer() -> None:
    replica = online(0)
    command = request(b"XADD", b"s", b"1-1", b"field", b"value" * 10_000)
    for at in (1, 3, 4, 5, 100, len(command) - 1):
        replica.receive(SELECT, command[:at])
        before = replica.link.offset
        replica.receive(command[at:])
        assert replica.link.offset == before + len(command)
    assert replica.raw == (SELECT + command) * 6


def test_bytes_that_are_no_commands_end_the_link() -> None:
    replica = online(100)
    with pytest.raises(LinkError, match=r"after offset 123 .*expected '\$', got ':'\): '\*2"):
        replica.receive(SELECT + b"*2\r\n:5\r\n")


def test_a_silent_primary_is_left_after_the_timeout() -> None:
    replica = online(0, LinkSettings(7000, timeout_ms=5000))
    replica.link.tick(replica.now + 5000)
    replica.link.tick(replica.now - 60_000)  # the clock was set back
    replica.link.tick(replica.now - 55_000)
    with pytest.raises(LinkError, match="nothing for 5 s"):
        replica.link.tick(replica.now - 54_999)


def test_acknowledgements_are_sent_once_a_second() -> None:
    replica = online(5)
    for _ in range(30):
        replica.link.tick(replica.now)
        replica.collect()
        replica.now += 100
    assert replica.sent == request(b"REPLCONF", b"ACK", b"5") * 3


def test_loading_sends_line_feeds_and_never_times_out() -> None:
    owner = Owner()
    link = ReplicaLink(SETTINGS, owner, None, 0, 0)
    link.receive(b"+PONG\r\n+OK\r\n+OK\r\n+FULLRESYNC %s 9\r\n$3\r\nRDB" % ID.encode() + SELECT, 0)
    link.outgoing.clear()
    assert link.is_loading and link.command_reader().next() is None
    link.tick(10_000_000)
    link.keepalive()
    assert link.outgoing == b"\n"
    link.outgoing.clear()
    link.on_snapshot_loaded(10_000_000)
    assert link.outgoing == request(b"REPLCONF", b"ACK", b"9")
    assert link.command_reader().next() == [b"SELECT", b"0"] and link.offset == 9
    assert link.command_reader().next() is None and link.offset == 9 + len(SELECT)


def test_a_failover_asks_the_replica_to_take_over_and_never_falls_back() -> None:
    replica = Replica(ID, 99, failover=True)
    replica.receive(b"+PONG\r\n+OK\r\n+OK\r\n")
    assert replica.sent.endswith(request(b"PSYNC", ID.encode(), b"100", b"FAILOVER"))
    with pytest.raises(LinkError, match="answered PSYNC with '-ERR"):
        replica.receive(b"-ERR no failover here\r\n")


def test_a_new_history_is_adopted_when_it_continues() -> None:
    replica = Replica(ID, 10)
    replica.receive(b"+PONG\r\n+OK\r\n+OK\r\n+CONTINUE %s\r\n" % (b"f" * 40) + SELECT)
    assert replica.owner.told == [("continue", "f" * 40)]
    assert replica.link.replication_id == "f" * 40 and replica.link.offset == 10 + len(SELECT)
