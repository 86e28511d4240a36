import pytest

from headrace.errors import ElementsTooLarge
from headrace.structures.listpack import Listpack

EMPTY = bytes.fromhex("0700000000 00ff")

# value, its element, its trailing length: captured from running servers
CAPTURED = [
    (b"0", "00", "01"),
    (b"127", "7f", "01"),
    (b"128", "c080", "02"),
    (b"4095", "cfff", "02"),
    (b"4096", "f10010", "03"),
    (b"32767", "f1ff7f", "03"),
    (b"32768", "f2008000", "04"),
    (b"8388607", "f2ffff7f", "04"),
    (b"8388608", "f300008000", "05"),
    (b"2147483647", "f3ffffff7f", "05"),
    (b"2147483648", "f40000008000000000", "09"),
    (b"9223372036854775807", "f4ffffffffffffff7f", "09"),
    (b"-1", "dfff", "02"),
    (b"-4096", "d000", "02"),
    (b"-4097", "f1ffef", "03"),
    (b"-32768", "f10080", "03"),
    (b"-32769", "f2ff7fff", "04"),
    (b"-8388608", "f2000080", "04"),
    (b"-2147483648", "f300000080", "05"),
    (b"-2147483649", "f4ffffff7fffffffff", "09"),
    (b"-9223372036854775808", "f40000000000000080", "09"),
    (b"", "80", "01"),
    (b"007", "83303037", "04"),
    (b"-0", "822d30", "03"),
    (b"+5", "822b35", "03"),
    (b"abc", "83616263", "04"),
    (b"9223372036854775808", "93" + b"9223372036854775808".hex(), "14"),
    (b"a" * 63, "bf" + "61" * 63, "40"),
    (b"b" * 64, "e040" + "62" * 64, "42"),
    (b"c" * 125, "e07d" + "63" * 125, "7f"),
    (b"d" * 126, "e07e" + "64" * 126, "0180"),
    (b"e" * 4095, "efff" + "65" * 4095, "2081"),
    (b"f" * 4096, "f000100000" + "66" * 4096, "2085"),
    (b"g" * 16377, "f0f93f0000" + "67" * 16377, "7ffe"),
    (b"h" * 16378, "f0fa3f0000" + "68" * 16378, "00ffff"),
    (b"i" * 16379, "f0fb3f0000" + "69" * 16379, "018080"),
]
IDS = [v.decode() if len(v) < 30 else f"{len(v)} bytes" for v, _, _ in CAPTURED]

NOT_QUITE_INTEGERS = [
    b"",
    b"-",
    b"--1",
    b"+1",
    b" 1",
    b"1 ",
    b"01",
    b"-01",
    b"-0",
    b"1.0",
    b"1e3",
    b"0x1",
    b"1_000",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"99999999999999999999",
    b"1\x00",
    b"\xb2",
]


def pack_of(*values):
    pack = Listpack()
    for value in values:
        pack.append(value)
    pack.check()
    return pack


def values_of(pack):
    found = []
    at = pack.first_at()
    while at >= 0:
        found.append(pack.get(at))
        at = pack.next_at(at)
    return found


def values_backwards(pack):
    found = []
    at = pack.last_at()
    while at >= 0:
        found.append(pack.get(at))
        at = pack.previous_at(at)
    return found


def test_an_empty_listpack_is_seven_bytes():
    pack = Listpack()
    assert pack.to_bytes() == EMPTY
    assert (len(pack), pack.first_at(), pack.last_at()) == (0, -1, -1)


@pytest.mark.parametrize(("value", "element", "trail"), CAPTURED, ids=IDS)
def test_an_element_has_the_bytes_that_servers_write(value, element, trail):
    body = bytes.fromhex(element + trail)
    pack = pack_of(value)
    assert pack.to_bytes()[6:-1] == body
    assert pack.to_bytes()[:6] == (7 + len(body)).to_bytes(4, "little") + b"\x01\x00"
    assert pack.get(6) == value
    assert pack.previous_at(pack.used) == 6


@pytest.mark.parametrize(("value", "element", "trail"), CAPTURED, ids=IDS)
def test_a_listpack_of_such_bytes_can_be_read(value, element, trail):
    body = bytes.fromhex(element + trail)
    data = (7 + len(body)).to_bytes(4, "little") + b"\x01\x00" + body + b"\xff"
    pack = Listpack.from_bytes(data)
    assert values_of(pack) == [value]
    assert pack.to_bytes() == data


@pytest.mark.parametrize("value", NOT_QUITE_INTEGERS)
def test_only_the_canonical_form_becomes_an_integer(value):
    assert pack_of(value).to_bytes()[6] >= 0x80 | len(value)
    assert values_of(pack_of(value)) == [value]


def test_integers_at_every_width_are_read_back():
    edges = [e * s + d for b in range(64) for e in [2**b] for s in (1, -1) for d in (-1, 0, 1)]
    edges = [v for v in edges if -(2**63) <= v < 2**63]
    pack = Listpack()
    for v in edges:
        pack.append_int(v)
    pack.check()
    assert values_of(pack) == [b"%d" % v for v in edges]
    assert pack.to_bytes() == pack_of(*(b"%d" % v for v in edges)).to_bytes()


def test_a_listpack_is_walked_in_both_directions():
    values = [b"a", b"12", b"x" * 200, b"", b"-7", b"y" * 20000, b"99999"]
    pack = pack_of(*values)
    assert values_of(pack) == values
    assert values_backwards(pack) == values[::-1]


