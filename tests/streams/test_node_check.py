"""Validation of untrusted nodes: every width of number, both forms of trailing length, unusual nodes."""

import pytest

from headrace.streams.node import Node
from headrace.streams.node_check import EntryBeforeNode, NodeCheck
from headrace.streams.stream import Stream
from headrace.structures.listpack import Listpack
from headrace.structures.stream_id import StreamId

NUMBERS = [
    sign * number + by
    for number in (0, 127, 128, 4096, 32768, 8388608, 2**31, 2**62)
    for by in (-1, 0, 1)
    for sign in (1, -1)
]


def packed(*elements):
    pack = Listpack()
    for element in elements:
        pack.append(element if isinstance(element, bytes) else b"%d" % element)
    return pack.to_bytes()


def checked(data, ms=2**63, seq=2**63):
    check = NodeCheck(data)
    check.run(ms, seq)
    return check


def one_entry(*, flags=2, ms=0, seq=0, value=b"v", count=4):
    return packed(1, 0, 1, b"f", 0, flags, ms, seq, value, count)


@pytest.mark.parametrize("number", sorted(set(NUMBERS)))
def test_numbers_of_every_width_are_checked(number):
    data = one_entry(value=b"%d" % number)
    assert (checked(data).count, checked(data).has_wide_element) == (10, False)
    data = one_entry(seq=number) if number >= 0 else one_entry(ms=1, seq=number)
    node = Node.from_bytes(StreamId(2**62, 2**62).key(), data)
    assert node.pack.to_bytes() == data


@pytest.mark.parametrize("number", [n for n in NUMBERS if n != 4])
def test_an_entry_says_how_many_elements_it_has(number):
    with pytest.raises(ValueError, match="says it has"):
        checked(one_entry(count=number))


@pytest.mark.parametrize("size", [0, 63, 64, 126, 127, 4095, 4096, 16377, 16378, 16379])
def test_strings_of_every_size_are_checked(size):
    data = one_entry(value=b"x" * size)
    assert checked(data).count == 10
    assert checked(data).has_wide_element == (size > 4096)  # it may be said too early, not too late
    assert Node.from_bytes(StreamId(5, 5).key(), data).pack.to_bytes() == data


def test_trailing_lengths_of_another_server_become_ours():
    ours = one_entry(value=b"x" * 16378)  # an element of 16383 bytes
    at = ours.index(b"\x00\xff\xff", 20)
    theirs = bytearray(ours[:at] + b"\x7f\xff" + ours[at + 3 :])
    theirs[:4] = len(theirs).to_bytes(4, "little")
    assert Node.from_bytes(StreamId(5, 5).key(), bytes(theirs)).pack.to_bytes() == ours


def test_every_cut_and_every_changed_byte_is_refused_or_sound():
    stream = Stream()
    for i, words in enumerate(([b"f", b"1"], [b"f", b"70000"], [b"g", b"x" * 70], [b"f", b"-5", b"g", b""])):
        stream.append(1000 * i, 5 - i, words, 0, 0, 0)
    data = stream.tail.pack.to_bytes()
    key = stream.tail.key()
    for cut in range(len(data)):
        with pytest.raises(ValueError):
            Node.from_bytes(key, data[:cut])
    taken = 0
    for at in range(len(data)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xBF, 0xC0, 0xE0, 0xF0, 0xF1, 0xF4, 0xFE, 0xFF):
            changed = data[:at] + bytes([byte]) + data[at + 1 :]
            try:
                node = Node.from_bytes(key, changed)
            except ValueError:
                continue
            node.check()
            taken += 1
    assert taken > 0


def test_only_live_entries_before_their_node_are_reported():
    with pytest.raises(EntryBeforeNode):
        checked(one_entry(ms=-1))
    with pytest.raises(EntryBeforeNode):
        checked(one_entry(seq=-1))
    dead = packed(1, 1, 1, b"f", 0, 3, -1, 0, b"v", 4, 2, 0, 0, b"v", 4)
    assert checked(dead).count == 15
    both = packed(2, 0, 1, b"f", 0, 2, -1, 0, b"v", 4, 2, -1, 0, b"v", 4)
    with pytest.raises(ValueError, match="out of order"):
        checked(both)
