"""Logs that real servers wrote, whole and damaged, and what they make of them at their next start."""

import base64
import contextlib
import json
import pathlib
import random
import shutil

import pytest

from headrace.engine.engine import Engine
from headrace.engine.foreign_commands import SkippingReplayer
from headrace.engine.replaying import Replayer
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.check import check_file
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DiskDirectory
from headrace.persistence.recovery import recover
from headrace.resp.reply_parser import ReplyParser
from headrace.structures import stream_id
from support import speaking
from support.redis_server import redis_server

VECTORS = {
    path.stem.partition("_")[2]: json.loads(path.read_text())
    for path in sorted((pathlib.Path(__file__).parent / "vectors" / "aof").iterdir())
}
CASES = [(name, server) for name, vector in VECTORS.items() for server in vector["servers"]]
NOW_MS = 1_800_000_000_000
OTHERS = {
    # Redis leaves a transaction open whose EXEC was cut, and loses what comes after it; Valkey does not.
    ("tail_cut_exec", "redis-7.0.15"): "valkey-9.1.2",
    ("tail_cut_exec", "redis-8.0.6"): "valkey-9.1.2",
    # A claim of what is gone makes its consumer since Redis 8.
    ("rewritten_to_commands", "redis-7.0.15"): "redis-8.0.6",
    ("timestamps", "redis-7.0.15"): "redis-8.0.6",
}


def outcome_of(name, server):
    """What a start with those files comes to: the server's own, but for OTHERS."""
    return VECTORS[name]["servers"][OTHERS.get((name, server), server)]["after_load"]


@pytest.fixture
def lay_out(tmp_path):
    """Puts a vector's files into a data directory, which is returned."""

    def lay_out(name, server):
        log = tmp_path / "appendonlydir"
        stored = VECTORS[name]["servers"][server]["files"]
        for file, data in stored.items():
            path = (log / file).resolve()
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(base64.b64decode(data))
        return tmp_path

    return lay_out


def start(directory, truncated_ok=True):
    engine = Engine()
    recovered = recover(
        DiskDirectory(str(directory)),
        LogFileNames(),
        engine.keyspace,
        Replayer(engine, NOW_MS).replay,
        appendonly=True,
        dbfilename="dump.rdb",
        truncated_ok=truncated_ok,
        now_ms=NOW_MS,
    )
    return engine, recovered


def as_bytes(value):
    if isinstance(value, dict) and "b64" in value:
        return base64.b64decode(value["b64"])
    return value.encode() if isinstance(value, str) else value


class Client:
    """Asks an engine as a client would, in RESP3, and takes the answers apart."""

    def __init__(self, engine):
        self.engine, self.session, self.parser = engine, engine.create_session(), ReplyParser()
        self.ask("HELLO", 3)

    def ask(self, *words):
        argv = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.engine.execute(self.session, argv, NOW_MS)
        self.parser.feed(self.session.reply.take())
        return self.parser.next()


def state_of(engine):
    """The keyspace in the vectors' words."""
    client = Client(engine)
    state = {}
    for database in engine.keyspace.databases:
        if not database.values:
            continue
        client.ask("SELECT", database.index)
        state[str(database.index)] = [key_state(client, key) for key in sorted(database.values)]
    return state


def key_state(client, key):
    kind = client.ask("TYPE", key)
    shown = {"key": key, "type": kind, "expire-at-ms": client.ask("PEXPIRETIME", key)}
    if kind in (b"string", "string"):
        return shown | {"value": client.ask("GET", key)}
    full = client.ask("XINFO", "STREAM", key, "FULL", "COUNT", 0)
    return shown | {"stream": full}


STREAM_FIELDS = [
    "length",
    "last-generated-id",
    "max-deleted-entry-id",
    "entries-added",
    "recorded-first-entry-id",
]


