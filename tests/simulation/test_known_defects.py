"""Cases that other servers lose or reject: here they survive every form of storage."""

import io
from random import Random

import pytest

from headrace.persistence.rdb import versions
from headrace.persistence.rdb.writer import write_rdb
from simulation.disk import boundaries
from simulation.life import Life
from simulation.simulation import Crashes
from simulation.world import BIRTH_MS, NAMES, Setup
from support.portrait import entries, packed_nodes, portrait

WAYS = ["log", "rdb base", "command base", "snapshot"]


def said(life, *lines):
    for line in lines:
        life.converse([line.encode().split(b" ")])
        life.pass_time(10)


def lived(way, *lines, **setup):
    """A life that said these lines and stored what came of it in this way."""
    chosen = Setup(policy="always", appendonly=way != "snapshot", rdb_base=way != "command base", **setup)
    life = Life(chosen, {}, Random(1), BIRTH_MS)
    said(life, *lines)
    if way == "snapshot":
        life.save()
    elif way != "log":
        life.begin_rewrite()
        life.finish_rewrite()
    return life


def left_by(life):
    """The disk after a crash at the end that forgets all it may; those before it are looked at."""
    Crashes(life, Random(1), "known defect").look()
    *_, (_, platter) = boundaries(life.files)
    return platter.image(Random(1), "forgotten")


def survives(way, *lines, **setup):
    """Crash a life everywhere, begin another in what is left, say something more, crash that everywhere."""
    life = lived(way, *lines, **setup)
    before = portrait(life.engine.keyspace, times=False, ties=False)
    heir = Life(life.setup, left_by(life), Random(2), life.now + 5)
    assert portrait(heir.engine.keyspace, times=False, ties=False) == before
    said(heir, "XADD s * after restart", "SET a 1")
    left_by(heir)
    return heir


def patched(way, life, node, other, more=()):
    """The disk a life leaves, but in its snapshot another stands in place of a node, and more is replaced."""
    image = left_by(life)
    name = "dump.rdb" if way == "snapshot" else NAMES.path(NAMES.base_name(2, True))
    assert name in image
    file = io.BytesIO()
    version = versions.by_name("compatible")
    write_rdb(
        life.engine.keyspace, file.write, version=version, compress=False, checksum=False, now_ms=life.now
    )
    data = file.getvalue()
    for old, new in ((rdb_string(node), rdb_string(other)), *more):
        assert data.count(old) == 1
        data = data.replace(old, new)
    return image | {name: data}


def rdb_string(data):
    """As it stands in a snapshot, not compressed."""
    n = len(data)
    return (bytes([n]) if n < 64 else b"\x80" + n.to_bytes(4, "big") if n >= 16_384 else b"?") + data


GROUP = ["XADD s 1-0 f 1", "XADD s 2-0 f 2", "XADD s 3-0 f 3", "XGROUP CREATE s g 0"]


@pytest.mark.parametrize("cut", range(1, 98))
def test_a_log_may_end_inside_a_transaction(cut):
    """Redis 7.0 and 8.0 keep the torn MULTI, and lose what is acknowledged after it at the second restart."""
    life = lived("log", "SET a 0")
    log = NAMES.path(NAMES.incr_name(1))
    before = left_by(life)[log]
    life.converse([[b"MULTI"], [b"SET", b"a", b"1"], [b"SET", b"b", b"1"], [b"EXEC"]])
    image = left_by(life)
    assert len(image[log]) - len(before) == 98
    image[log] = image[log][:-cut]
    heir = Life(Setup(policy="always"), image, Random(2), BIRTH_MS + 1000)
    # The last 15 bytes are the checksum: a transaction that only lacks that is whole.
    kept = {b"a": b"1", b"b": b"1"} if cut <= 15 else {b"a": b"0"}
    assert dict(heir.engine.keyspace.databases[0].values.items()) == kept
    said(heir, "SET c acknowledged")
    again = Life(Setup(policy="always"), left_by(heir), Random(3), BIRTH_MS + 2000)
    values = again.engine.keyspace.databases[0].values
    assert dict(values.items()) == kept | {b"c": b"acknowledged"}


@pytest.mark.parametrize("way", WAYS)
def test_pending_entries_may_be_deleted(way):
    """A rewrite in command form loses them in Redis and Valkey."""
    read = "XREADGROUP GROUP g ann COUNT 3 STREAMS s >"
    heir = survives(way, *GROUP, read, "XDEL s 2-0", "XREADGROUP GROUP g bob STREAMS s >", "XDEL s 3-0")
    assert heir.engine.keyspace.databases[0].stream(b"s").group(b"g").pending.count == 3


