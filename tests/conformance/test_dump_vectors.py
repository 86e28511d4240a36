"""DUMP is, to the byte, what real servers answered after the same commands."""

import base64
import gzip
import json
import pathlib

import pytest

from headrace.engine.engine import Engine
from headrace.persistence.crc64 import crc64
from headrace.persistence.dump import dump, restore
from headrace.persistence.rdb.versions import by_name

FILES = sorted((pathlib.Path(__file__).parent / "vectors" / "streams").iterdir())
SEEN_MS = 1_700_000_000_000  # the vectors have it wherever a consumer was seen or active
NOW_MS = SEEN_MS + 1_000_000_000_000  # later than any delivery time that they set
# Later servers, as ours, let no group have read more than was ever added; those of the vectors did.
READ_TOO_MUCH = {"54_group_entries_read": (b"beyond", 100_000)}
VERSIONS = {"redis-7.0.15": "compatible", "redis-8.0.6": "redis-8.0"}
FOOTER_BYTES = 10
# One length of an element is written in one way by Redis and in another by Valkey.
SHARED = [path for path in FILES if "backlen_16383" not in path.name]


def load(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text)


def as_bytes(word):
    return base64.b64decode(word["b64"]) if isinstance(word, dict) else str(word).encode()


def value_after(path, vector):
    """What an engine holds under the vector's key after its commands, its consumers last seen at SEEN_MS."""
    engine = Engine()
    session = engine.create_session(now_ms=NOW_MS)
    for name, value in vector["config"].items():
        setattr(engine.keyspace.settings, name.replace("-", "_"), int(value))
    for command in vector["commands"]:
        engine.execute(session, [as_bytes(word) for word in command], NOW_MS)
        session.reply.take()
    stream = engine.keyspace.databases[0].find(as_bytes(vector["key"]))
    for group in stream.groups():
        for consumer in group.consumers():
            consumer.seen_ms = SEEN_MS
            consumer.active_ms = min(consumer.active_ms, SEEN_MS)  # -1 is never
    name = path.name.split(".")[0]
    if name in READ_TOO_MUCH:
        group, entries_read = READ_TOO_MUCH[name]
        assert stream.group(group).entries_read == stream.entries_added
        stream.group(group).entries_read = entries_read
    return stream


def payloads(vector, server):
    """(compressed?, payload) for both DUMPs of that server."""
    stored = vector["servers"][server]
    return [(True, base64.b64decode(stored["dump"])), (False, base64.b64decode(stored["dump_raw"]))]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name.split(".")[0])
def test_the_same_commands_give_the_same_payload(path):
    vector = load(path)
    value = value_after(path, vector)
    for server, name in VERSIONS.items():
        if server == "redis-7.0.15" and "differs" in path.name:
            continue  # there it is the older server that thinks otherwise: see the test below
        for compress, payload in payloads(vector, server):
            assert dump(value, by_name(name), compress=compress, now_ms=NOW_MS) == payload


@pytest.mark.parametrize("path", SHARED, ids=lambda p: p.name.split(".")[0])
def test_valkey_gives_the_same_but_for_the_footer(path):
    vector = load(path)
    value = value_after(path, vector)
    for compress, payload in payloads(vector, "valkey-9.1.2"):
        ours = dump(value, by_name("redis-7.2"), compress=compress, now_ms=NOW_MS)
        assert ours[:-FOOTER_BYTES] == payload[:-FOOTER_BYTES]
        assert payload[-8:] == crc64(payload[:-8]).to_bytes(8, "little")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name.split(".")[0])
def test_a_restored_payload_is_dumped_as_it_was(path):
    vector = load(path)
    for server, name in VERSIONS.items():
        for compress, payload in payloads(vector, server):
            value = restore(payload, Engine().keyspace, NOW_MS)
            assert dump(value, by_name(name), compress=compress, now_ms=NOW_MS) == payload