def compare(found, wanted):
    """The keys of one database."""
    assert [as_bytes(key["key"]) for key in wanted] == [key["key"] for key in found]
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours["expire-at-ms"] == theirs["expire-at-ms"]
        if "value" in theirs:
            assert ours["value"] == as_bytes(theirs["value"])
        else:
            compare_streams(ours["stream"], theirs["stream"])


def compare_streams(ours, theirs):
    for name in STREAM_FIELDS:
        assert ours[name.encode()] == as_bytes(theirs[name]), name
    assert [[i, list(map(as_bytes, f))] for i, f in ours[b"entries"]] == [
        [as_bytes(i), list(map(as_bytes, f))] for i, f in theirs["entries"]
    ]
    groups = ours[b"groups"]
    assert [g[b"name"] for g in groups] == [as_bytes(g["name"]) for g in theirs["groups"]]
    for group, other in zip(groups, theirs["groups"], strict=True):
        assert group[b"last-delivered-id"] == as_bytes(other["last-delivered-id"])
        assert group[b"entries-read"] == other["entries-read"]
        pending = [[i, c, t, n] for i, c, t, n in group[b"pending"]]
        assert pending == [[as_bytes(i), as_bytes(c), t, n] for i, c, t, n in other["pending"]]
        for consumer, named in zip(group[b"consumers"], other["consumers"], strict=True):
            assert consumer[b"name"] == as_bytes(named["name"])
            assert [row[0] for row in consumer[b"pending"]] == [as_bytes(i) for i in named["pending"]]


@pytest.mark.parametrize(("name", "server"), CASES)
def test_a_start_comes_to_the_same(name, server, lay_out):
    directory = lay_out(name, server)
    vector, wanted = VECTORS[name], outcome_of(name, server)
    strict = vector["config"].get("aof-load-truncated") == "no"
    if not wanted["starts"]:
        before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
        with pytest.raises(Damaged) as caught:
            start(directory, truncated_ok=not strict)
        assert caught.value.offset > 0 and str(directory) in str(caught.value)
        assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
        return
    engine, recovered = start(directory, truncated_ok=not strict)
    state = state_of(engine)
    assert state.keys() == wanted["state"].keys()
    for number, keys in wanted["state"].items():
        compare(state[number], sorted(keys, key=lambda key: as_bytes(key["key"])))
    for file, size in wanted["sizes"].items():
        path = directory / "appendonlydir" / file
        if size or path.exists():  # the next file of records is made by who writes it
            assert path.stat().st_size == size, file
    assert recovered.source_kind == "log" and recovered.key_count == sum(map(len, state.values()))
    # The next start finds nothing to mend, and the same.
    again, second = start(directory, truncated_ok=False)
    assert state_of(again) == state and not any("cut off" in note for note in second.notes)


@pytest.mark.parametrize(("name", "server"), CASES)
def test_a_check_says_what_a_start_would(name, server, lay_out):
    directory = lay_out(name, server)

    def new_engine():
        engine = Engine()
        replayer = SkippingReplayer(engine, NOW_MS)
        return engine.keyspace, replayer.replay, replayer.skipped_counts

    single = directory / "appendonly.aof"
    report = check_file(str(single if single.exists() else directory), new_engine, NOW_MS)
    damaged = name.startswith("tail_")
    assert (report.damage is not None) == damaged
    wanted = outcome_of(name, server)
    if damaged:
        assert report.fixable
        if wanted["starts"]:
            assert report.valid_bytes == wanted["sizes"][pathlib.Path(report.damage.file).name]
    if wanted["starts"]:
        for number, keys in wanted["state"].items():
            held = report.databases[int(number)]
            streams = [key["stream"] for key in keys if "stream" in key]
            assert (held.keys, held.streams) == (len(keys), len(streams))
            assert held.entries == sum(stream["length"] for stream in streams)
            groups = [group for stream in streams for group in stream["groups"]]
            assert held.groups == len(groups)
            assert held.pending == sum(len(group["pending"]) for group in groups)
            assert held.consumers == sum(len(group["consumers"]) for group in groups)


