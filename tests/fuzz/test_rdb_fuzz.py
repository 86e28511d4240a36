"""Hostile payloads and files: rejected, or loaded so that every reading command works.

What is changed is sealed again with the right checksum, so that the change is looked at.
"""

import io
import os
import random

import pytest

from fuzz.mutations import Mutator
from fuzz.targets_files import LYING, OPCODES
from fuzz.using import NOW, use
from headrace.engine.engine import Engine
from headrace.persistence.crc64 import crc64
from headrace.persistence.damage import Damaged
from headrace.persistence.dump import BadPayload, WrongChecksum, dump, restore
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.versions import VERSIONS
from headrace.persistence.rdb.writer import write_rdb
from headrace.streams.stream import Stream
from support.foreign_values import VALUES, string
from support.random_streams import random_stream

COMPILED = "HEADRACE_COMPILED" in os.environ
ROUNDS = int(os.environ.get("HEADRACE_FUZZ_N", "0")) or (300 if COMPILED else 50)
SEED = int(os.environ.get("HEADRACE_FUZZ_SEED", "0"))
FOOTER = 10
SIZE_MAX = 1 << 16


def crc(data):
    return crc64(data).to_bytes(8, "little")


def bodies(rng, keyspace, n):
    """Bodies of payloads of all types."""
    found = []
    for i in range(n):
        version = VERSIONS[i % len(VERSIONS)]
        stream = random_stream(rng, keyspace, NOW, entries=12)
        body = dump(stream, version, compress=i % 3 == 0, now_ms=NOW)[:-FOOTER]
        found.append(body)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_payloads_are_refused_or_work(seed):
    rng = random.Random(SEED + seed)
    keyspace = Engine().keyspace
    valid = bodies(rng, keyspace, 15)
    mutator = Mutator(rng, LYING + OPCODES, SIZE_MAX)
    taken = 0
    for _ in range(ROUNDS):
        body = mutator.mutated(rng.choice(valid), rng.choice(valid)) + b"\x0e\x00"
        try:
            value = restore(body + crc(body), keyspace, NOW)
        except BadPayload:
            continue
        if isinstance(value, Stream):
            value.check()
            taken += 1
            again = dump(value, VERSIONS[-1], compress=False, now_ms=NOW)
            use(restore(again, keyspace, NOW))
            use(value)
    assert taken > ROUNDS // 30


@pytest.mark.parametrize("seed", range(3))
def test_payloads_with_a_wrong_footer_are_refused(seed):
    rng = random.Random(SEED + seed)
    keyspace = Engine().keyspace
    valid = bodies(rng, keyspace, 3)
    mutator = Mutator(rng, LYING + OPCODES, SIZE_MAX)
    for _ in range(ROUNDS):
        body = mutator.mutated(rng.choice(valid), rng.choice(valid))
        with pytest.raises((WrongChecksum, BadPayload)):
            restore(body, keyspace, NOW)


@pytest.mark.parametrize("seed", range(3))
def test_files_are_refused_or_work(seed):
    rng = random.Random(SEED + seed)
    keyspace = Engine().keyspace
    for number in range(6):
        value = random_stream(rng, keyspace, NOW, entries=6) if number % 3 else b"text" * 20
        keyspace.databases[number % 4].put(b"key %d" % number, value)
        if number % 2:
            keyspace.databases[number % 4].set_expiry(b"key %d" % number, NOW + number)
    files = []
    for version in VERSIONS:
        data = bytearray()
        write_rdb(keyspace, data.extend, version=version, now_ms=NOW, compress=False)
        files.append(bytes(data[9:-8]))
    mutator = Mutator(rng, LYING + OPCODES, SIZE_MAX)
    taken, places = 0, []
    for _ in range(ROUNDS):
        data = b"REDIS0012" + mutator.mutated(rng.choice(files), rng.choice(files))
        other = Engine().keyspace
        try:
            read_rdb(io.BytesIO(data + crc(data)), other, now_ms=NOW, merge=rng.random() < 0.5)
        except Damaged as error:
            places.append(error.offset - len(data))
            continue
        taken += 1
        for database in other.databases:
            for value in database.values.values():
                if isinstance(value, Stream):
                    value.check()
    assert max(places) <= 8, "damage is named behind the end of the file"
    assert taken > 0


@pytest.mark.parametrize("seed", range(3))
def test_files_with_foreign_types_are_refused_or_skipped(seed):
    rng = random.Random(SEED + seed)
    files = []
    for _ in range(8):
        values = [value for value in rng.choices(VALUES, k=4) if not value[1].startswith(b"VALKEY")]
        parts = [bytes([kind]) + string(b"k") + build(rng) for kind, _, _, build in values]
        files.append(b"".join(part + b"\x00" + string(b"s%d" % n) + b"\x01v" for n, part in enumerate(parts)))
    mutator = Mutator(rng, LYING + OPCODES, SIZE_MAX)
    skipped, places = 0, [0]
    for _ in range(ROUNDS):
        data = b"REDIS0014" + mutator.mutated(rng.choice(files), rng.choice(files)) + b"\xff"
        try:
            source = io.BytesIO(data + crc(data))
            loaded = read_rdb(source, Engine().keyspace, now_ms=NOW, merge=True, skip_foreign_types=True)
        except Damaged as error:
            places.append(error.offset - len(data))
            continue
        skipped += sum(loaded.skipped_key_counts.values())
    assert max(places) <= 8, "damage is named behind the end of the file"
    assert skipped > 0
