"""A replica in the test's process follows a real redis-server, also through broken connections."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from headrace.commands.session import Session
from headrace.engine.clock import RealClock
from headrace.errors import UsageError
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.data_directory import DiskDirectory
from headrace.replication.replica_link import ReplicaLink
from headrace.replication.stream_reader import ReplicationReader
from headrace.resp.reply_parser import ReplyParser
from headrace.server.config.config import Config
from headrace.server.loop.event_loop import EventLoop
from headrace.server.network.tls import OutgoingTls
from headrace.server.replication import replica_side
from headrace.server.replication.replica_side import ReplicaSettings, ReplicaSide
from support.certificates import Authority
from support.command_generator import CommandGenerator
from support.flaky_proxy import Cut, FlakyProxy
from support.redis_programs import engine_with_format_of, installed_redis_with_tls, installed_version
from support.redis_server import free_port, redis_server
from support.waiting import SECONDS_MAX

DATABASES = (0, 3)


class Replica:
    """An engine, an event loop and a replica side. Everything happens in the test's own thread."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.clock = RealClock()
        self.engine = engine_with_format_of(installed_version())
        self.engine.keyspace.settings.stream_compact_tombstones = False  # it changes DUMP, at any time
        self.loop = EventLoop(self.engine, self.clock)
        self.settings = ReplicaSettings(7777, **settings)  # type: ignore[arg-type]
        self.files = DiskDirectory(str(directory))
        self.raw = b""
        self.told: list[tuple[object, ...]] = []
        self.side = ReplicaSide(self.engine, self.loop, self.files, lambda: self.settings, self)
        self.client = self.engine.create_session()

    def on_stream_bytes(self, data: bytes) -> None:
        self.raw += data

    def on_message(self, words: list[bytes]) -> None: ...

    def on_new_history(self, history: str, offset: int) -> None:
        self.told.append(("continue", history, offset))

    def before_replacing(self, keyspace: Keyspace) -> None: ...

    def restart_log(self) -> None: ...

    def on_online(self) -> None:
        pass

    def on_full_sync(self, history: str, offset: int) -> None:
        self.told.append(("full", history, offset))

    def replicas_need_translation(self) -> bool:
        return False

    def turn(self) -> None:
        wait = self.side.tick(self.clock.now_ms())
        self.loop.run_tasks()
        self.loop.run_once(min(wait, 5) if wait >= 0 else 5)

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what} in vain: {self.side.info()}"
            self.turn()

    def until_synced(self, primary: redis.Redis) -> None:
        """Run turns until all is applied that the primary has sent by now."""
        offset = primary.info("replication")["master_repl_offset"]
        self.until(lambda: self.side.is_online and self.side.offset >= offset, f"offset {offset}")

    def ask(self, *words: bytes, session: Session | None = None) -> object:
        client = session or self.client
        self.engine.execute(client, list(words), self.clock.now_ms())
        return reply_of(client)

    def close(self) -> None:
        self.side.stop()
        self.loop.close()


def reply_of(session: Session) -> object:
    parser = ReplyParser()
    parser.feed(session.reply.take())
    return parser.next()


@pytest.fixture
def primary() -> Iterator[redis.Redis]:
    with redis_server(None, "--repl-diskless-sync-delay", "0") as port, redis.Redis(port=port) as client:
        yield client


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    made = Replica(tmp_path)
    yield made
    made.close()
    assert list(tmp_path.iterdir()) == []


def port_of(client: redis.Redis) -> int:
    return int(client.connection_pool.connection_kwargs["port"])


# Comparison: strings and plain streams by their bytes, groups without the times of consumers.


# Times that no command carries, what is derived from other fields, and what Redis 7.0 does not have.
NOT_COMPARED = {b"seen-time", b"active-time", b"lag", b"radix-tree-keys", b"radix-tree-nodes"}
NOT_COMPARED |= {b"idmp-duration", b"idmp-maxsize", b"pids-tracked", b"iids-tracked", b"iids-added"}
NOT_COMPARED |= {b"iids-duplicates", b"nacked-count", b"lost-unread", b"lost-pending"}


def flat(value: object) -> object:
    """A reply of XINFO STREAM FULL with its maps as dicts, without what cannot be compared."""
    if isinstance(value, list):
        if len(value) % 2 == 0 and value and all(isinstance(name, bytes) for name in value[::2]):
            pairs = dict(zip(value[::2], value[1::2], strict=True))
            return {name: flat(item) for name, item in pairs.items() if name not in NOT_COMPARED}
        return [flat(item) for item in value]
    return value