def test_the_vectors_hold_ids_that_parse():
    """The comparison above would be empty if the vectors' state were read wrongly."""
    entries = [
        entry
        for name, server in CASES
        for keys in (outcome_of(name, server).get("state") or {}).values()
        for key in keys
        for entry in key.get("stream", {}).get("entries", [])
    ]
    assert len(entries) > 100 and all(stream_id.parse(i.encode(), 0) for i, _ in entries)


# Redis itself, on a log that is cut anywhere.


@contextlib.contextmanager
def real(directory):
    """A client of a redis-server on a data directory, which it asks as Client asks an engine."""
    options = ["--appendonly", "yes", "--appendfsync", "no", "--aof-timestamp-enabled", "yes"]
    with redis_server(directory, *options) as port, speaking.Client.to(port) as client:
        yield client


def some_work(ask, seed):
    """A few hundred changes of a few streams, transactions among them."""
    rng = random.Random(seed)
    for n in range(1, 250):
        key, group, consumer = rng.choice("stu"), rng.choice("gh"), rng.choice("abc")
        some = f"{rng.randint(1, n)}-0"
        choice = rng.randrange(12)
        if choice < 5:
            ask("XADD", key, f"{n}-0", "field", rng.choice(["v", "12", "x" * 100, "\r\n*1\r\n"]))
        elif choice == 5:
            ask("XGROUP", "CREATE", key, group, 0, "MKSTREAM")
        elif choice == 6:
            ask("XREADGROUP", "GROUP", group, consumer, "COUNT", 2, "STREAMS", key, ">")
        elif choice == 7:
            ask("XACK", key, group, some)
        elif choice == 8:
            ask("XDEL", key, some)
        elif choice == 9:
            ask("XTRIM", key, "MAXLEN", "~", 20)
        elif choice == 10:
            ask("SELECT", rng.randrange(2))
        else:
            ask("MULTI")
            ask("SET", "k", n)
            ask("XADD", key, f"{n}-0", "in", "multi")
            ask("INCR", "k")
            ask("EXEC")


def seen(ask):
    """What a client sees; not what 7.0 reckons otherwise (entries-read) or takes from its clock."""
    found = {}
    for database in range(2):
        ask("SELECT", database)
        for key in sorted(ask("KEYS", "*")):
            if ask("TYPE", key) == b"string" or key == b"k":
                found[database, key] = ask("GET", key)
                continue
            groups = [dict(zip(g[::2], g[1::2], strict=True)) for g in ask("XINFO", "GROUPS", key)]
            found[database, key] = [
                ask("XRANGE", key, "-", "+"),
                [(g[b"name"], g[b"last-delivered-id"], g[b"consumers"]) for g in groups],
                [
                    [(i, c, n) for i, c, _, n in ask("XPENDING", key, g[b"name"], "-", "+", 1000)]
                    for g in groups
                ],
            ]
    return found


def test_a_log_cut_anywhere_comes_to_what_redis_makes_of_it(tmp_path):
    origin = tmp_path / "origin"
    origin.mkdir()
    with real(origin) as redis:
        some_work(redis.request, seed=6)
    incr = "appendonlydir/appendonly.aof.1.incr.aof"
    data = (origin / incr).read_bytes()
    rng = random.Random(7)
    cuts = [len(data), data.rindex(b"EXEC") + 2, *(rng.randrange(len(data)) for _ in range(5))]
    sizes = set()
    for number, cut in enumerate(cuts):
        ours, theirs = tmp_path / f"ours{number}", tmp_path / f"theirs{number}"
        for copy in (ours, theirs):
            shutil.copytree(origin / "appendonlydir", copy / "appendonlydir")
            (copy / incr).write_bytes(data[:cut])
        engine, _ = start(ours)
        client = Client(engine)
        client.ask("HELLO", 2)
        with real(theirs) as redis:
            assert seen(client.ask) == seen(redis.request), cut
        sizes.add((ours / incr).stat().st_size)
    assert len(sizes) > 4 and max(sizes) == len(data)
