"""Hostile nodes: an error, or a node that can be read to its end and changed."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.streams.iterator import StreamIterator
from headrace.streams.node_walk import EntryWalk
from headrace.streams.stream import Stream
from headrace.streams.trim import trim_by_length
from headrace.structures.listpack import Listpack
from headrace.structures.stream_id import StreamId

COMPILED = "HEADRACE_COMPILED" in os.environ
EXAMPLES = settings(max_examples=2000 if COMPILED else 300)
U64_MAX = 2**64 - 1

NUMBERS = st.one_of(st.integers(-2, 6), st.sampled_from([-(2**63), 2**62, 2**63 - 1, 65535]))
ELEMENTS = st.lists(st.one_of(NUMBERS, st.sampled_from([b"f", b"g", b"", b"x" * 70])), max_size=24)
WORDS = st.lists(st.sampled_from([b"f", b"1", b"value", b"x" * 100]), min_size=1, max_size=3).map(
    lambda w: w * 2
)


def packed(elements):
    pack = Listpack()
    for element in elements:
        pack.append(b"%d" % element if isinstance(element, int) else element)
    return pack.to_bytes()


def use(key, data):
    """Load data and do with it all that can be done, if it loads at all."""
    stream = Stream()
    try:
        stream.append_stored_node(key, data)
    except ValueError:
        return
    node = stream.tail
    node.check()
    stream.length = node.live_count
    stream.last_ms = stream.last_seq = U64_MAX - 1
    stream.update_first_id()
    walk = EntryWalk(node)
    while walk.next():
        while walk.next_field_or_value():
            walk.piece()
    ids = []
    for reverse in (False, True):
        iterator = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, reverse)
        while iterator.next():
            assert len(iterator.remaining_pieces()) == 2 * iterator.field_count
            ids.append((iterator.ms, iterator.seq))
    assert ids[: node.live_count] == ids[node.live_count :][::-1]
    stream.copy().check()
    trim_by_length(stream, max(0, node.live_count - 1), False, 0)
    for ms, seq in set(ids):
        stream.delete(ms, seq)
    assert stream.length == 0
    stream.append(U64_MAX, U64_MAX, [b"f", b"v"], 0, 4096, 100)
    stream.check()


@EXAMPLES
@given(ELEMENTS)
def test_any_elements_are_refused_or_work(elements):
    use(StreamId(5, 0).key(), packed(elements))


@EXAMPLES
@given(
    st.lists(WORDS, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 10**4), NUMBERS), max_size=2),
    st.integers(0, 5),
)
def test_nodes_with_elements_changed_are_refused_or_work(entries, changes, cut):
    stream = Stream()
    for i, words in enumerate(entries):
        stream.append(5 + i, 0, words, 0, 0, 0)
    stream.delete(5, 0)
    if stream.tail is None:
        return
    pack = stream.tail.pack
    offsets = []
    at = pack.first_at()
    while at >= 0:
        offsets.append(at)
        at = pack.next_at(at)
    places = {place % len(offsets): number for place, number in changes}
    for place in sorted(places, reverse=True):  # from the end on: what follows a change may move
        pack.replace_int(offsets[place], places[place])
    for _ in range(cut if changes else 0):
        pack.delete(pack.last_at())
    use(StreamId(5, 0).key(), pack.to_bytes())


@EXAMPLES
@given(
    st.lists(WORDS, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_nodes_with_bytes_changed_are_refused_or_work(entries, changes):
    stream = Stream()
    for i, words in enumerate(entries):
        stream.append(5 + i, 0, words, 0, 0, 0)
    data = bytearray(stream.tail.pack.to_bytes())
    for at, byte in changes:
        data[at % len(data)] = byte
    use(StreamId(5, 0).key(), bytes(data))
