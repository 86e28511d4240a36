"""Whole RDB files: what is read, skipped and rejected."""

import io
import random

import pytest

from headrace.keyspace import events
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.settings import Settings
from headrace.persistence.crc64 import crc64
from headrace.persistence.damage import Damaged
from headrace.persistence.dump import dump
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.versions import VERSIONS
from headrace.persistence.rdb.writer import write_rdb
from support.portrait import portrait
from support.random_streams import random_stream

NOW = 1_700_000_000_000
FOOTER = 10


def string(text):
    out = RdbOutput(None, False)
    out.string(text)
    return out.take()


def aux(name, value):
    return b"\xfa" + string(name) + string(value)


def key(name, value=b"v", kind=b"\x00"):
    return kind + string(name) + string(value)


def file(*parts, magic=b"REDIS0010", checksum=None):
    data = magic + b"".join(parts) + b"\xff"
    return data + (crc64(data).to_bytes(8, "little") if checksum is None else checksum)


def load(data, keyspace=None, **options):
    keyspace = keyspace or Keyspace()
    loaded = read_rdb(io.BytesIO(data), keyspace, now_ms=NOW, **options)
    return keyspace, loaded


def values(keyspace, database=0):
    return dict(keyspace.databases[database].values)


def refused(data, what, **options):
    with pytest.raises(Damaged, match=what) as caught:
        load(data, **options)
    return caught.value


@pytest.mark.parametrize(
    "magic",
    [b"REDIS0001", b"REDIS0006", b"REDIS0009", b"REDIS0010", b"REDIS0011", b"REDIS0014", b"VALKEY080"],
)
def test_known_versions_are_read(magic):
    data = file(b"\xfe\x03", key(b"k"), magic=magic)
    if magic < b"REDIS0005":
        data = data[:-8]  # these had no checksum yet
    keyspace, loaded = load(data)
    assert values(keyspace, 3) == {b"k": b"v"}
    assert (loaded.version, loaded.end_offset) == (magic.decode(), len(data))


@pytest.mark.parametrize("magic", [b"REDIS0000", b"REDIS0015", b"REDIS9999", b"VALKEY079", b"VALKEY081"])
def test_versions_that_are_not_known(magic):
    assert refused(file(magic=magic), "not known here").offset == 0


@pytest.mark.parametrize("magic", [b"REDIS00x0", b"Redis0010", b"*2\r\n$6\r\nS", b"VALKEY-80", b"REDISABCD"])
def test_files_of_other_kinds_are_rejected(magic):
    refused(file(magic=magic), "not an RDB file")


def test_auxiliary_fields_functions_and_hints_are_skipped():
    parts = [
        aux(b"redis-ver", b"7.0.15"),
        aux(b"ctime", b"1700000000"),
        b"\xf5" + string(b"#!lua name=lib"),
        b"\xfe\x00\xfb\x03\x01",
        b"\xf4\x05\x01\x00",
        b"\xf8\x24",
        key(b"idle"),
        b"\xf9\x05",
        key(b"frequent"),
        aux(b"something new", b"between keys"),
        key(b"third"),
    ]
    keyspace, loaded = load(file(*parts))
    assert list(values(keyspace)) == [b"idle", b"frequent", b"third"]
    assert loaded.aux == {b"redis-ver": b"7.0.15", b"ctime": b"1700000000", b"something new": b"between keys"}
    assert (loaded.key_count, loaded.string_count, loaded.skipped_library_count) == (3, 3, 1)


def test_keys_are_read_with_their_expiry():
    parts = [
        b"\xfc" + (NOW + 1).to_bytes(8, "little") + b"\xf8\x05" + key(b"soon"),
        b"\xfc" + NOW.to_bytes(8, "little") + key(b"now"),
        b"\xfd" + (NOW // 1000 + 60).to_bytes(4, "little") + key(b"in seconds"),
        b"\xfd" + (NOW // 1000 - 60).to_bytes(4, "little") + key(b"was seconds"),
        key(b"for good"),
    ]
    keyspace, loaded = load(file(*parts))
    database = keyspace.databases[0]
    assert {k: database.expiry(k) for k in database.values} == {
        b"soon": NOW + 1,
        b"in seconds": NOW + 60_000,
        b"for good": -1,
    }
    assert (loaded.key_count, loaded.expired_count) == (3, 2)
    keyspace, loaded = load(file(*parts), keep_expired=True)
    assert len(keyspace.databases[0].values) == 5
    assert keyspace.databases[0].expiry(b"was seconds") == NOW - 60_000
    assert (loaded.key_count, loaded.expired_count) == (5, 0)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(1, "'list'"), (14, "'list'"), (2, "'set'"), (5, "'sorted set'"), (4, "'hash'"), (16, "'hash'")]
    + [(7, "'module value'"), (99, "unknown type 99"), (29, "unknown type 29")],
)
def test_values_of_other_types_are_named(kind, name):
    data = file(b"\xfe\x00", key(b"fine"), key(b"other", kind=bytes([kind])))
    error = refused(data, f"{name}.*streams and strings only")
    assert data[error.offset] == kind


