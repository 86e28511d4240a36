"""RESTORE: payloads of all types and versions, unusual but valid ones, and ones that no server writes."""

import random

import pytest

from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.crc64 import crc64
from headrace.persistence.dump import BadPayload, WrongChecksum, dump, restore
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.versions import VERSIONS, by_name
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.stream import Stream
from headrace.streams.trim import trim_by_id
from support.portrait import portrait_of
from support.random_streams import ids_of, random_stream

NOW = 1_700_000_000_000
U64_MAX = 2**64 - 1
NEWEST = by_name("redis-8.8")


def sealed(body, version=14):
    body += version.to_bytes(2, "little")
    return body + crc64(body).to_bytes(8, "little")


def restored(body, version=14):
    stream = restore(sealed(body, version), Keyspace(), NOW)
    if isinstance(stream, Stream):
        stream.check()
    return stream


def refused(body, what):
    with pytest.raises(BadPayload, match=what):
        restore(sealed(body), Keyspace(), NOW)


class Object:
    """A stream object written by hand, as the type `kind`; what is said may be nonsense."""

    def __init__(self, kind, ids=((1, 1), (2, 0)), **said):
        self.kind = kind
        self.out = RdbOutput(None, False)
        stream = Stream()
        for ms, seq in ids:
            stream.append(ms, seq, [b"f", b"v"], 0, 0, 0)
        self.out.byte(kind)
        self.nodes(stream)
        said = {"length": len(ids), "last": ids[-1], "added": len(ids), "deleted": (0, 0)} | said
        self.out.length(said["length"])
        self.numbers(*said["last"])
        if kind >= 19:
            self.numbers(0, 0, *said["deleted"], said["added"])

    def nodes(self, stream):
        tail = stream.tail
        self.out.length(1)
        self.out.string(tail.key())
        self.out.string(tail.pack.to_bytes())

    def numbers(self, *numbers):
        for number in numbers:
            self.out.length(number)

    def id(self, ms, seq):
        self.out.raw(ms.to_bytes(8, "big") + seq.to_bytes(8, "big"))

    def group(self, name=b"g", last=(1, 1), read=U64_MAX, pending=(), consumers=(), zone=()):
        """pending: (ID, time, count); consumers: (name, seen, active, IDs)."""
        self.out.string(name)
        self.numbers(*last)
        if self.kind >= 19:
            self.numbers(read)
        self.numbers(len(pending))
        for one, time, count in pending:
            self.id(*one)
            self.out.time(time)
            self.numbers(count)
        self.numbers(len(consumers))
        for consumer, seen, active, owned in consumers:
            self.out.string(consumer)
            self.out.time(seen)
            if self.kind >= 21:
                self.out.time(active)
            self.numbers(len(owned))
            for one in owned:
                self.id(*one)
        if self.kind >= 27:
            self.numbers(len(zone))
            for one in zone:
                self.id(*one)

    def producers(self, duration=100, maxsize=100, producers=(), added=0, duplicates=0):
        self.numbers(duration, maxsize, len(producers))
        for pid, iids in producers:
            self.out.string(pid)
            self.numbers(len(iids))
            for iid, one in iids:
                self.out.string(iid)
                self.numbers(*one)
        self.numbers(added, duplicates)

    def body(self):
        return self.out.take()


def with_group(kind, **group):
    made = Object(kind)
    made.numbers(1)
    made.group(**group)
    if kind >= 26:
        made.producers()
    return made.body()


def plain(kind=19, **said):
    made = Object(kind, **said)
    made.numbers(0)
    if kind >= 26:
        made.producers()
    return made.body()


# ---- all types


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v.name)
@pytest.mark.parametrize("seed", range(8))
def test_what_is_dumped_is_restored(seed, version):
    rng = random.Random(seed)
    keyspace = Keyspace()
    stream = random_stream(rng, keyspace, NOW)
    payload = dump(stream, version, compress=rng.random() < 0.5, now_ms=NOW)
    again = restore(payload, keyspace, NOW)
    again.check()
    shown = [
        portrait_of(one, nodes=True, ties=False, times=version.stream_type >= 21) for one in (again, stream)
    ]
    assert shown[0] == shown[1]
    assert dump(again, version, compress=True, now_ms=NOW) == dump(stream, version, compress=True, now_ms=NOW)


