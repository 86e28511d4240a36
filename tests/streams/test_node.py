import pytest

from headrace.streams.node import Node, create_node, total_argument_bytes
from headrace.streams.node_walk import EntryWalk
from headrace.structures.listpack import Listpack
from headrace.structures.stream_id import StreamId

U64_MAX = 2**64 - 1


def values_of(node):
    pack, found = node.pack, []
    at = pack.first_at()
    while at >= 0:
        found.append(pack.get(at))
        at = pack.next_at(at)
    return found


def node_of(*entries):
    (ms, seq, first), *rest = entries
    node = create_node(ms, seq, first, 0, total_argument_bytes(first, 0))
    for ms, seq, words in rest:
        node.append(ms, seq, words, 0, total_argument_bytes(words, 0))
    node.check()
    return node


def entries_of(node):
    walk, found = EntryWalk(node), []
    while walk.next():
        pieces = []
        while walk.next_field_or_value():
            pieces.append(walk.piece())
        found.append((walk.ms, walk.seq, walk.deleted, pieces))
    return found


def packed(*values):
    pack = Listpack()
    for value in values:
        pack.append(b"%d" % value if isinstance(value, int) else value)
    return pack.to_bytes()


CAPTURED = """
    530000002200 0201 0201 0201 816102 816202 0001
    0201 0001 0001 0101 0201 0501
    0301 0001 0101 0301 0401 0501
    0101 0101 dff702 0101 816102 817802 0601
    0001 0201 dff602 0201 816202 0501 816102 0601 0801 ff
"""


def captured_node():
    node = node_of(
        (5, 10, [b"a", b"1", b"b", b"2"]),
        (5, 11, [b"a", b"3", b"b", b"4"]),
        (6, 1, [b"a", b"x"]),
        (7, 0, [b"b", b"5", b"a", b"6"]),
    )
    walk = EntryWalk(node)
    assert walk.next() and walk.next()
    node.mark_deleted(walk.at)
    assert walk.next()
    node.mark_deleted(walk.at)
    node.set_counts(2, 2)
    return node


def test_a_node_has_the_bytes_that_servers_write():
    node = captured_node()
    assert node.pack.to_bytes() == bytes.fromhex(CAPTURED)
    assert node.key() == StreamId(5, 10).key()
    assert (node.live_count, node.deleted_count, node.field_count) == (2, 2, 2)


def test_entries_are_read_as_they_were_written_tombstones_too():
    assert entries_of(captured_node()) == [
        (5, 10, False, [b"a", b"1", b"b", b"2"]),
        (5, 11, True, [b"a", b"3", b"b", b"4"]),
        (6, 1, True, [b"a", b"x"]),
        (7, 0, False, [b"b", b"5", b"a", b"6"]),
    ]


def test_a_stored_node_is_read_back():
    node = Node.from_bytes(StreamId(5, 10).key(), bytes.fromhex(CAPTURED))
    node.check()
    assert entries_of(node) == entries_of(captured_node())


def test_fields_are_the_same_only_with_the_same_names_in_the_same_order():
    master = [b"a", b"1", b"12", b"2", b"x" * 70, b"3"]
    node = node_of((1, 0, master))
    for n, words in enumerate(
        [
            [b"a", b"9", b"12", b"9", b"x" * 70, b"9"],
            [b"a", b"9", b"13", b"9", b"x" * 70, b"9"],
            [b"a", b"9", b"012", b"9", b"x" * 70, b"9"],
            [b"12", b"9", b"a", b"9", b"x" * 70, b"9"],
            [b"a", b"9", b"12", b"9", b"x" * 69 + b"y", b"9"],
            [b"a", b"9", b"12", b"9"],
            [*master, b"b", b"4"],
        ]
    ):
        before = len(node.pack)
        node.append(2 + n, 0, words, 0, total_argument_bytes(words, 0))
        pairs = len(words) // 2
        assert len(node.pack) - before == (pairs + 4 if n == 0 else 2 * pairs + 5)
    node.check()


def test_deltas_wrap_round():
    node = node_of((7, U64_MAX, [b"f", b"v"]), (8, 0, [b"f", b"w"]), (U64_MAX, U64_MAX, [b"f", b"x"]))
    assert [e[:2] for e in entries_of(node)] == [(7, U64_MAX), (8, 0), (U64_MAX, U64_MAX)]
    assert values_of(node)[10:13] == [b"2", b"1", b"1"]  # flags and deltas of 8-0