@pytest.mark.parametrize("way", WAYS)
def test_all_entries_may_be_deleted_and_still_pending(way):
    survives(way, *GROUP, "XREADGROUP GROUP g ann STREAMS s >", "XDEL s 1-0 2-0 3-0")


@pytest.mark.parametrize("way", WAYS)
def test_an_empty_read_creates_a_durable_consumer(way):
    """Redis and Valkey do not log it."""
    heir = survives(way, "XGROUP CREATE s g $ MKSTREAM", "XREADGROUP GROUP g ann STREAMS s >")
    assert heir.engine.keyspace.databases[0].stream(b"s").group(b"g").consumer(b"ann") is not None


@pytest.mark.parametrize("way", WAYS)
def test_the_last_delivered_id_may_go_back(way):
    read = "XREADGROUP GROUP g ann STREAMS s >"
    heir = survives(way, *GROUP, read, "XGROUP SETID s g 1-0", "XCLAIM s g bob 0 2-0 JUSTID", "XACK s g 3-0")
    assert heir.engine.keyspace.databases[0].stream(b"s").group(b"g").last_ms == 1


@pytest.mark.parametrize("way", WAYS)
def test_released_entries_keep_their_order(way):
    lines = [
        *GROUP,
        "XREADGROUP GROUP g ann STREAMS s >",
        "XNACK s g FAIL IDS 1 3-0",
        "XNACK s g SILENT IDS 1 1-0",
    ]
    survives(way, *lines)


@pytest.mark.parametrize("way", WAYS)
def test_nodes_may_have_one_entry(way):
    """stream-node-max-bytes 1."""
    survives(way, *GROUP, "XDEL s 2-0", "XADD s * f 4", "XTRIM s MAXLEN ~ 2", node_bytes=1)


@pytest.mark.parametrize("way", WAYS)
def test_idempotent_requests_survive_their_entries(way):
    request = "XADD s IDMP p i * f 1"
    heir = survives(way, request, "XADD s IDMP p j * f 2", f"XDEL s {BIRTH_MS}-0", request)
    added = heir.engine.keyspace.databases[0].stream(b"s").entries_added
    said(heir, request)
    assert heir.engine.keyspace.databases[0].stream(b"s").entries_added == added


@pytest.mark.parametrize("way", WAYS)
def test_an_element_may_have_16383_bytes(way):
    """Five of them are its head. Redis stores the length behind it in three bytes, Valkey in two."""
    survives(way, f"XADD s 1-0 f {'x' * 16_378}", f"XADD s 2-0 f {'x' * 16_377} f {'y' * 16_379}")


@pytest.mark.parametrize("way", ["rdb base", "snapshot"])
def test_an_element_of_16383_bytes_of_another_server_is_read(way):
    life = lived(way, f"XADD s 1-0 f {'x' * 16_378}", node_bytes=100_000)
    before = portrait(life.engine.keyspace, times=False)
    ((_, node),) = packed_nodes(life.engine.keyspace.databases[0].stream(b"s"))
    other = node.replace(b"\x00\xff\xff", b"\x7f\xff")
    other = len(other).to_bytes(4, "little") + other[4:]
    assert len(other) == len(node) - 1
    heir = Life(life.setup, patched(way, life, node, other), Random(2), life.now)
    assert portrait(heir.engine.keyspace, times=False) == before
    said(heir, "XADD s * f 2", "XDEL s 1-0")
    left_by(heir)


@pytest.mark.parametrize("way", ["rdb base", "snapshot"])
def test_a_snapshot_may_have_a_node_without_live_entries(way):
    """It holds tombstones only; servers have left such nodes in their snapshots."""
    life = lived(way, "XADD s 1-0 f 1", "XADD s 2-0 f 2", "XADD s 3-0 f 3", node_entries=1)
    (_, (_, node), (_, last)) = packed_nodes(life.engine.keyspace.databases[0].stream(b"s"))
    assert (node[6], node[8], node[17]) == (1, 0, 2)  # alive, deleted, flags of the entry
    dead = bytearray(node)
    dead[6], dead[8], dead[17] = 0, 1, 3
    length = (rdb_string(last) + b"\x03", rdb_string(last) + b"\x02")
    heir = Life(life.setup, patched(way, life, node, bytes(dead), [length]), Random(2), life.now)
    stream = heir.engine.keyspace.databases[0].stream(b"s")
    stream.check()
    assert [entry for entry, _ in entries(stream)] == [(1, 0), (3, 0)]
    said(heir, "XADD s * f 4", "XTRIM s MAXLEN 1")
    left_by(heir)
