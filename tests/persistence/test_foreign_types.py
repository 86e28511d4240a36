"""Keys of types that Headrace does not hold: rejected, or skipped, with all other keys loaded exactly.

Types 2, 4, 5, 11, 16, 17 and 18 are written by redis-server 7.0.15. Those that only older or newer servers
write are built by hand.
"""

import io
import random

import pytest
import redis

from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.crc64 import crc64
from headrace.persistence.damage import Damaged
from headrace.persistence.rdb.input import RdbInput
from headrace.persistence.rdb.reader import read_rdb
from headrace.streams.stream import Stream
from support.foreign_values import MAGICS, VALUES, module_data, score, some_length, some_string, string
from support.portrait import portrait
from support.redis_server import redis_server

NOW = 1_700_000_000_000
IDS = [f"{kind}{magic.decode()}" for kind, magic, _, _ in VALUES]
ADVICE = "set `replica-skip-foreign-types yes`"


def file(*parts, magic=b"REDIS0010"):
    data = magic + b"".join(parts) + b"\xff"
    return data if magic < b"REDIS0005" else data + crc64(data).to_bytes(8, "little")


class Dribble:
    """A source that returns a few bytes at a time."""

    def __init__(self, data, seed=1):
        self.data = io.BytesIO(data)
        self.rng = random.Random(seed)

    def read(self, n):
        return self.data.read(min(n, self.rng.choice([1, 2, 7, 100, 5000])))


def load(source, **options):
    keyspace = Keyspace()
    options = {"skip_foreign_types": True, "now_ms": NOW} | options
    if isinstance(source, bytes):
        source = io.BytesIO(source)
    return keyspace, read_rdb(source, keyspace, **options)


def string_key(name):
    return b"\x00" + string(name) + string(b"value")


def fill_server(client):
    """Keys of every type and encoding; return the types of the keys that Headrace does not hold."""
    rng = random.Random(1)
    client.execute_command("DEBUG", "QUICKLIST-PACKED-THRESHOLD", "1000b")
    for name, n, size in (("small", 3, 5), ("large", 900, 20), ("wide", 3, 200), ("huge", 2, 20_000)):
        words = [rng.randbytes(size) for _ in range(n)]
        client.rpush(f"list {name}", *words)
        client.rpush(f"list {name}", *["word" * size, 12, -70_000, 1 << 40])
        client.sadd(f"set {name}", *words)
        client.hset(f"hash {name}", mapping={word: rng.randbytes(size) for word in words})
        scores = [0, -1.5, float("inf"), float("-inf"), 1e300, 17]
        client.zadd(f"sorted {name}", {word: rng.choice(scores) for word in words})
        client.execute_command("XADD", f"stream {name}", "*", "f", words[0])
        client.set(f"string {name}", words[0] * 3)
    client.sadd("ints small", *range(-5, 100))
    client.sadd("ints wide", *[1 << 40, -(1 << 62), 3])
    client.sadd("ints many", *range(2000))
    client.pfadd("hyperloglog", *range(99))
    client.geoadd("geo", (1.5, 2.5, "here"))
    client.hset("counts", mapping={n: n * n for n in range(20)})
    for key in ("list small", "set large", "hash wide", "ints wide", "stream large", "string huge"):
        client.pexpire(key, 10**9)
    client.execute_command("XGROUP", "CREATE", "stream large", "g", "0")
    client.execute_command("XREADGROUP", "GROUP", "g", "c", "STREAMS", "stream large", ">")
    client.execute_command("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() end)")
    client.execute_command("SELECT", 3)
    client.rpush("list of three", 1, 2, 3)
    client.execute_command("XADD", "stream of three", "1-1", "f", "v")
    client.execute_command("SELECT", 0)


def foreign_keys(client):
    """Return the foreign keys of database 0: their kinds of encoding, and the number of keys by type."""
    names = {b"list": "list", b"set": "set", b"zset": "sorted set", b"hash": "hash"}
    kinds, counts = set(), {}
    for key in client.keys("*"):
        kind = client.type(key)
        if kind in names:
            kinds.add(client.dump(key)[0])
            counts[names[kind]] = counts.get(names[kind], 0) + 1
    return kinds, counts


def test_a_file_of_a_real_server_is_loaded_without_its_foreign_keys(tmp_path):
    with (
        redis_server(tmp_path, "--enable-debug-command", "yes") as port,
        redis.Redis(port=port) as client,
    ):
        fill_server(client)
        kinds, counts = foreign_keys(client)
        assert kinds - {20} == {2, 4, 5, 11, 16, 17, 18}  # 20: a set as a listpack, since 7.2
        client.save()
        mixed = (tmp_path / "dump.rdb").read_bytes()
        for key in client.keys("*"):
            if client.type(key) not in (b"stream", b"string"):
                client.delete(key)
        client.execute_command("SELECT", 3)
        client.delete("list of three")
        client.save()
        pure = (tmp_path / "dump.rdb").read_bytes()
    expected, _ = load(pure, skip_foreign_types=False)
    counts["list"] += 1  # in database 3
    for source in (io.BytesIO(mixed), Dribble(mixed)):
        keyspace, loaded = load(source)
        assert portrait(keyspace, nodes=True) == portrait(expected, nodes=True)
        assert (loaded.stream_count, loaded.string_count, loaded.skipped_library_count) == (5, 5, 0)
        assert keyspace.libraries == expected.libraries and len(keyspace.libraries) == 1
        assert loaded.skipped_key_counts == counts
        assert loaded.end_offset == len(mixed)
        for database in keyspace.databases:
            for value in database.values.values():
                if isinstance(value, Stream):
                    value.check()