Say = Callable[..., object]


def state(say: Say) -> dict[object, object]:
    """Everything in the databases of a server."""
    found: dict[object, object] = {}
    for database in DATABASES:
        say(b"SELECT", b"%d" % database)
        keys = say(b"KEYS", b"*")
        assert isinstance(keys, list)
        for key in sorted(keys):
            info = say(b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0") if is_stream(say, key) else None
            plain = info is None or flat(info)[b"groups"] == []  # type: ignore[index]
            found[database, key] = (say(b"PEXPIRETIME", key), say(b"DUMP", key) if plain else flat(info))
    say(b"SELECT", b"0")
    return found


def is_stream(say: Say, key: bytes) -> bool:
    return say(b"TYPE", key) in (b"stream", "stream")


def raw_connection(client: redis.Redis) -> Say:
    """Requests on one connection, with the replies as the server sends them."""
    connection = redis.Redis(port=port_of(client), protocol=2).connection_pool.get_connection()

    def say(*words: bytes) -> object:
        connection.send_command(*words)
        return connection.read_response()

    return say


def drop_idle_consumers(value: object) -> None:
    """Remove consumers without pending entries from one value of state()."""
    if isinstance(value, tuple) and isinstance(value[1], dict):
        for group in value[1][b"groups"]:
            group[b"consumers"] = [row for row in group[b"consumers"] if row[b"pel-count"]]


def assert_same(primary: redis.Redis, replica: Replica) -> None:
    theirs, ours = state(raw_connection(primary)), state(replica.ask)
    assert list(ours) == list(theirs)
    if installed_version() >= (7, 2):  # does not send a consumer that an empty XREADGROUP creates
        for value in (*theirs.values(), *ours.values()):
            drop_idle_consumers(value)
    for key in theirs:
        assert repr(ours[key]) == repr(theirs[key]), key


def random_command(rng: random.Random) -> list[object]:
    stream, name = rng.choice(["s", "t", "u"]), rng.choice(["a", "b", "c", "d"])
    kind = rng.randrange(24)
    if kind < 8:
        trim = rng.choice([[], [], ["MAXLEN", "~", 20], ["MAXLEN", 30], ["NOMKSTREAM"]])
        return ["XADD", stream, *trim, "*", "field", rng.randrange(1000), "x" * rng.randrange(30), "y"]
    if kind < 11:
        more = rng.choice([["NOACK"], ["COUNT", 2], []])
        consumer = rng.choice(["ann", "bob"])
        return ["XREADGROUP", "GROUP", "g", consumer, *more, "STREAMS", stream, ">"]
    return [
        ["SET", name, rng.randrange(10**6), *rng.choice([[], ["EX", 1000], ["KEEPTTL"], ["NX"]])],
        ["INCR", name],
        ["INCRBYFLOAT", name, "1.5"],
        ["APPEND", name, "tail"],
        ["EXPIRE", name, rng.choice([500, 1000]), *rng.choice([[], ["NX"], ["GT"]])],
        ["GETDEL", name],
        ["GETEX", name, "PERSIST"],
        ["RENAME", name, rng.choice(["a", "b"])],
        ["COPY", stream, "copy", "REPLACE"],
        ["XAUTOCLAIM", stream, "g", "cleo", 0, "-", "COUNT", 3],
        ["XTRIM", stream, "MINID", "~", int(time.time() * 1000) - 50],
        ["XGROUP", "CREATE", stream, rng.choice(["g", "h"]), rng.choice(["0", "$"]), "MKSTREAM"],
        ["XGROUP", "DELCONSUMER", stream, "g", "cleo"],
    ][kind - 11]


def write_randomly(primary: redis.Redis, seed: int, turns: int, between: Callable[[], object]) -> None:
    """Random commands in two databases, alone and in transactions."""
    rng = random.Random(seed)
    clients = [redis.Redis(port=port_of(primary), db=database) for database in DATABASES]
    for turn in range(turns):
        client = rng.choice(clients)
        if rng.random() < 0.15:
            pipeline = client.pipeline(transaction=True)
            for _ in range(rng.randrange(1, 5)):
                pipeline.execute_command(*random_command(rng))
            if rng.random() < 0.2:
                pipeline.execute_command("SWAPDB", 0, 3)
            pipeline.execute(raise_on_error=False)
            continue
        command = random_command(rng)
        try:
            reply = client.execute_command(*command)
        except redis.ResponseError:
            continue
        if command[0] == "XREADGROUP" and reply and rng.random() < 0.7:
            stream, entries = reply[0]
            ids = [entry[0] for entry in entries]
            client.execute_command(rng.choice(["XACK"]), stream, "g", *ids[: rng.randrange(1, 4)])
            if rng.random() < 0.1:
                client.execute_command("XDEL", stream, ids[0])
        if turn % 20 == 0:
            between()
    for client in clients:
        client.close()


# The tests.


@pytest.mark.parametrize("diskless", ["yes", "no"])
@pytest.mark.parametrize("seed", range(2))
def test_a_replica_has_what_the_primary_has(
    primary: redis.Redis, replica: Replica, seed: int, diskless: str
) -> None:
    primary.config_set("repl-diskless-sync", diskless)
    write_randomly(primary, seed, 150, lambda: None)
    replica.side.start("127.0.0.1", port_of(primary), "f" * 40, 0)
    write_randomly(primary, seed + 100, 150, replica.turn)
    replica.until_synced(primary)
    write_randomly(primary, seed + 200, 600, replica.turn)
    replica.until_synced(primary)
    assert_same(primary, replica)
    assert replica.side.applier.failed_commands == {} and replica.side.applier.skipped_commands == {}
    told = replica.told
    assert [what for what, *_ in told] == ["full"]
    assert replica.side.offset == told[0][2] + len(replica.raw)
    assert replica.side.replication_id == primary.info("replication")["master_replid"]


def test_a_broken_link_is_continued_where_it_ended(primary: redis.Redis, replica: Replica) -> None:
    cuts = [
        Cut(down=n, reset=reset) for n, reset in [(3000, False), (5000, True), (2500, False), (4001, True)]
    ]
    proxy = FlakyProxy(port_of(primary), [Cut(), *cuts])
    write_randomly(primary, 1, 100, lambda: None)
    replica.side.start("127.0.0.1", proxy.port, None, 0)
    replica.until(lambda: replica.side.is_online, "the snapshot")
    primary.execute_command("CLIENT", "KILL", "TYPE", "replica")
    for seed in range(20, 26):
        write_randomly(primary, seed, 120, replica.turn)
    replica.until_synced(primary)
    assert_same(primary, replica)
    stats = primary.info("stats")
    assert stats["sync_full"] == 1 and stats["sync_partial_ok"] >= 5
    assert replica.side.offset == replica.told[0][2] + len(replica.raw)
    replica.side.stop()
    proxy.close()


def test_a_transfer_that_is_cut_leaves_the_old_data(primary: redis.Redis, replica: Replica) -> None:
    for i in range(200):
        primary.xadd("s", {"field": random.Random(i).randbytes(500)})
    replica.ask(b"SET", b"old", b"data")
    proxy = FlakyProxy(port_of(primary), [Cut(down=20_000), Cut(down=60_000, reset=True)])
    replica.side.start("127.0.0.1", proxy.port, None, 0)
    replica.until(lambda: proxy.connections == 2 and not replica.side.connection, "the second cut")
    assert replica.ask(b"GET", b"old") == b"data" and replica.told == []
    replica.until_synced(primary)
    assert replica.ask(b"GET", b"old") is None
    assert_same(primary, replica)
    replica.side.stop()
    proxy.close()


def test_role_and_info_name_the_states(primary: redis.Redis, replica: Replica) -> None:
    port = port_of(primary)
    replica.side.start("127.0.0.1", port, None, 0)
    assert replica.side.role_reply() == [b"slave", b"127.0.0.1", port, b"connect", -1]
    replica.side.tick(replica.clock.now_ms())
    assert replica.side.role_reply()[3] == b"connecting"
    assert dict(replica.side.info())["master_link_status"] == "down"
    assert dict(replica.side.info())["master_link_down_since_seconds"] == -1
    replica.until_synced(primary)
    fields = dict(replica.side.info())
    assert replica.side.role_reply()[3:] == [b"connected", replica.side.offset]
    assert fields["master_link_status"] == "up" and fields["master_last_io_seconds_ago"] == 0
    assert fields["slave_repl_offset"] == replica.side.offset
    replica.until(lambda: primary.info("replication")["slave0"]["state"] == "online", "the acknowledgement")
    assert primary.info("replication")["slave0"]["port"] == 7777


def test_waits_at_the_primary_are_answered(primary: redis.Redis, replica: Replica) -> None:
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until_synced(primary)
    connection = primary.connection_pool.get_connection()
    connection.send_command("SET", "k", "v")
    connection.send_command("WAIT", 1, 60_000)
    replica.until(connection.can_read, "the reply")
    assert connection.read_response() == b"OK"
    replica.until(connection.can_read, "the reply of WAIT")
    assert connection.read_response() == 1


def test_blocked_readers_and_subscribers_of_the_replica_are_served(
    primary: redis.Redis, replica: Replica
) -> None:
    replica.engine.keyspace.settings.notify_keyspace_events = 0xFFFFF
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until_synced(primary)
    reader, listener = replica.engine.create_session(), replica.engine.create_session()
    replica.ask(b"PSUBSCRIBE", b"*", session=listener)
    replica.ask(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$", session=reader)
    assert reader.waiter is not None
    primary.xadd("s", {"f": "v"}, id="5-1")
    primary.publish("news", "hello")
    replica.until_synced(primary)
    assert reply_of(reader) == [[b"s", [[b"5-1", [b"f", b"v"]]]]]
    parser, messages = ReplyParser(), []
    parser.feed(listener.reply.take())
    while isinstance(message := parser.next(), list):
        messages.append(message[2:])
    assert [b"__keyevent@0__:xadd", b"s"] in messages and [b"news", b"hello"] in messages


def test_readers_blocked_before_the_snapshot_find_its_entries(primary: redis.Redis, replica: Replica) -> None:
    primary.xadd("s", {"f": "v"}, id="5-1")
    reader = replica.engine.create_session()
    replica.ask(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"0", session=reader)
    assert reader.waiter is not None
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until_synced(primary)
    assert reply_of(reader) == [[b"s", [[b"5-1", [b"f", b"v"]]]]]


def test_effects_are_recorded_for_the_log_in_the_same_groups(primary: redis.Redis, replica: Replica) -> None:
    recorded: list[tuple[int, list[bytes]]] = []
    replica.engine.set_effect_recording(True)

    def commit() -> bool:
        recorded.extend(replica.engine.effects.take())
        return True

    replica.loop.commit = commit
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until_synced(primary)
    with primary.pipeline(transaction=True) as pipeline:
        pipeline.set("a", "1").xadd("s", {"f": "v"}, id="1-1").execute()
    primary.set("b", "2")
    replica.until_synced(primary)
    replica.turn()
    assert recorded == [
        (0, [b"MULTI"]),
        (0, [b"SET", b"a", b"1"]),
        (0, [b"XADD", b"s", b"1-1", b"f", b"v"]),
        (0, [b"EXEC"]),
        (0, [b"SET", b"b", b"2"]),
    ]


def test_a_password_is_sent(tmp_path: Path) -> None:
    options = ("--requirepass", "secret", "--repl-diskless-sync-delay", "0")
    with redis_server(None, *options) as port, redis.Redis(port=port, password="secret") as primary:
        primary.set("k", "v")
        replica = Replica(tmp_path, password="wrong")
        replica.side.start("127.0.0.1", port, None, 0)
        replica.until(lambda: replica.side._last_error, "the rejection")
        assert "masterauth" in replica.side._last_error
        replica.settings = ReplicaSettings(7777, user="default", password="secret")
        replica.until_synced(primary)
        assert replica.ask(b"GET", b"k") == b"v"
        replica.close()


def test_a_primary_is_followed_through_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    theirs, ours = authority.certify("primary"), authority.certify("replica")
    installed_redis_with_tls()  # or the test is skipped
    tls_port, trusted = free_port(), ["--tls-ca-cert-file", str(authority.file)]
    options = [
        "--tls-port",
        str(tls_port),
        *theirs.server_words(),
        *trusted,
        "--repl-diskless-sync-delay",
        "0",
    ]
    directory = tmp_path / "data"
    directory.mkdir()
    with redis_server(None, *options) as port, redis.Redis(port=port) as primary:
        primary.set("large", random.Random(0).randbytes(3_000_000))
        replica = Replica(directory)
        config = Config()
        config.read_arguments([*ours.server_words(), *trusted])
        replica.side.tls = lambda: OutgoingTls(config)
        replica.side.start("127.0.0.1", tls_port, None, 0)
        replica.until_synced(primary)
        primary.set("larger", random.Random(1).randbytes(5_000_000))
        replica.until_synced(primary)
        assert_same(primary, replica)
        other = Authority(tmp_path / "others")
        config.read_arguments(["--tls-ca-cert-file", str(other.file)])
        replica.side.start("127.0.0.1", tls_port, None, 0)
        replica.until(lambda: replica.side._last_error, "the rejection")
        assert "certificate verify failed" in replica.side._last_error
        config.read_arguments(["--tls-ca-cert-file", ""])
        replica.side.start("127.0.0.1", tls_port, None, 0)
        replica.until(lambda: replica.side._last_error, "the rejection")
        assert "tls-replication needs a tls-ca-cert-file" in replica.side._last_error
        replica.close()


def test_errors_of_outgoing_tls_name_its_own_directives(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    ours, trusted = authority.certify("replica"), ["--tls-ca-cert-file", str(authority.file)]
    missing = str(tmp_path / "missing")
    for words, text in (
        ([*ours.server_words(), *trusted, "--tls-key-file", ""], "tls-replication with a tls-cert-file"),
        (["--tls-ca-cert-dir", missing], f"tls-ca-cert-dir {missing}: no such directory"),
        ([*ours.server_words(), "--tls-ca-cert-file", str(ours.key)], f"tls-ca-cert-file {ours.key}: "),
        (ours.server_words(), "tls-replication needs a tls-ca-cert-file or a tls-ca-cert-dir"),
    ):
        config = Config()
        config.read_arguments(words)
        with pytest.raises(UsageError) as wrong:
            OutgoingTls(config)
        assert str(wrong.value).startswith(text) and "tls-port" not in str(wrong.value)


def test_an_unreachable_primary_is_tried_again(replica: Replica) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        replica.side.start("127.0.0.1", port, None, 0)
        replica.until(lambda: replica.side._last_error, "the failure")
        assert replica.side._last_error == "connection refused" and replica.side.state == "connect"
        unused.listen()
        replica.until(lambda: replica.side.state == "handshake", "the connection")
    replica.side.start("no such host", 1, None, 0)
    replica.until(lambda: replica.side._last_error, "the failure")
    assert replica.side.state == "connect"


def test_keys_of_other_types_refuse_the_snapshot_with_what_to_set(
    primary: redis.Redis, replica: Replica
) -> None:
    primary.hset("hash", "field", "value")
    replica.ask(b"SET", b"old", b"data")
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until(lambda: replica.side._last_error, "the failure")
    assert "set replica-skip-foreign-types yes" in replica.side._last_error
    assert replica.ask(b"GET", b"old") == b"data" and replica.told == []


def test_a_command_for_another_type_ends_the_link_with_what_to_set(
    primary: redis.Redis, replica: Replica
) -> None:
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until_synced(primary)
    primary.set("k", "v")
    primary.hset("hash", "field", "value")
    replica.until(lambda: replica.side._last_error, "the failure")
    assert "HSET" in replica.side._last_error
    assert "set replica-skip-foreign-types yes" in replica.side._last_error
    assert replica.ask(b"GET", b"k") == b"v"


def reads_history(argv: list[bytes]) -> bool:
    listed = argv[argv.index(b"STREAMS") + 1 :]
    return set(listed[len(listed) // 2 :]) != {b">"}


FOREIGN = [
    ["HSET", "h", "f", "v"],
    ["LPUSH", "l", "x", "y"],
    ["SADD", "p", "x"],
    ["ZADD", "z", "1", "x"],
    ["RENAME", "h", "a"],
    ["RENAME", "l", "b"],
    ["COPY", "p", "c", "REPLACE"],
    ["SUNIONSTORE", "d", "p", "q"],
    ["SORT", "p", "ALPHA", "STORE", "a"],
    ["EXPIRE", "h", "100"],
    ["MOVE", "z", "3"],
    ["DEL", "h", "l", "z"],
]


@pytest.mark.parametrize("seed", range(2))
def test_a_mirror_of_the_streams_and_strings_of_a_server_with_other_types(
    primary: redis.Redis, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    replica = Replica(tmp_path, skip_foreign=True)
    for i in range(50):
        primary.hset(f"hash{i % 3}", f"field{i}", "value" * i)
        primary.rpush("list", "x" * i)
        primary.zadd("sorted", {f"m{i}": i})
        primary.sadd("set", i)
    primary.set("a", "1")
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until_synced(primary)
    assert sum(replica.side.skipped_keys_by_type.values()) == 6
    clients = [redis.Redis(port=port_of(primary), db=database) for database in DATABASES]
    for _ in range(800):
        command = random_command(rng) if rng.random() < 0.6 else rng.choice(FOREIGN)
        try:
            rng.choice(clients).execute_command(*command)
        except redis.ResponseError:
            continue
    replica.until_synced(primary)
    say = raw_connection(primary)
    for database in DATABASES:
        say(b"SELECT", b"%d" % database)
        for key in say(b"KEYS", b"*"):  # type: ignore[attr-defined]
            if say(b"TYPE", key) not in (b"stream", b"string"):
                say(b"DEL", key)
    replica.until_synced(primary)
    assert_same(primary, replica)
    assert replica.side.applier.failed_commands == {} and replica.side.applier.skipped_commands["HSET"] > 0
    losses = dict(replica.side.info())
    assert losses["replica_skipped_keys"] == 6 and "replica_failed_commands" not in losses
    assert losses["replica_skipped_commands"] == sum(replica.side.applier.skipped_commands.values())
    replica.close()


def test_after_half_a_transaction_a_snapshot_is_asked_for(primary: redis.Redis, replica: Replica) -> None:
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until_synced(primary)
    primary.hset("hash", "f", "v")
    payload = primary.dump("hash")
    primary.delete("hash")
    replica.until(lambda: replica.side._last_error, "the first error")
    replica.side.stop()
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until_synced(primary)
    with primary.pipeline(transaction=True) as pipeline:
        pipeline.incr("n").restore("hash", 0, payload).delete("hash").execute()
    replica.until(lambda: replica.side._last_error, "the second error")
    replica.until(lambda: len(replica.told) == 3, "the third snapshot")
    assert [what for what, *_ in replica.told] == ["full"] * 3
    replica.until_synced(primary)
    assert_same(primary, replica)
    assert replica.ask(b"GET", b"n") == b"1"


def test_an_unexpected_error_ends_the_link_and_not_the_server(
    primary: redis.Redis, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until_synced(primary)
    commands = ReplicaLink.command_reader

    def fail_once(link: ReplicaLink) -> ReplicationReader:
        monkeypatch.setattr(ReplicaLink, "command_reader", commands)
        raise RecursionError("too deep")

    monkeypatch.setattr(ReplicaLink, "command_reader", fail_once)
    primary.set("k", "v")
    replica.until(lambda: "RecursionError: too deep" in replica.side._last_error, "the error")
    replica.until(lambda: len(replica.told) == 2, "the second snapshot")
    replica.until_synced(primary)
    assert replica.ask(b"GET", b"k") == b"v"


class DuringLoad:
    """Calls a function once, in a turn of the event loop during a load."""

    def __init__(self, replica: Replica, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
        monkeypatch.setattr(replica_side, "TURN_INTERVAL_S", 0.0)
        monkeypatch.setattr(replica_side, "KEEPALIVE_S", 0.0)
        self.sender, self.receiver = socket.socketpair()
        self.sender.send(b".")
        self.replica, self.act, self.acted = replica, act, 0
        replica.loop.add_reader(self.receiver.fileno(), self.on_readable)

    def on_readable(self) -> None:
        if self.replica.side._loading:
            assert self.replica.side.tick(self.replica.clock.now_ms()) == -1  # it does not load twice
            self.acted += 1
            self.replica.loop.remove_reader(self.receiver.fileno())
            self.act()

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


@pytest.fixture
def large_primary(primary: redis.Redis) -> redis.Redis:
    for i in range(40):
        primary.set(f"key{i}", random.Random(i).randbytes(200_000))
    return primary


def test_the_old_data_are_served_while_the_new_are_loaded(
    large_primary: redis.Redis, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.ask(b"SET", b"old", b"data")
    found: list[object] = []

    def act() -> None:
        found.extend([replica.ask(b"GET", b"old"), replica.ask(b"DBSIZE"), replica.side.role_reply()[3]])

    during = DuringLoad(replica, monkeypatch, act)
    replica.side.start("127.0.0.1", port_of(large_primary), None, 0)
    replica.until_synced(large_primary)
    assert found == [b"data", 1, b"sync"]
    assert replica.ask(b"DBSIZE") == 40
    during.close()


def test_timers_run_while_the_new_data_are_loaded(
    large_primary: redis.Redis, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    during = DuringLoad(replica, monkeypatch, lambda: None)
    calls: list[bool] = []

    def timer(now: int) -> int:
        calls.append(replica.side._loading)
        return -1

    replica.loop.set_timer(timer)
    replica.side.start("127.0.0.1", port_of(large_primary), None, 0)
    replica.until_synced(large_primary)
    assert True in calls
    during.close()


def test_a_load_ends_when_the_replica_is_promoted_meanwhile(
    large_primary: redis.Redis, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.ask(b"SET", b"old", b"data")
    during = DuringLoad(replica, monkeypatch, lambda: replica.side.stop())
    replica.side.start("127.0.0.1", port_of(large_primary), None, 0)
    replica.until(lambda: during.acted, "the load")
    for _ in range(20):
        replica.turn()
    assert replica.ask(b"GET", b"old") == b"data" and replica.ask(b"DBSIZE") == 1
    assert replica.told == [] and replica.side.state == "connect"
    during.close()


def test_a_load_ends_when_another_primary_is_to_be_followed(
    large_primary: redis.Redis, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_server(None, "--repl-diskless-sync-delay", "0") as port, redis.Redis(port=port) as other:
        other.set("here", "1")
        during = DuringLoad(replica, monkeypatch, lambda: replica.side.start("127.0.0.1", port, None, 0))
        replica.side.start("127.0.0.1", port_of(large_primary), None, 0)
        replica.until(lambda: during.acted, "the load")
        replica.until_synced(other)
        assert replica.ask(b"KEYS", b"*") == [b"here"]
        assert len(replica.told) == 1
        replica.side.stop()
        during.close()


def test_a_load_that_a_signal_interrupts_begins_again(
    large_primary: redis.Redis, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    during = DuringLoad(replica, monkeypatch, lambda: replica.loop.interrupt())
    replica.side.start("127.0.0.1", port_of(large_primary), None, 0)
    replica.until(lambda: during.acted, "the load")
    assert not replica.side.is_online
    replica.loop.run()  # returns at once: it was interrupted
    replica.until_synced(large_primary)
    assert replica.ask(b"DBSIZE") == 40
    during.close()


def test_the_offset_that_the_log_has_synced_is_reported(primary: redis.Redis, replica: Replica) -> None:
    """A log that syncs when it is told to; its length is the number of effects."""
    synced = -1
    replica.side.log_synced_offset = lambda: synced
    effects = replica.engine.effects
    replica.engine.set_effect_recording(True)

    def commit() -> bool:
        effects.log_offset += len(effects.take())
        return True

    replica.loop.commit = commit
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until_synced(primary)
    reported: list[int] = []
    link = replica.side.link
    assert link is not None
    synced = effects.log_offset
    for i in range(3):
        primary.set(f"k{i}", "v")
        replica.until_synced(primary)
        replica.turn()
        reported.append(replica.side.offset - link.synced_offset)
        if i == 1:
            synced = effects.log_offset
            replica.turn()
            reported.append(replica.side.offset - link.synced_offset)
    assert reported[0] > 0 and reported[1] > reported[0] and reported[2] == 0 and reported[3] > 0


@pytest.mark.parametrize("grammar", ["groups", "streams", "keys"])
def test_random_commands_of_the_grammars_give_the_same_state(
    primary: redis.Redis, replica: Replica, grammar: str
) -> None:
    replica.side.start("127.0.0.1", port_of(primary), None, 0)
    replica.until_synced(primary)
    say = raw_connection(primary)
    skipped = (b"CONFIG", b"SUBSCRIBE", b"PSUBSCRIBE", b"MULTI", b"EXEC", b"WATCH", b"DISCARD")
    for argv in CommandGenerator(grammar, 7).commands(1500):
        if argv[0].upper() in skipped or b"BLOCK" in [word.upper() for word in argv]:
            continue
        if argv[0] == b"XREADGROUP" and reads_history(argv):
            continue  # Redis does not propagate deliveries of entries that are pending already
        try:
            say(*argv)
        except redis.ResponseError:
            continue
    replica.until_synced(primary)
    say(b"SELECT", b"0")
    assert_same(primary, replica)
    assert replica.side.applier.failed_commands == {}
