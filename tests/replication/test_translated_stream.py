"""A translated stream, applied by Redis 7.0 and by Headrace, gives the data of the primary in every turn.

Random commands of all families that write, in two databases, some of them in transactions.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from headrace.commands.table import COMMANDS
from headrace.engine.engine import Engine
from headrace.persistence.aof.log_buffer import DatabaseRequest, LogBuffer
from headrace.persistence.dump import dump
from headrace.persistence.rdb import versions
from headrace.replication.stream_applier import StreamApplier
from headrace.replication.translation import Translator, first_unsupported_command
from headrace.resp.parser import RequestParser
from headrace.resp.reply_parser import ReplyParser
from headrace.streams.group import Group
from headrace.streams.stream import Stream
from replication.nodes import Raw, group_state, pairs
from replication.opened_reader import opened_reader

START = 4_000_000_000_000  # ms: in the future, so that nothing expires in redis-server
DATABASES = 2
KEYS = ("a", "b", "c")
LINES = """
    60 XADD {k} * f {n}
    9 XADD {k} IDMP p{p} i{n} * f {n}
    9 XADD {k} IDMPAUTO p{p} * f {p}
    9 XADD {k} DELREF * f {n}
    9 XADD {k} MAXLEN 8 DELREF * f {n}
    9 XADD {k} MAXLEN 8 ACKED IDMP p{p} j{n} * f {n}
    9 XADD {k} MAXLEN ~ 8 ACKED LIMIT 100 * f {n}
    9 XADD {k} MAXLEN ~ 50 KEEPREF * f {n}
    9 XADD {k} IFLAST {id} * f {n}
    30 XGROUP CREATE {k} {g} 0 MKSTREAM
    2 XGROUP DESTROY {k} {g}
    3 XGROUP DELCONSUMER {k} {g} c{p}
    60 XREADGROUP GROUP {g} c{p} COUNT {p} STREAMS {k} >
    9 XREADGROUP GROUP {g} c{p} COUNT 2 CLAIM 1 STREAMS {k} >
    20 XACK {k} {g} {id}
    9 XACKDEL {k} {g} IDS 2 {id} {id}
    9 XACKDEL {k} {g} DELREF IDS 2 {id} {id}
    9 XACKDEL {k} {g} ACKED IDS 1 {id}
    9 XNACK {k} {g} FAIL IDS 2 {id} {id}
    9 XNACK {k} {g} SILENT IDS 1 {id} RETRYCOUNT 5 FORCE
    9 XNACK {k} {g} FATAL IDS 1 {id}
    9 XCLAIM {k} {g} c{p} 0 {id} FORCE
    9 XDELEX {k} IDS 2 {id} {id}
    9 XDELEX {k} DELREF IDS 2 {id} {id}
    9 XDELEX {k} ACKED IDS 2 {id} {id}
    3 XTRIM {k} MAXLEN 6 DELREF
    3 XTRIM {k} MINID {id} ACKED
    3 XTRIM {k} MAXLEN 6 ACKED
    9 XDEL {k} {id}
    3 XCFGSET {k} MAX-LEN 500
    2 XCFGSET {k} IDMP-MAXSIZE 1{p}
    12 MOVE {k} {d}
    6 MOVE t{k} {d}
    4 COPY {k} {l} DB {d} REPLACE
    4 COPY {k} {l} REPLACE
    3 RENAME {k} {l}
    3 RENAMENX {k} {l}
    3 SWAPDB 0 1
    4 SET t {n} IFEQ {n}
    4 SET t{k} {n}
    1 SET {k} {n}
    2 DELEX t{k}
    2 MSETEX 2 t{k} {n} t{l} {n} PX 100000
    2 MSETEX 2 t{k} {n} t{l} {n}
    3 PEXPIRE {k} 1000000
    3 PERSIST {k}
    2 DEL {k}