@pytest.mark.parametrize("value", [b"", b"text", b"12", b"-70000", b"a" * 1000])
def test_strings(value):
    assert restore(dump(value, NEWEST, compress=True, now_ms=NOW), Keyspace(), NOW) == value


@pytest.mark.parametrize("kind", [15, 19, 21, 26, 27])
def test_every_stream_type_is_restored(kind):
    stream = restored(
        with_group(
            kind,
            pending=[((1, 1), 500, 3)],
            consumers=[(b"c", 600, 700, [(1, 1)]), (b"d", 800, -1, [])],
            read=1,
        )
    )
    group = stream.group(b"g")
    assert ids_of(stream) == [(1, 1), (2, 0)]
    assert (stream.length, stream.entries_added, stream.first_id().ms) == (2, 2, 1)
    assert group.entries_read == 1  # said, or what follows from the rest: one entry up to 1-1
    actives = [consumer.active_ms for consumer in group.consumers()]
    assert actives == ([700, -1] if kind >= 21 else [600, 800])
    slot = group.pending.find(1, 1)
    assert group.pending.owner_of(slot).name == b"c"
    assert (group.pending.delivery_time_of(slot), group.pending.delivery_count_of(slot)) == (500, 3)


def test_counters_that_the_oldest_type_lacks_are_computed():
    assert restored(with_group(15, last=(0, 0))).group(b"g").entries_read == 0
    assert restored(with_group(15, last=(2, 0))).group(b"g").entries_read == 2
    assert restored(with_group(15, last=(1, 5))).group(b"g").entries_read == -1
    assert restored(plain(15)).entries_added == 2


def test_a_stream_without_nodes():
    out = RdbOutput(None, False)
    out.byte(19)
    for number in (0, 0, 7, 7, 0, 0, 6, 5, 9, 0):
        out.length(number)
    stream = restored(out.take())
    assert (stream.length, stream.last_ms, stream.max_deleted_ms, stream.entries_added) == (0, 7, 6, 9)


def test_pending_entries_come_in_the_order_of_their_delivery():
    ids = [(n, n) for n in range(1, 9)]
    times = [50, 10, 30, 10, 20, 60, 5, 30]
    pending = [(one, time, 1) for one, time in zip(ids, times, strict=True)]
    stream = restored(
        with_group(
            27,
            pending=pending,
            consumers=[(b"a", 0, 0, ids[::2]), (b"b", 0, 0, ids[1:6:2])],
            zone=[ids[7]],
        )
    )
    entries = stream.group(b"g").pending
    found, slot = [], entries.first_by_delivery()
    while slot >= 0:
        found.append((entries.delivery_time_of(slot), entries.ms_of(slot)))
        slot = entries.next_by_delivery(slot)
    assert found == [(0, 8), (5, 7), (10, 2), (10, 4), (20, 5), (30, 3), (50, 1), (60, 6)]


def test_unowned_entries_come_in_the_order_they_were_given_back():
    pending = [((n, 0), 99, n) for n in (1, 2, 3, 4)]
    body = with_group(27, pending=pending, consumers=[(b"c", 0, 0, [(2, 0)])], zone=[(4, 0), (1, 0), (3, 0)])
    entries = restored(body).group(b"g").pending
    assert entries.unowned_count == 3
    found, slot = [], entries.first_by_delivery()
    while slot >= 0:
        found.append((entries.ms_of(slot), entries.delivery_time_of(slot), entries.delivery_count_of(slot)))
        slot = entries.next_by_delivery(slot)
    assert found == [(4, 0, 4), (1, 0, 1), (3, 0, 3), (2, 99, 2)]


