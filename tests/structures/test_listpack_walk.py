import pytest

from headrace.structures import listpack_walk
from headrace.structures.listpack import Listpack


def sealed(body, count, total=None):
    """A listpack around body, whatever body holds."""
    total = 7 + len(body) if total is None else total
    return total.to_bytes(4, "little") + count.to_bytes(2, "little") + body + b"\xff"


def test_check_returns_the_number_of_elements():
    assert listpack_walk.validate_and_count(sealed(b"", 0)) == 0
    assert listpack_walk.validate_and_count(sealed(b"\x05\x01\x81a\x02", 2)) == 2
    assert listpack_walk.validate_and_count(bytearray(sealed(b"\x05\x01", 1))) == 1


def test_a_count_of_65535_means_unknown():
    assert listpack_walk.validate_and_count(sealed(b"\x05\x01", 65535)) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x07\x00\x00\x00\x00\x00",
        sealed(b"", 0, total=8),
        sealed(b"", 0, total=6),
        sealed(b"", 0) + b"\xff",
        sealed(b"", 0)[:-1] + b"\xfe",
        sealed(b"", 1),
        sealed(b"\x05\x01", 0),
        sealed(b"\x05\x01", 2),
        sealed(b"\x05\x01\xff", 1),  # an end byte before the end
    ],
)
def test_a_wrong_header_or_end_byte_is_rejected(data):
    with pytest.raises(ValueError, match="listpack"):
        listpack_walk.validate_and_count(data)


@pytest.mark.parametrize(
    "body",
    [
        b"\x05",  # no trailing length
        b"\x05\x02",  # a wrong one
        b"\x05\x00",
        b"\x05\x81",  # its first byte says there is more
        b"\x83ab\x04",  # shorter than it says
        b"\xbf\x40",
        b"\xc0",
        b"\xe0",
        b"\xef\xff" + b"a" * 30 + b"\x20",
        b"\xf0",
        b"\xf0\xff\xff\xff\xff",
        b"\xf0\xff\xff\xff\xffabc\x05",
        b"\xf1\x00\x03",
        b"\xf4\x00\x00\x00\x00\x00\x00\x00\x09",
        b"\xf5\x01",
        b"\xfe\x01",
        b"\xe0\x7e" + b"d" * 126 + b"\x80\x80",  # two bytes needed, the first must be the last to read
        b"\xe0\x7e" + b"d" * 126 + b"\x01",
        b"\xe0\x7e" + b"d" * 126 + b"\x01\x00",
        b"\xf0\xfa\x3f\x00\x00" + b"h" * 16378 + b"\x7f\x7f",
        b"\xf0\xfa\x3f\x00\x00" + b"h" * 16378 + b"\x00\xff\x7f",
    ],
)
def test_a_damaged_element_is_found(body):
    for count in (1, 65535):
        with pytest.raises(ValueError, match="element 0 of the listpack is damaged"):
            listpack_walk.validate_and_count(sealed(body, count))


def test_every_truncation_of_a_good_listpack_is_refused():
    pack = Listpack()
    for value in (b"a", b"300", b"x" * 130, b"-70000", b""):
        pack.append(value)
    whole = pack.to_bytes()
    for n in range(len(whole)):
        with pytest.raises(ValueError):
            listpack_walk.validate_and_count(whole[:n])
        with pytest.raises(ValueError):
            listpack_walk.validate_and_count(n.to_bytes(4, "little") + whole[4:n])