"""
WEIGHTED = [line.strip().partition(" ")[::2] for line in LINES.strip().splitlines()]


class Primary:
    """An engine that gets random commands, and the stream of their effects."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.engine = Engine()
        self.engine.set_effect_recording(True)
        self.engine.effects.needs_redis7_equivalents = True
        self.session = self.engine.create_session()
        self.translator = Translator(self.engine.keyspace)
        self.now = START

    def execute(self, text: str) -> None:
        self.engine.execute(self.session, text.encode().split(), self.now)
        self.session.reply.take()

    def turn(self) -> None:
        """Run some random commands at one time."""
        rng = self.rng
        self.now += 7
        transaction = rng.random() < 0.3
        self.execute(f"SELECT {rng.randrange(DATABASES)}")
        if transaction:
            self.execute("MULTI")
        for _ in range(rng.randrange(1, 6)):
            (text,) = rng.choices([text for _, text in WEIGHTED], [int(weight) for weight, _ in WEIGHTED])
            self.execute(self._filled(text))
        if transaction:
            self.execute("EXEC")

    def _filled(self, text: str) -> str:
        key = self.rng.choice(KEYS)
        words = []
        for word in text.split():
            value = self.engine.keyspace.databases[self.session.database].values.get(key.encode())
            words.append(
                word.format(
                    k=key,
                    l=self.rng.choice(KEYS),
                    g=self.rng.choice("gh"),
                    d=self.rng.randrange(DATABASES),
                    p=self.rng.randrange(1, 4),
                    n=self.rng.randrange(10),
                    id=self._known_id(value),
                )
            )
        return " ".join(words)

    def _known_id(self, value: object) -> str:
        groups = value.groups() if isinstance(value, Stream) else []
        pending = [
            (group.pending.ms_of(slot), group.pending.seq_of(slot))
            for group in groups
            for slot in slots_of(group)
        ]
        if pending and self.rng.random() < 0.7:
            return "{}-{}".format(*self.rng.choice(pending))
        return f"{self.now - 7 * self.rng.randrange(15)}-{self.rng.randrange(2)}"

    def take(self) -> list[DatabaseRequest]:
        """Return the translated effects since the last call."""
        effects = self.engine.effects
        items = self.translator.translate(effects.take(), effects.redis7_equivalent)
        effects.clear_redis7_equivalents()
        return items


def slots_of(group: Group) -> Iterator[int]:
    """Yield the slots of the group's pending entries."""
    slot = group.pending.first_by_id_from(0, 0)
    while slot >= 0:
        yield slot
        slot = group.pending.next_by_id(slot)


def encoded(items: list[DatabaseRequest]) -> bytes:
    """Return the bytes of the stream that has these effects, from a SELECT on."""
    buffer = LogBuffer()
    buffer.put_all(items)
    with buffer.view() as view:
        return bytes(view)


def commands_of(stream: bytes) -> list[list[bytes]]:
    parser = RequestParser()
    parser.feed(stream)
    found = []
    while (words := parser.next()) is not None:
        found.append(words)
    return found


def streams_of(engine: Engine) -> Iterator[tuple[tuple[int, bytes], Stream]]:
    for database in engine.keyspace.databases[:DATABASES]:
        for key, value in database.values.items():
            if isinstance(value, Stream):
                yield (database.index, key), value


def copy_times_seen(source: Engine, target: Engine) -> None:
    """Copy when consumers were last seen: a poll that finds no entry is no effect."""
    streams = dict(streams_of(target))
    for place, stream in streams_of(source):
        for group in stream.groups():
            for consumer in group.consumers():
                other = streams[place].group(group.name) if place in streams else None
                known = None if other is None else other.consumer(consumer.name)
                if known is not None:
                    known.seen_ms = consumer.seen_ms


def exact(engine: Engine, now: int) -> dict[tuple[int, bytes], Any]:
    """Return all data, down to what only a snapshot of Headrace contains."""
    settings = engine.keyspace.settings
    version = versions.by_name("redis-8.8")
    return {
        (database.index, key): (
            database.expiry(key),
            dump(value, version, compress=False, now_ms=now, settings=settings, complete=True),
        )
        for database in engine.keyspace.databases[:DATABASES]
        for key, value in database.values.items()
    }


def visible(ask: Callable[..., Any]) -> dict[tuple[int, bytes], Any]:
    """Return what clients of any server see of all data; ask() returns the reply to a request."""
    found: dict[tuple[int, bytes], Any] = {}
    for database in range(DATABASES):
        ask("SELECT", database)
        for key in ask("KEYS", "*"):
            value = ask("GET", key) if ask("TYPE", key) == b"string" else stream_state(ask, key)
            found[database, key] = value, ask("PEXPIRETIME", key)
    return found


def stream_state(ask: Callable[..., Any], key: bytes) -> Any:
    info = pairs(ask("XINFO", "STREAM", key, "FULL", "COUNT", 0))
    if info[b"max-deleted-entry-id"] == b"0-1":  # as good as none, see commands/redis7_equivalents.py
        info[b"max-deleted-entry-id"] = b"0-0"
    names = (b"length", b"last-generated-id", b"max-deleted-entry-id", b"entries-added", b"entries")
    groups = [pairs(row) for row in info[b"groups"]]
    read = {row[b"name"]: row[b"entries-read"] for row in groups}
    return [info[name] for name in names], read, sorted(group_state(row, False) for row in groups)