@pytest.mark.parametrize(("kind", "magic", "name", "build"), VALUES, ids=IDS)
def test_values_of_every_type_are_skipped(kind, magic, name, build):
    rng = random.Random(kind)
    for one in [magic] if magic else MAGICS:
        parts = [
            string_key(b"before"),
            b"\xfc" + (NOW - 1).to_bytes(8, "little") + b"\xf8\x05",
            bytes([kind]) + some_string(rng) + build(rng),
            string_key(b"between"),
            b"\xfd" + (NOW // 1000 + 60).to_bytes(4, "little"),
            bytes([kind]) + some_string(rng) + build(rng),
            string_key(b"after"),
        ]
        for _ in range(5):
            data = file(*parts, magic=one)
            for source in (io.BytesIO(data), Dribble(data, kind)):
                keyspace, loaded = load(source)
                assert list(keyspace.databases[0].values) == [b"before", b"between", b"after"]
                assert keyspace.databases[0].expiry(b"after") == -1
                assert loaded.skipped_key_counts == {name: 2}
                assert (loaded.key_count, loaded.expired_count, loaded.end_offset) == (3, 0, len(data))
            parts[2] = bytes([kind]) + some_string(rng) + build(rng)


@pytest.mark.parametrize(("kind", "magic", "name", "build"), VALUES, ids=IDS)
def test_a_value_that_is_cut_off_is_rejected(kind, magic, name, build):
    rng = random.Random(kind)
    head = (magic or b"REDIS0010") + string_key(b"before") + bytes([kind]) + string(b"k")
    value = sorted((build(rng) for _ in range(9)), key=len)[-3]
    for cut in {0, len(value) - 1, *(rng.randrange(len(value)) for _ in range(20))}:
        with pytest.raises(Damaged, match="ends here") as caught:
            load(head + value[:cut])
        assert caught.value.offset == len(head) + cut


@pytest.mark.parametrize(("kind", "magic", "name", "build"), VALUES, ids=IDS)
def test_foreign_types_are_rejected_by_default_with_the_advice_of_the_caller(kind, magic, name, build):
    data = file(
        string_key(b"k"), bytes([kind]), string(b"l"), build(random.Random(1)), magic=magic or MAGICS[1]
    )
    for advice in ("", ADVICE):
        with pytest.raises(Damaged, match=f"{name}.*streams and strings only") as caught:
            load(data, skip_foreign_types=False, foreign_advice=advice)
        assert data[caught.value.offset] == kind
        assert caught.value.advice == advice


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        (6, b"\x05abc", "type 6, which cannot be skipped"),
        (29, b"\x00", "unknown type 29"),
        (8, b"\x00", "unknown type 8"),
        (7, b"\x05\x06\x00", "number 6 in the data of a module"),
        (28, b"\x01\x02", "number 2 in the head of an array"),
        (28, b"\x01\x00\x00\x04", "number 4 in an array"),
        (2, b"\x01\xc4", "unknown encoding 4"),
        (2, b"\xc0\x01", "expected a length"),
        (2, b"\x82", "no length begins with the byte 130"),
        (24, bytes(8) + b"\x01\xc0\x01", "expected a length"),
    ],
)
def test_damaged_values_are_rejected(kind, value, what):
    data = file(string_key(b"k"), bytes([kind]), string(b"l"), value, b"filler" * 20, magic=b"REDIS0014")
    with pytest.raises(Damaged, match=what):
        load(data)


@pytest.mark.parametrize("magic", [b"REDIS0013", b"VALKEY080"])
def test_data_of_modules_are_skipped_and_counted(magic):
    rng = random.Random(3)
    parts = []
    for _ in range(20):
        parts += [b"\xf7", some_length(rng), b"\x02", b"\x01", module_data(rng), string_key(rng.randbytes(9))]
    data = file(*parts, magic=magic)
    _, loaded = load(data)
    assert (loaded.module_data_count, loaded.key_count, loaded.skipped_key_counts) == (20, 20, {})
    with pytest.raises(Damaged, match="data of a module") as caught:
        load(data, skip_foreign_types=False, foreign_advice=ADVICE)
    assert caught.value.advice == ADVICE
    assert caught.value.offset == 9


def test_metadata_that_modules_have_put_on_keys_are_skipped():
    rng = random.Random(4)
    data = file(
        b"\xfc" + (NOW + 5).to_bytes(8, "little"),
        b"\xf3\x02" + b"\xff" * 4 + module_data(rng) + bytes(4) + module_data(rng),
        string_key(b"k"),
        b"\xf3\x00",
        b"\x05" + string(b"z") + b"\x01" + string(b"m") + score(rng),
        magic=b"REDIS0013",
    )
    keyspace, loaded = load(data)
    assert keyspace.databases[0].expiry(b"k") == NOW + 5
    assert (loaded.module_data_count, loaded.key_count, loaded.skipped_key_counts) == (
        2,
        1,
        {"sorted set": 1},
    )
    with pytest.raises(Damaged, match="data of a module"):
        load(data, skip_foreign_types=False)


def test_slots_that_valkey_is_importing_are_rejected():
    """Their keys are in the file, but not yet visible in that server."""
    data = file(b"\xf3" + string(b"job") + b"\x01\x00\x05", string_key(b"k"), magic=b"VALKEY080")
    for skip in (True, False):
        with pytest.raises(Damaged, match="opcode 0xf3"):
            load(data, skip_foreign_types=skip)


def test_skipping_reports_progress_and_keeps_nothing():
    told = []
    data = bytes(5 << 18)
    inp = RdbInput(io.BytesIO(data).read, checksum=False, progress=told.append)
    inp.skip(len(data))
    assert inp.offset() == len(data)
    assert inp.cap < 1 << 18
    assert len(told) == 1 and told[0] >= 1 << 20
