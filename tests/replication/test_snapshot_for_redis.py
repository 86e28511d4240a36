"""A real redis-server takes the snapshot of a full synchronisation: REDIS0010, with Headrace's own fields."""

import contextlib
import random
import socket
import threading

import redis

from headrace.engine.engine import Engine
from headrace.persistence.dump import dump, restore
from headrace.persistence.rdb.stream_extras import AUX_NAME, MAGIC
from headrace.persistence.rdb.versions import COMPATIBLE_VERSION
from headrace.persistence.rdb.writer import write_rdb
from headrace.replication.stored_position import encode_position
from headrace.resp.request import request
from support.portrait import portrait
from support.random_streams import random_stream
from support.redis_programs import installed_version, rdb_version_of
from support.redis_server import redis_server
from support.waiting import wait_until

NOW = 1_700_000_000_000
HISTORY = "0123456789abcdef0123456789abcdef01234567"
OFFSET = 123_456_789_012
FOOTER = 10
MARK = b"m" * 40


def filled():
    """Streams with groups, pending and unowned entries, tombstones and idempotent producers, and strings."""
    rng = random.Random(7)
    engine = Engine()
    for n in range(30):
        stream = random_stream(rng, engine.keyspace, NOW, entries=20)
        engine.keyspace.databases[n % 3].put(b"stream %d" % n, stream)
    engine.keyspace.databases[1].put(b"string", b"text" * 100)
    engine.keyspace.databases[1].set_expiry(b"string", 4_102_444_800_123)
    session = engine.create_session(now_ms=NOW)
    for line in (
        b"XADD s 1-1 f v;XADD s 2-1 f v;XADD s 3-1 f v;XDEL s 2-1;XADD s IDMP p a * f v;XGROUP CREATE s g 0;"
        b"XREADGROUP GROUP g ann COUNT 3 STREAMS s >;XNACK s g FAIL IDS 1 1-1"
    ).split(b";"):
        engine.execute(session, line.split(), NOW)
        assert not session.reply.take().startswith(b"-"), line
    return engine.keyspace


def snapshot(keyspace):
    """The snapshot for a full synchronisation."""
    data = bytearray()
    fields = encode_position(2, HISTORY, OFFSET)
    write_rdb(keyspace, data.extend, version=COMPATIBLE_VERSION, now_ms=NOW, aux=fields)
    assert data.startswith(b"REDIS0010") and AUX_NAME in data
    shown = portrait(keyspace)
    assert any(value.get("idmp") for value in shown.values())
    return bytes(data)


def same_keys(client, keyspace):
    """Assert that the server has the same keys, each with the same payload in DUMP."""
    for database in keyspace.databases:
        client.execute_command("SELECT", database.index)
        assert set(client.keys("*")) == set(database.values)
        for key, value in database.values.items():
            payload = dump(value, COMPATIBLE_VERSION, compress=True, now_ms=NOW)
            assert without_extras(payload) == without_extras(as_compatible(client.dump(key)))


def as_compatible(payload):
    """Return the payload of a later server, which has another version and times, as 7.0 writes it."""
    if rdb_version_of(installed_version()) is COMPATIBLE_VERSION:
        return payload
    value = restore(payload, Engine().keyspace, NOW)
    return dump(value, COMPATIBLE_VERSION, compress=True, now_ms=NOW)


def without_extras(payload):
    """Return a payload without its footer and without what only Headrace writes before it."""
    body = payload[:-FOOTER]
    at = body.rfind(MAGIC)
    return body if at < 0 else body[:at]


class Primary(threading.Thread):
    """A primary that sends one snapshot and then one command."""

    def __init__(self, snapshot, more):
        super().__init__(daemon=True)
        self.snapshot = snapshot
        self.more = more
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def run(self):
        """Serve one replica until it closes."""
        with contextlib.suppress(OSError):
            link, _ = self.listener.accept()
            with link:
                self.serve(link)

    def serve(self, link):
        """Answer the handshake; send the snapshot, and the stream after the first acknowledgement."""
        while data := link.recv(65536):
            words = data.split(b"\r\n")
            for word, argument in zip(words, [*words[2:], b"", b""], strict=True):
                if word == b"PING":
                    link.sendall(b"+PONG\r\n")
                elif word == b"REPLCONF" and argument != b"ACK":
                    link.sendall(b"+OK\r\n")
                elif word == b"REPLCONF":
                    link.sendall(self.more)
                    self.more = b""
                elif word == b"PSYNC":
                    link.sendall(b"+FULLRESYNC %s %d\r\n" % (HISTORY.encode(), OFFSET))
                    link.sendall(b"$EOF:" + MARK + b"\r\n" + self.snapshot + MARK)


def test_a_redis_replica_loads_it_and_continues_with_the_stream(tmp_path):
    keyspace = filled()
    stream = request(b"SELECT", b"2") + request(b"SET", b"later", b"1")
    primary = Primary(snapshot(keyspace), stream)
    primary.start()
    log = tmp_path / "log"
    options = ["--replicaof", f"127.0.0.1 {primary.port}", "--logfile", str(log), "--loglevel", "verbose"]
    with (
        redis_server(tmp_path, *options) as port,
        redis.Redis(port=port, db=2) as client,
        contextlib.closing(primary.listener),
    ):
        wait_until(lambda: client.get("later") == b"1", "the stream")
        info = client.info("replication")
        assert info["master_link_status"] == "up"
        assert info["master_replid"] == HISTORY
        assert info["slave_repl_offset"] >= OFFSET + len(stream)
        keyspace.databases[2].put(b"later", b"1")
        same_keys(client, keyspace)
    assert "headrace" not in log.read_text(), "redis-server has complained about an auxiliary field"


def test_a_redis_that_starts_from_it_continues_its_history(tmp_path):
    keyspace = filled()
    (tmp_path / "dump.rdb").write_bytes(snapshot(keyspace))
    with redis_server(tmp_path) as port, redis.Redis(port=port) as client:
        info = client.info("replication")
        assert info["master_replid2"] == HISTORY
        assert info["second_repl_offset"] == OFFSET + 1
        same_keys(client, keyspace)