class Asking:
    """Requests to the engine of a primary, as to a server."""

    def __init__(self, primary: Primary) -> None:
        self.primary = primary
        self.session = primary.engine.create_session()

    def __call__(self, *words: Any) -> Any:
        argv = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.primary.engine.execute(self.session, argv, self.primary.now)
        parser = ReplyParser()
        parser.feed(self.session.reply.take())
        reply = parser.next()
        return reply.encode() if isinstance(reply, str) else reply


@pytest.mark.parametrize("seed", range(3))
def test_every_replica_has_the_data_of_the_primary_after_each_turn(seed: int, client: redis.Redis) -> None:
    primary, follower = Primary(seed), Engine()
    applier = StreamApplier(follower, False)
    ask = Asking(primary)
    with Raw(client.connection_pool.connection_kwargs["port"]) as other:
        other.request("FLUSHALL")
        for turn in range(150):
            primary.turn()
            stream = encoded(primary.take())
            assert first_unsupported_command(stream) == ""
            commands = commands_of(stream)
            applier.apply(opened_reader(stream), primary.now)
            replies = [other.request(*words) for words in commands]
            assert not [reply for reply in replies if isinstance(reply, Exception)], (turn, commands)
            copy_times_seen(primary.engine, follower)
            assert exact(follower, primary.now) == exact(primary.engine, primary.now), (turn, commands)
            if turn % 10 == 9:
                assert visible(other.request) == visible(ask), turn
    assert not applier.failed_commands and not applier.skipped_commands


RELEASE_OF_A_DELETED_ENTRY = "XNACK a g FAIL IDS 1 1-0"  # no command of Redis 7.0 does that


@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize(
    "then",
    [
        "MOVE a 1",
        "MOVE t 1",
        "COPY a b DB 1 REPLACE",
        "COPY t u DB 1",
        "COPY a b",
        "RENAME a b",
        "RENAME t a",
        "SWAPDB 0 1",
        "MSETEX 2 t 1 u 2",
        "DEL a t",
        "FLUSHDB",
        "FLUSHALL",
        "XADD a 9-0 f v",
        "XCFGSET a MAX-LEN 5",
    ],
)
def test_what_follows_an_effect_without_an_older_form_is_kept(
    then: str, transaction: bool, client: redis.Redis
) -> None:
    primary, follower = Primary(0), Engine()
    applier, ask = StreamApplier(follower, False), Asking(primary)
    primary.now += 7
    with Raw(client.connection_pool.connection_kwargs["port"]) as other:
        other.request("FLUSHALL")
        for lines in (
            ["XADD a 1-0 f v", "XADD a 2-0 f v", "XGROUP CREATE a g 0", "SET t text", "SELECT 1", "SET b 1"],
            ["SELECT 0", "XREADGROUP GROUP g c STREAMS a >", "XDEL a 1-0"],
            [RELEASE_OF_A_DELETED_ENTRY, then, "SET last 1", "MOVE last 1"],
        ):
            if transaction and RELEASE_OF_A_DELETED_ENTRY in lines:
                lines = ["MULTI", *lines, "EXEC"]
            for line in lines:
                primary.execute(line)
            stream = encoded(primary.take())
            commands = commands_of(stream)
            applier.apply(opened_reader(stream), primary.now)
            assert not [reply for words in commands if isinstance(reply := other.request(*words), Exception)]
        copy_times_seen(primary.engine, follower)
        assert exact(follower, primary.now) == exact(primary.engine, primary.now)
        assert visible(other.request) == visible(ask)
    assert primary.translator.restored_count <= 2, "only what the effect concerns"


def test_every_command_that_writes_names_its_keys() -> None:
    whole = {b"flushdb", b"flushall", b"swapdb"}
    rows = [row for command in COMMANDS for row in [command, *command.unique_subcommands()] if row.write]
    without = {row.name for row in rows if not row.has_keys}
    assert whole <= without
    assert not [name for name in without - whole if not name.startswith((b"function|", b"publish"))]
    assert {row.name for row in rows if re.search(r"\bdb\b|destination-db", row.syntax)} == {
        row.name for row in rows if row.find_destination is not None
    }