def test_offsets_stay_right_while_elements_are_appended():
    pack = Listpack()
    offsets = {pack.append(b"%d" % (i * 77)): b"%d" % (i * 77) for i in range(500)}
    assert {at: pack.get(at) for at in offsets} == offsets


def test_elements_are_inserted_replaced_and_deleted():
    pack = pack_of(b"a", b"b", b"c")
    second = pack.next_at(pack.first_at())
    pack.insert(second, b"300")
    pack.check()
    assert values_of(pack) == [b"a", b"300", b"b", b"c"]
    pack.replace(second, b"z" * 150)
    pack.check()
    assert values_of(pack) == [b"a", b"z" * 150, b"b", b"c"]
    pack.delete(second)
    pack.check()
    assert values_of(pack) == [b"a", b"b", b"c"]
    pack.insert(pack.used, b"end")
    pack.check()
    assert values_of(pack) == [b"a", b"b", b"c", b"end"]
    pack.delete(pack.last_at())
    pack.delete(pack.first_at())
    pack.check()
    assert values_of(pack) == [b"b", b"c"]


def test_a_counter_may_grow_and_shrink_in_its_place():
    pack = pack_of(b"0", b"after")
    for v in (1, 127, 128, 4095, 4096, -1, 2**40, 126, 127):
        pack.replace_int(6, v)
        pack.check()
        assert values_of(pack) == [b"%d" % v, b"after"]


def test_shrink_frees_unused_capacity():
    pack = pack_of(*(b"value %d" % i for i in range(100)))
    before = pack.to_bytes()
    pack.shrink()
    pack.check()
    assert pack.to_bytes() == before
    assert pack.append(b"more") == len(before) - 1
    assert len(pack) == 101


def test_a_full_listpack_transfers_its_block():
    pack = pack_of(*(b"value %d" % i for i in range(100)))
    before, room = pack.to_bytes(), pack.cap
    heir = pack.transfer_buffer()
    pack.check()
    heir.check()
    assert (pack.to_bytes(), pack.cap) == (before, len(before))
    assert (heir.to_bytes(), heir.cap) == (EMPTY, room)
    heir.append(b"other")
    assert pack.append(b"more") == len(before) - 1
    assert (values_of(heir), pack.to_bytes()[: len(before) - 1]) == (
        [b"other"],
        pack.to_bytes()[:6] + before[6:-1],
    )


def test_a_huge_block_is_not_transferred():
    pack = pack_of(*(b"value %d" % i for i in range(5000)))
    before = pack.to_bytes()
    heir = pack.transfer_buffer()
    assert (pack.to_bytes(), pack.cap) == (before, len(before))
    assert (heir.to_bytes(), heir.cap < 1000) == (EMPTY, True)


def test_more_than_the_header_can_say_is_refused():
    pack = pack_of(b"a")
    with pytest.raises(ElementsTooLarge):
        pack.reserve(2**32)
    pack.check()
    assert values_of(pack) == [b"a"]


def test_a_copy_lives_its_own_life():
    pack = pack_of(b"a", b"b")
    other = pack.copy()
    pack.append(b"c")
    other.check()
    assert (values_of(other), len(other)) == ([b"a", b"b"], 2)


@pytest.mark.parametrize("n", [65533, 65534, 65535, 65536, 70000])
def test_past_65534_elements_the_header_no_longer_counts(n):
    pack = Listpack()
    for _ in range(n):
        pack.append_int(1)
    data = pack.to_bytes()
    assert data[4:6] == min(n, 65535).to_bytes(2, "little")
    assert len(pack) == n
    assert len(Listpack.from_bytes(data)) == n


@pytest.mark.parametrize(
    ("text_size", "shorter", "longer"), [(16378, "7fff", "00ffff"), (2097146, "7fffff", "00ffffff")]
)
def test_either_familys_trailing_length_is_read_and_redis_s_is_kept(text_size, shorter, longer):
    body = b"\xf0" + text_size.to_bytes(4, "little") + b"v" * text_size
    for trail in (shorter, longer):
        inside = b"\x05\x01" + body + bytes.fromhex(trail) + b"\x06\x01"
        data = (7 + len(inside)).to_bytes(4, "little") + b"\x03\x00" + inside + b"\xff"
        pack = Listpack.from_bytes(data)
        pack.check()
        assert values_of(pack) == [b"5", b"v" * text_size, b"6"]
        assert values_backwards(pack) == values_of(pack)[::-1]
        assert pack.to_bytes() == pack_of(b"5", b"v" * text_size, b"6").to_bytes()
        assert pack.to_bytes()[8 + len(body) :].startswith(bytes.fromhex(longer))


def test_many_trailing_lengths_are_widened_in_one_go():
    values = [b"a", b"v" * 16378, b"5", b"w" * 16378, b"x" * 16378, b"y" * 16379, b"z" * 2097146]
    theirs = pack_of(*values).to_bytes()[6:-1]
    for longer, shorter in (("00ffffff", "7fffff"), ("00ffff", "7fff")):
        theirs = theirs.replace(bytes.fromhex(longer), bytes.fromhex(shorter))
    data = (7 + len(theirs)).to_bytes(4, "little") + len(values).to_bytes(2, "little") + theirs + b"\xff"
    pack = Listpack.from_bytes(data)
    pack.check()
    assert len(data) == len(pack_of(*values).to_bytes()) - 4
    assert (pack.to_bytes(), pack.cap) == (pack_of(*values).to_bytes(), len(data) + 4)
