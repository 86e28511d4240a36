"""A real redis-server loads what write_rdb() writes, and has the same data."""

import contextlib
import random
from io import BytesIO

import pytest
import redis

from headrace.engine.engine import Engine
from headrace.persistence.crc64 import crc64
from headrace.persistence.dump import dump
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.stream_extras import AUX_NAME
from headrace.persistence.rdb.versions import COMPATIBLE_VERSION, VERSIONS
from headrace.persistence.rdb.writer import write_rdb
from headrace.streams.stream import Stream
from support.portrait import alive, differences, portrait
from support.redis_programs import installed_version, rdb_version_of
from support.redis_server import redis_server

NOW_MS = 1_700_000_000_000
LATER_MS = 4_102_444_800_123  # the real server loads in our days: what is to live must die later


def run(engine, *lines, now_ms=NOW_MS):
    """Run commands, each a text or a list of words; none may be refused."""
    session = engine.create_session(now_ms=now_ms)
    for line in lines:
        words = line.split() if isinstance(line, str) else line
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        engine.execute(session, words, now_ms)
        reply = session.reply.take()
        assert not reply.startswith(b"-"), (words, reply)
    engine.close(session)


def fill(engine, seed):
    """Strings and streams of every shape in several databases; what every server knows, and no more."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randint(1, 12)) for _ in range(30)]
    run(engine, "SET plain value", "SET number 123456789", "SET big 12345678901234567890", "SET empty x")
    run(engine, ["SET", b"\x00bin\xff", b"".join(rng.choices(words, k=300))], ["APPEND", "grown", "a" * 100])
    run(engine, "APPEND grown b", f"SET dies v PXAT {LATER_MS}", "SET dead v PX 5", "SET dead2 v PX 9")
    for key, entries, bytes_max, entries_max in (
        ("many", 700, 4096, 100),
        ("tiny", 60, 200, 3),
        ("one", 40, 0, 1),
    ):
        engine.keyspace.settings.stream_node_max_bytes = bytes_max
        engine.keyspace.settings.stream_node_max_entries = entries_max
        ms = 1
        for n in range(entries):
            ms += rng.randint(0, 3)
            fields = rng.choice(
                [["a", n], ["a", rng.randint(-10, 1 << 40), "b", rng.choice(words)], words[:8]]
            )
            run(engine, ["XADD", key, f"{ms}-{n}", *fields])
            if rng.random() < 0.2:
                run(engine, f"XDEL {key} {ms}-{n}")
    run(engine, "XADD huge 18446744073709551615-1 f v", ["XADD", "wide", "1-1", "f", "v" * 16378])
    run(engine, ["XADD", "wide", "1-2", "f", "v" * 16377], ["XADD", "wide", "2-0", "f", b"\x80" * 70000])
    run(
        engine,
        "XADD gone 1-1 f v",
        "XDEL gone 1-1",
        "XGROUP CREATE gone g 0",
        "XGROUP CREATE new g $ MKSTREAM",
    )
    # An exact trim can leave a node with nothing but tombstones.
    run(engine, "XADD grave 1-0 f v", "XADD grave 2-0 f v", "XDEL grave 2-0", "XTRIM grave MINID = 2-0")
    groups(engine, rng)
    run(engine, "SELECT 3", "SET k 1", "XADD 12 5-5 f v", f"PEXPIREAT 12 {LATER_MS + 1}")
    run(engine, "SELECT 15", "SET only-dead v PX 3")


def groups(engine, rng):
    """Groups of the stream `many` in all states, consumers with and without entries, at several times."""
    run(
        engine,
        "XGROUP CREATE many g 0",
        "XGROUP CREATE many 12 $ ENTRIESREAD 5",
        "XGROUP CREATE many \xff 3-0",
    )
    for n in range(30):
        now_ms = NOW_MS + 100 * n
        name = f"consumer{rng.randrange(5)}"
        run(engine, f"XREADGROUP GROUP g {name} COUNT {rng.randint(1, 12)} STREAMS many >", now_ms=now_ms)
        ids = [f"{ms}-{seq}" for ms, seq in pending_ids(engine, b"many", b"g")]
        run(engine, ["XACK", "many", "g", *rng.sample(ids, min(len(ids), 3))], now_ms=now_ms)
        run(engine, ["XCLAIM", "many", "g", "other", 0, *rng.sample(ids, min(len(ids), 3))], now_ms=now_ms)
        run(engine, ["XDEL", "many", *rng.sample(ids, 1)], now_ms=now_ms)
    run(engine, "XGROUP CREATECONSUMER many g idle", "XGROUP CREATE huge g 18446744073709551615-1")
    run(engine, "XCLAIM huge g c 0 18446744073709551615-1 RETRYCOUNT 9223372036854775807 FORCE JUSTID")


def pending_ids(engine, key, group):
    pending = engine.keyspace.databases[0].values[key].group(group).pending
    slot, found = pending.first_by_id_from(0, 0), []
    while slot >= 0:
        found.append((pending.ms_of(slot), pending.seq_of(slot)))
        slot = pending.next_by_id(slot)
    return found


def saved(engine, **options):
    """The file, with what write_rdb said of it."""
    pieces = []
    options = {"version": COMPATIBLE_VERSION, "now_ms": NOW_MS + 10_000} | options
    written = write_rdb(engine.keyspace, pieces.append, **options)
    return b"".join(pieces), written


@contextlib.contextmanager
def served(directory, file):
    """A client of a real server that was started on this file, and checks all it loads."""
    (directory / "dump.rdb").write_bytes(file)
    options = ["--sanitize-dump-payload", "yes"]
    with redis_server(directory, *options) as port, redis.Redis(port=port, protocol=3) as client:
        client.response_callbacks.clear()
        yield client


def id_text(pair):
    return b"%d-%d" % pair


@pytest.mark.parametrize("compress", [True, False])
def test_a_real_server_holds_the_same(tmp_path, compress):
    engine = Engine()
    fill(engine, 1)
    file, written = saved(engine, compress=compress)
    expected = alive(portrait(engine.keyspace), NOW_MS + 10_000)
    assert written == (len(file), len(expected))
    with served(tmp_path, file) as client:
        for database in engine.keyspace.databases:
            client.execute_command("SELECT", database.index)
            keys = {key for index, key in expected if index == database.index}
            assert set(client.execute_command("KEYS", "*")) == keys
            for key in keys:
                same_value(client, key, database.values[key], expected[database.index, key])


def same_value(client, key, value, shown):
    """Whether the server has this value under key; shown is its portrait."""
    if (
        rdb_version_of(installed_version()) is COMPATIBLE_VERSION
    ):  # a later version contains times that were not loaded
        ours = dump(value, COMPATIBLE_VERSION, compress=True, now_ms=NOW_MS)
        assert client.execute_command("DUMP", key) == ours
    assert client.execute_command("PEXPIRETIME", key) == shown["expiry"]
    if not isinstance(value, Stream):
        assert client.execute_command("GET", key) == shown["value"]
        return
    entries = client.execute_command("XRANGE", key, "-", "+")
    assert [(i, words) for i, words in entries] == [(id_text(i), words) for i, words in shown["entries"]]
    info = client.execute_command("XINFO", "STREAM", key, "FULL", "COUNT", 0)
    assert info[b"length"] == shown["length"]
    assert info[b"radix-tree-keys"] == value.nodes.key_count
    assert info[b"last-generated-id"] == id_text(shown["last"])
    assert info[b"max-deleted-entry-id"] == id_text(shown["max-deleted"])
    assert info[b"entries-added"] == shown["added"]
    assert info[b"recorded-first-entry-id"] == id_text(shown["first"])
    theirs = {group[b"name"]: group for group in info[b"groups"]}
    assert theirs.keys() == shown["groups"].keys()
    for name, group in shown["groups"].items():
        assert theirs[name][b"last-delivered-id"] == id_text(group["last"])
        assert theirs[name][b"entries-read"] == (None if group["read"] == -1 else group["read"])
        pending = [[id_text(i), owner, at, count] for i, owner, at, count in group["pending"]]
        assert sorted(theirs[name][b"pending"]) == sorted(pending)
        consumers = {c[b"name"]: (c[b"pel-count"], c[b"seen-time"]) for c in theirs[name][b"consumers"]}
        assert consumers == {c: (count, seen) for c, (count, seen, _) in group["consumers"].items()}
        summary = client.execute_command("XPENDING", key, name)
        assert summary[0] == len(pending)


def give_back(engine):
    """What only later servers know: entries that are nobody's, idempotent producers."""
    run(
        engine,
        "XREADGROUP GROUP g giver COUNT 9 STREAMS many >",
        "XREADGROUP GROUP g x COUNT 5 STREAMS many >",
    )
    group = engine.keyspace.databases[0].values[b"many"].group(b"g")
    mine = [
        i
        for i in pending_ids(engine, b"many", b"g")
        if group.pending.owner_of(group.pending.find(*i)).name == b"giver"
    ]
    for i in mine[3], mine[0], mine[5]:
        run(engine, ["XNACK", "many", "g", "FAIL", "IDS", 1, id_text(i)])
    run(engine, "XGROUP CREATECONSUMER many g headrace-unowned")
    run(engine, "XCFGSET tiny IDMP-DURATION 3000 IDMP-MAXSIZE 7", "XADD idmp IDMP p a * f v")
    run(engine, "XADD idmp IDMP p b * f v", "XADD idmp IDMP p a * f v", "XADD idmp IDMP q a * f v")
    return mine