def test_producers_are_remembered_and_old_requests_are_not():
    made = Object(26)
    made.numbers(0)
    fresh, old = NOW - 50_000, NOW - 150_000
    made.producers(
        100,
        5,
        [(b"p", [(b"old", (old, 0)), (b"new", (fresh, 1))]), (b"q", [(b"old", (old, 0))]), (b"r", [])],
        8,
        3,
    )
    keyspace = Keyspace()
    stream = restore(sealed(made.body()), keyspace, NOW)
    memory = stream.idempotency
    assert isinstance(memory, IdempotencyStore)
    assert [(pid, iid, one.ms) for pid, iid, one in memory.items()] == [(b"p", b"new", fresh)]
    assert (memory.added_count, memory.duplicate_count) == (8, 3)
    assert (stream.idmp_duration_s, stream.idmp_maxsize) == (100, 5)
    assert len(keyspace.idempotency_sweeper) > 0


# ---- footers


@pytest.mark.parametrize("version", [*range(1, 15), 80])
def test_versions(version):
    assert restored(plain(), version).length == 2


@pytest.mark.parametrize("version", [0, 15, 79, 81, 65535])
def test_versions_that_are_not_known(version):
    with pytest.raises(WrongChecksum, match=f"version {version}"):
        restore(sealed(plain(), version), Keyspace(), NOW)


def test_checksums():
    payload = sealed(plain())
    for at in range(len(payload)):
        flipped = bytearray(payload)
        flipped[at] ^= 0x10
        with pytest.raises(WrongChecksum):
            restore(bytes(flipped), Keyspace(), NOW)
    for size in range(10):
        with pytest.raises(WrongChecksum):
            restore(payload[-size:] if size else b"", Keyspace(), NOW)


def test_bytes_before_the_footer_are_read_only_if_they_are_extras():
    assert restored(plain() + b"junk").length == 2
    refused(plain() + b"HRK1?", "extras")
    refused(plain() + b"HRK1u\x01\x01g", "extras")


def test_a_truncated_file_or_payload_is_rejected():
    body = with_group(27, pending=[((1, 1), 5, 1)], consumers=[(b"c", 0, 0, [(1, 1)])])
    for cut in range(len(body)):
        refused(body[:cut], "ends here")


# ---- what servers do write


def test_entries_before_the_id_of_their_node_are_read():
    # XADD 1-0, 2-0; XDEL 2-0; XTRIM MINID = 2-0; XSETID 0-5; XADD 0-6, 0-7, 3-7; DUMP
    payload = bytes.fromhex(
        "13011000000000000000010000000000000000c33c404b134b0000001e00030102010101816602000103010020010381"
        "760204200a0001c00a080201dfff02060181772016600b0007c00b010201800a0101ff0303070006020005000a000aef"
        "25f1fb2473a8"
    )
    stream = restore(payload, Keyspace(), NOW)
    stream.check()
    assert ids_of(stream) == [(0, 6), (0, 7), (3, 7)]
    assert all(stream.contains(ms, seq) for ms, seq in ids_of(stream))
    assert (stream.length, stream.entries_added, stream.max_deleted_ms) == (3, 5, 2)
    again = restore(dump(stream, NEWEST, compress=True, now_ms=NOW), Keyspace(), NOW)
    assert portrait_of(again, nodes=True) == portrait_of(stream, nodes=True)


def test_a_node_without_live_entries():
    stream = Stream()
    for ms in (1, 2):
        stream.append(ms, 0, [b"f", b"v"], 0, 0, 0)
    stream.delete(2, 0)
    trim_by_id(stream, 2, 0, False, 0)  # the node ends with 2-0, so it stays
    assert (stream.length, stream.nodes.key_count) == (0, 1)
    again = restored(dump(stream, NEWEST, compress=False, now_ms=NOW)[:-10])
    assert portrait_of(again, nodes=True) == portrait_of(stream, nodes=True)
    again.append(3, 0, [b"f", b"v"], 0, 0, 0)
    again.check()
    assert ids_of(again) == [(3, 0)]


