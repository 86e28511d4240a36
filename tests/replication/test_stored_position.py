"""The position in the stream that a snapshot or a log has; Redis and Valkey write the same fields."""

import base64
import io
import json
import pathlib

import pytest

from headrace.engine.engine import Engine
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.versions import COMPATIBLE_VERSION
from headrace.persistence.rdb.writer import write_rdb
from headrace.replication.stored_position import (
    StoredPosition,
    decode_comment,
    decode_position,
    encode_comment,
    encode_position,
)

NOW = 1_700_000_000_000
HISTORY = "0123456789abcdef0123456789abcdef01234567"
CAPTURES = pathlib.Path(__file__).parent.parent / "conformance" / "vectors" / "repl"


@pytest.mark.parametrize("database", [0, 15, (1 << 31) - 1])
@pytest.mark.parametrize("offset", [0, 1, 1 << 40, 1 << 62])
def test_a_position_survives_a_file(database, offset):
    data = bytearray()
    fields = encode_position(database, HISTORY, offset)
    write_rdb(Engine().keyspace, data.extend, version=COMPATIBLE_VERSION, now_ms=NOW, aux=fields)
    loaded = read_rdb(io.BytesIO(data), Keyspace(), now_ms=NOW)
    assert decode_position(loaded.aux) == StoredPosition(database, HISTORY, offset)


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*.json")), ids=lambda path: path.stem)
def test_the_snapshots_of_other_primaries_have_the_position_that_they_announce(path):
    events = json.loads(path.read_bytes())["events"]
    sent = b"".join(base64.b64decode(e["data"]["b64"]) for e in events if e.get("from") == "M")
    _, history, offset = sent[sent.index(b"+FULLRESYNC") :].split(b"\r\n")[0].split()
    at = sent.index(b"VALKEY080" if path.name.startswith("valkey") else b"REDIS00")
    loaded = read_rdb(io.BytesIO(sent[at:]), Keyspace(), now_ms=NOW)
    assert decode_position(loaded.aux) == StoredPosition(0, history.decode(), int(offset))


def test_fields_that_are_absent_or_malformed_are_no_position():
    good = encode_position(3, HISTORY, 17)
    assert decode_comment(encode_comment(good)) == StoredPosition(3, HISTORY, 17)
    assert decode_position(good | {b"redis-ver": b"7.0.15"}) == StoredPosition(3, HISTORY, 17)
    assert decode_position({}) is None
    for name in good:
        assert decode_position({k: v for k, v in good.items() if k != name}) is None
        for value in (b"", b"-1", b"x", b"1.0", b" 1", b"1\n", b"\xff", b"1" * 20, b"9" * 19, b"\xb2"):
            assert decode_position(good | {name: value}) is None
            assert decode_comment(encode_comment(good | {name: value})) is None
    for history in (HISTORY[1:], HISTORY + "0", HISTORY.upper(), HISTORY[1:] + "g", "?"):
        assert decode_position(good | {b"repl-id": history.encode()}) is None


@pytest.mark.parametrize(
    "line", [b"", b"#\r\n", b"#TS:17\r\n", b"#REPL:\r\n", b"#REPL:1,2\r\n", b"#REPL:1,2,3,4\r\n"]
)
def test_other_comments_are_no_position(line):
    assert decode_comment(line) is None