def reloaded(file, now_ms=NOW_MS + 10_000):
    engine = Engine()
    loaded = read_rdb(BytesIO(file), engine.keyspace, now_ms=now_ms)
    return engine, loaded


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize("compress", [True, False])
def test_every_version_restores_the_same_keyspace(version, compress):
    engine = Engine()
    fill(engine, 2)
    give_back(engine)
    file, written = saved(engine, version=version, compress=compress)
    again, loaded = reloaded(file)
    assert loaded.version == f"REDIS{version.rdb_version:04}"
    assert loaded.key_count == written.key_count
    before = alive(portrait(engine.keyspace, nodes=True), NOW_MS + 10_000)
    assert not differences(before, portrait(again.keyspace, nodes=True))
    for database in again.keyspace.databases:
        for value in database.values.values():
            if isinstance(value, Stream):
                value.check()


def test_unowned_entries_are_pending_in_other_servers(tmp_path):
    engine = Engine()
    fill(engine, 3)
    mine = give_back(engine)
    file, _ = saved(engine)
    assert AUX_NAME in file
    with served(tmp_path, file) as client:
        lost = client.execute_command("XPENDING", "many", "g", "-", "+", 100, "headrace-unowned-")
        assert [i for i, *_ in lost] == sorted((id_text(i) for i in (mine[3], mine[0], mine[5])), key=number)
        ids = [i for i, *_ in lost]
        assert client.execute_command("XCLAIM", "many", "g", "taker", 1000, *ids, "JUSTID") == ids