def test_counters_may_change_their_width():
    node = node_of(*((i, 0, [b"f", b"%d" % i]) for i in range(1, 300)))
    walk = EntryWalk(node)
    for live in range(298, 0, -1):
        walk.enter(node)
        while walk.next() and walk.deleted:
            pass
        node.mark_deleted(walk.at)
        node.set_counts(live, 299 - live)
    node.check()
    assert [e[2] for e in entries_of(node)] == [True] * 298 + [False]


def test_words_before_the_start_are_no_part_of_the_entry():
    node = create_node(1, 0, [b"XADD", b"s", b"*", b"f", b"v"], 3, 2)
    node.append(2, 0, [b"XADD", b"s", b"f", b"w"], 2, 2)
    assert [e[3] for e in entries_of(node)] == [[b"f", b"v"], [b"f", b"w"]]
    assert total_argument_bytes([b"XADD", b"s", b"*", b"f", b"value"], 3) == 6


KEY = StreamId(5, 0).key()
GOOD = [1, 0, 1, b"f", 0, 2, 0, 0, b"v", 4]


def test_the_smallest_node_is_accepted():
    assert entries_of(Node.from_bytes(KEY, packed(*GOOD))) == [(5, 0, False, [b"f", b"v"])]


def test_tombstones_may_be_out_of_order():
    node = Node.from_bytes(KEY, packed(1, 1, 1, b"f", 0, 3, 9, 0, b"v", 4, 2, 1, 0, b"w", 4))
    assert [e[:3] for e in entries_of(node)] == [(14, 0, True), (6, 0, False)]


@pytest.mark.parametrize(
    "elements",
    [
        [],
        [1],
        [1, 0],
        [1, 0, 1],
        [1, 0, 1, b"f"],
        [b"x", *GOOD[1:]],
        [1, b"x", *GOOD[2:]],
        [1, 0, b"x", *GOOD[3:]],
        [1, 0, 1, b"f", 1, *GOOD[5:]],  # no terminator
        [1, 0, 1, b"f", b"x", *GOOD[5:]],
        [1, 0, 2, *GOOD[3:]],
        [1, 0, -1, *GOOD[3:]],
        [1, 0, 2**62, *GOOD[3:]],
        [2, 0, *GOOD[2:]],
        [1, 1, *GOOD[2:]],
        [0, 1, *GOOD[2:]],
        [-1, 0, *GOOD[2:]],
        [*GOOD[:5], 4, *GOOD[6:]],  # flags that are none
        [*GOOD[:5], b"x", *GOOD[6:]],
        [*GOOD[:5], 0, *GOOD[6:]],
        [*GOOD[:6], b"x", *GOOD[7:]],
        [*GOOD[:7], b"x", *GOOD[8:]],
        [*GOOD[:9], 5],
        [*GOOD[:9], 3],
        [*GOOD[:9], b"x"],
        GOOD[:9],
        GOOD[:8],
        [*GOOD, 2],
        [1, 0, 1, b"f", 0, 0, 0, 0, 2**62, b"f", b"v", 6],
        [1, 0, 1, b"f", 0, 0, 0, 0, -1, b"f", b"v", 6],
        [1, 0, 1, b"f", 0, 2, -1, 0, b"v", 4],  # before the master ID
        [2, 0, 1, b"f", 0, 2, 1, 0, b"v", 4, 2, 0, 0, b"v", 4],  # out of order
        [2, 0, 1, b"f", 0, 2, 1, 0, b"v", 4, 2, 1, 0, b"v", 4],  # the same ID twice
    ],
)
def test_a_damaged_node_is_refused(elements):
    with pytest.raises(ValueError):
        Node.from_bytes(KEY, packed(*elements))


def test_flags_of_more_than_a_byte_are_refused():
    data = packed(*GOOD).replace(bytes.fromhex("0001 0201 0001"), bytes.fromhex("0001 c00202 0001"))
    data = (len(data)).to_bytes(4, "little") + data[4:]
    with pytest.raises(ValueError, match="one byte"):
        Node.from_bytes(KEY, data)


def test_a_key_must_have_sixteen_bytes():
    with pytest.raises(ValueError):
        Node.from_bytes(KEY[:15], packed(*GOOD))
