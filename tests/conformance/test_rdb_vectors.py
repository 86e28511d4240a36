"""What three real servers dumped and saved becomes here what they had, and is dumped again as they did."""

import base64
import io
import json
import pathlib

import pytest

from conformance.stream_vectors import FILES, as_bytes, counters_of, entries_of, expected, groups_of, load
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.dump import dump, restore
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.versions import COMPATIBLE_VERSION, RdbVersion, by_name

RDB = sorted((pathlib.Path(__file__).parent / "vectors" / "rdb").glob("*.json"))
VERSIONS = {
    "redis-7.0.15": COMPATIBLE_VERSION,
    "redis-8.0.6": by_name("redis-8.0"),
    "valkey-9.1.2": RdbVersion("as Valkey 9 writes it", 80, 21),
}
NOW = 1_700_000_100_000


def state_of(stream):
    return counters_of(stream) | {"entries": entries_of(stream), "groups": groups_of(stream)}


def meant(expect):
    state = dict(expect)
    state["entries"] = [(i, [as_bytes(word) for word in words]) for i, words in expect["entries"]]
    return state


def without_lag(state):
    """What a server says of the lag depends on its version, and is not stored."""
    return state | {"groups": [{k: v for k, v in group.items() if k != "lag"} for group in state["groups"]]}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name.split(".")[0])
def test_payloads_of_all_servers_are_what_they_dumped(path):
    vector = load(path)
    for server, payloads in vector["servers"].items():
        for form in ("dump", "dump_raw"):
            payload = base64.b64decode(payloads[form])
            stream = restore(payload, Keyspace(), NOW)
            stream.check()
            assert without_lag(state_of(stream)) == without_lag(meant(expected(vector, server))), server
            again = dump(stream, VERSIONS[server], compress=form == "dump", now_ms=NOW)
            if vector["cross"] or server.startswith("redis"):
                assert again == payload, server
            else:  # its trailing lengths have become those of Redis
                assert state_of(restore(again, Keyspace(), NOW)) == state_of(stream)


@pytest.mark.parametrize("path", RDB, ids=lambda p: p.stem)
def test_files_of_all_servers_are_what_they_saved(path):
    vector = json.loads(path.read_bytes())
    for server, files in vector["servers"].items():
        data = base64.b64decode(files["dump.rdb"])
        keyspace = Keyspace()
        loaded = read_rdb(io.BytesIO(data), keyspace, now_ms=NOW)
        found = {str(d.index): keys_of(d) for d in keyspace.databases if d.size()}
        assert found == {number: [key_of(key) for key in keys] for number, keys in vector["expect"].items()}
        assert loaded.end_offset == len(data)
        assert loaded.aux[server.split("-")[0].encode() + b"-ver"].decode() == server.split("-")[1]
        assert loaded.version == {"r": "REDIS00", "v": "VALKEY0"}[server[0]] + str(
            VERSIONS[server].rdb_version
        )
        assert (
            loaded.key_count
            == loaded.stream_count + loaded.string_count
            == sum(len(keys) for keys in found.values())
        )


def keys_of(database):
    found = []
    for key, value in sorted(database.values.items()):
        shown = value if isinstance(value, bytes) else without_lag(state_of(value))
        found.append((key, database.expiry(key), shown))
    return found


def key_of(key):
    shown = without_lag(meant(key["stream"])) if key["type"] == "stream" else as_bytes(key["value"])
    return as_bytes(key["key"]), key["expire-at-ms"], shown