def number(text):
    return tuple(map(int, text.split(b"-")))


def test_the_checksum_covers_all_bytes_before_it():
    engine = Engine()
    fill(engine, 4)
    file, _ = saved(engine)
    assert file[-8:] == crc64(file[:-8]).to_bytes(8, "little")
    unchecked, _ = saved(engine, checksum=False)
    assert unchecked == file[:-8] + bytes(8)


def test_the_head_contains_the_version():
    engine = Engine()
    file, written = saved(engine, aof_base=True)
    assert written == (len(file), 0)
    _, loaded = reloaded(file)
    assert loaded.aux == {b"redis-bits": b"64", b"ctime": b"%d" % (NOW_MS // 1000 + 10), b"aof-base": b"1"}
    assert reloaded(saved(engine)[0])[1].aux[b"aof-base"] == b"0"


def test_more_auxiliary_fields_follow_the_usual_ones():
    more = {b"repl-stream-db": b"3", b"repl-offset": b"%d" % (1 << 40), b"empty": b""}
    _, loaded = reloaded(saved(Engine(), aux=more)[0])
    assert list(loaded.aux)[2] == b"aof-base"
    assert dict(list(loaded.aux.items())[3:]) == more


def test_progress_is_told_now_and_then():
    engine = Engine()
    rng = random.Random(5)
    for n in range(80):
        run(engine, [b"SET", b"%d" % n, rng.randbytes(30_000)])
    told = []
    file, _ = saved(engine, progress=told.append, compress=False)
    steps = [after - before for before, after in zip([0, *told], told, strict=False)]
    assert all(1 << 20 <= step <= (1 << 20) + (1 << 16) for step in steps)
    assert len(file) - told[-1] < 1 << 20


def test_an_error_of_a_full_disk_is_raised():
    engine = Engine()
    run(engine, ["SET", "k", random.Random(6).randbytes(100_000)])

    def full(data):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_rdb(engine.keyspace, full, version=COMPATIBLE_VERSION, now_ms=NOW_MS)


def test_expired_keys_are_not_written():
    engine = Engine()
    run(engine, "SET k v PX 5", "XADD s 1-1 f v", "XIDMPRECORD s p old 1-1", "XIDMPRECORD s q old 1-1")
    run(engine, "XADD s IDMP p young * f w", "SELECT 2", "SET k v PX 5")
    assert portrait(engine.keyspace)[0, b"s"]["idmp"]["iids"].keys() == {b"p", b"q"}
    file, written = saved(engine, now_ms=NOW_MS + 5)
    assert written.key_count == 1
    again, loaded = reloaded(file, now_ms=0)
    assert loaded.expired_count == 0
    shown = portrait(again.keyspace)
    assert shown.keys() == {(0, b"s")}
    assert shown[0, b"s"]["idmp"]["iids"] == {b"p": [(b"young", (NOW_MS, 0))]}