@pytest.mark.parametrize("opcode", [0xF0, 0xF3, 0xF6, 0xF7])
def test_unknown_opcodes_are_rejected(opcode):
    data = file(key(b"fine"), bytes([opcode]), key(b"k"))
    assert data[refused(data, "not known|cannot read").offset] == opcode


def test_keys_are_put_into_their_databases():
    settings = Settings()
    settings.databases = 4
    data = file(b"\xfe\x03", key(b"k"))
    keyspace, _ = load(data, Keyspace(settings))
    assert values(keyspace, 3) == {b"k": b"v"}
    settings.databases = 3
    error = refused(data, "database 3, there are 3", keyspace=Keyspace(settings))
    assert error.advice == "set `databases` to 4 or more"
    assert error.offset == 9


def test_checksums():
    data = file(key(b"k"))
    assert load(data)[1].end_offset == len(data)
    assert load(file(key(b"k"), checksum=bytes(8)))[1].key_count == 1  # it was not reckoned
    for at in (10, len(data) - 12, len(data) - 1):
        flipped = bytearray(data)
        flipped[at] ^= 1
        with pytest.raises(Damaged):
            load(bytes(flipped))
    wrong = data[:-1] + bytes([data[-1] ^ 1])
    assert refused(wrong, "checksum").offset == len(data) - 8
    assert refused(data[:-3], "ends here").offset == len(data) - 3


def test_a_key_that_occurs_twice_is_rejected():
    twice = file(b"\xfe\x00", key(b"k", b"1"), key(b"other"), key(b"k", b"2"))
    refused(twice, "b'k' occurs twice in database 0")
    assert values(load(twice, merge=True)[0])[b"k"] == b"2"
    keyspace, _ = load(file(key(b"k", b"old"), b"\xfc" + (NOW + 5).to_bytes(8, "little"), key(b"dies")))
    load(file(key(b"dies", b"lives"), key(b"new")), keyspace, merge=True)
    assert values(keyspace) == {b"k": b"old", b"dies": b"lives", b"new": b"v"}
    assert keyspace.databases[0].expiry(b"dies") == -1


def test_reading_publishes_no_events():
    told = []
    keyspace = Keyspace()
    keyspace.settings.notify_keyspace_events = events.parse_classes("KEAnoc")
    keyspace.notifier.publish = lambda channel, message: told.append(message)
    keyspace.databases[0].put(b"there", b"v")
    assert told
    told.clear()
    load(file(key(b"there"), key(b"new")), keyspace, merge=True)
    assert told == []
    assert keyspace.settings.notify_keyspace_events == events.parse_classes("KEAnoc")


def test_the_end_of_a_snapshot_is_reported_whatever_follows():
    data = file(key(b"k"))
    log = b"*1\r\n$4\r\nPING\r\n"
    for copies in (0, 1, 100_000):
        assert load(data + log * copies)[1].end_offset == len(data)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v.name)
@pytest.mark.parametrize("seed", range(5))
def test_a_keyspace_that_was_written_is_read_again(seed, version):
    rng = random.Random(seed)
    keyspace = Keyspace()
    for number in range(12):
        database = keyspace.databases[rng.choice([0, 0, 5, 15])]
        name = b"key %d" % number
        value = (
            random_stream(rng, keyspace, NOW)
            if rng.random() < 0.7
            else rng.choice([b"", b"12", b"text" * 99])
        )
        database.put(name, value)
        if rng.random() < 0.3:
            database.set_expiry(name, NOW + rng.randrange(1, 10**6))
    data = bytearray()
    write_rdb(keyspace, data.extend, version=version, now_ms=NOW)
    again, loaded = load(bytes(data))
    assert portrait(again, nodes=True) == portrait(keyspace, nodes=True)
    assert loaded.key_count == 12
    assert loaded.stream_count == sum(
        not isinstance(v, bytes) for d in keyspace.databases for v in d.values.values()
    )
    for database in again.databases:
        for value in database.values.values():
            if not isinstance(value, bytes):
                value.check()


def test_a_truncated_file_or_payload_is_rejected():
    rng = random.Random(1)
    keyspace = Keyspace()
    keyspace.databases[0].put(b"s", random_stream(rng, keyspace, NOW, entries=8))
    keyspace.databases[1].put(b"t", b"text")
    data = bytearray()
    write_rdb(keyspace, data.extend, version=VERSIONS[0], now_ms=NOW)
    cuts = sorted(rng.sample(range(len(data)), min(len(data), 200)))
    for cut in cuts:
        assert refused(bytes(data[:cut]), "ends here").offset == cut


def test_a_stream_has_the_same_bytes_in_a_file_and_in_a_payload():
    keyspace = Keyspace()
    stream = random_stream(random.Random(2), keyspace, NOW)
    version = VERSIONS[-1]
    payload = dump(stream, version, compress=True, now_ms=NOW)
    data = file(payload[:1], string(b"s"), payload[1:-FOOTER], magic=b"REDIS0014")
    keyspace.databases[0].put(b"s", stream)
    assert portrait(load(data)[0], nodes=True) == portrait(keyspace, nodes=True)