def test_unusual_but_valid_counters_are_accepted():
    # A group that has read more than was added, up to an entry past the last one: XGROUP CREATE in 7.0.
    group = restored(with_group(19, last=(99, 0), read=999)).group(b"g")
    assert (group.last_ms, group.entries_read) == (99, 999)
    # A deleted ID above the last one, and a pending entry that is no more and lies past the last one.
    assert restored(plain(19, deleted=(77, 0))).max_deleted_ms == 77
    entries = [((50, 0), 5, 1)]
    stream = restored(with_group(19, pending=entries, consumers=[(b"c", 0, 0, [(50, 0)])]))
    assert stream.group(b"g").pending.count == 1
    # XSETID set entries-added to the end of the signed numbers, and more came.
    assert restored(plain(19, added=2**63 + 1)).entries_added == 2**63 + 1
    # XADD and XDEL, then XTRIM: more were added than there are.
    assert restored(plain(21, added=10**9)).entries_added == 10**9
    # Times before 1970, and a delivery count that ran past the signed numbers.
    stream = restored(with_group(21, pending=[((1, 1), -5, 2**63 + 7)], consumers=[(b"c", -9, -1, [(1, 1)])]))
    pending = stream.group(b"g").pending
    assert (pending.delivery_time_of(0), pending.delivery_count_of(0)) == (-5, 2**63 - 1)


def test_a_last_id_below_the_last_entry_is_repaired():
    stream = restored(plain(19, last=(1, 1)))
    assert (stream.last_ms, stream.last_seq) == (2, 0)


# ---- what none can write


PENDING = {"pending": [((1, 1), 5, 1)]}
REFUSED = {
    "other length": (plain(length=3), "says it has 3 entries, its nodes have 2"),
    "fewer added": (plain(added=1), "1 were ever added"),
    "added without end": (plain(added=U64_MAX), "a counter of"),
    "pending twice": (
        with_group(19, pending=[((1, 1), 5, 1)] * 2, consumers=[(b"c", 0, 0, [(1, 1)])]),
        "pending twice",
    ),
    "owned twice": (
        with_group(21, **PENDING, consumers=[(b"c", 0, 0, [(1, 1)]), (b"d", 0, 0, [(1, 1)])]),
        "has an owner already",
    ),
    "owned twice by one": (
        with_group(21, **PENDING, consumers=[(b"c", 0, 0, [(1, 1)] * 2)]),
        "has an owner already",
    ),
    "owned, not pending": (with_group(21, consumers=[(b"c", 0, 0, [(1, 1)])]), "not pending"),
    "consumer twice": (with_group(21, consumers=[(b"c", 0, 0, [])] * 2), "consumer b'c' twice"),
    "no owner": (with_group(21, **PENDING), "no owner"),
    "no owner, not in the zone": (with_group(27, **PENDING), "no owner"),
    "zone twice": (with_group(27, **PENDING, zone=[(1, 1)] * 2), "occurs twice"),
    "zone, not pending": (with_group(27, zone=[(1, 1)]), "not unowned"),
    "zone, owned": (
        with_group(27, **PENDING, consumers=[(b"c", 0, 0, [(1, 1)])], zone=[(1, 1)]),
        "not unowned",
    ),
    "unknown type": (b"\x1c" + plain()[1:], "type 28"),
    "no type": (b"", "ends here"),
    "string cut": (b"\x00\x05abc", "ends here"),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_streams_that_no_server_writes_are_rejected(case):
    refused(*REFUSED[case])


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"duration": 0}, "cannot remember"),
        ({"maxsize": 0}, "cannot remember"),
        ({"duration": U64_MAX}, "cannot remember"),
        ({"producers": [(b"p", [])] * 2 + [(b"p", [(b"i", (1, 1))])] * 2}, "producer b'p' twice"),
        ({"added": U64_MAX}, "a counter of"),
        ({"duplicates": U64_MAX}, "a counter of"),
    ],
)
def test_producers_that_no_server_writes_are_rejected(said, what):
    made = Object(26)
    made.numbers(0)
    made.producers(**said)
    refused(made.body(), what)


@pytest.mark.parametrize(
    "kind", [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 16, 17, 18, 20, 22, 28, 99, 255]
)
def test_values_of_other_types_are_rejected(kind):
    refused(bytes([kind]) + b"\x01\x01a", f"type {kind}.*streams and strings only")


def test_huge_counts_take_neither_time_nor_memory():
    for at_count in (b"", plain(19)[1:-1], with_group(19)[1:-2]):
        refused(b"\x13" + at_count + b"\x81" + b"\xff" * 8, "ends here")
