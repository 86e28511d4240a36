"""Hostile listpacks: an error or a valid listpack, never an access out of bounds.

Interpreted, every read is bounds-checked by the bytearray or bytes it goes to, and a negative index
is caught by Guard; compiled, the sanitizer build watches the same tests.
"""

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.structures import listpack_walk
from headrace.structures.listpack import Listpack

COMPILED = "HEADRACE_COMPILED" in os.environ
EXAMPLES = settings(max_examples=3000 if COMPILED else 500)


class Guard(bytearray):
    """Bytes that cannot be read from before their start."""

    def __getitem__(self, at):
        if isinstance(at, int):
            assert 0 <= at < len(self), f"read at {at} of {len(self)}"
        return super().__getitem__(at)


def checked(data):
    """What check() thinks of data; None when it refuses."""
    try:
        return listpack_walk.validate_and_count(data if COMPILED else Guard(data))
    except ValueError:
        return None


def read_whole(data):
    """Read data as a listpack by every way there is, once check() has let it pass."""
    pack = Listpack.from_bytes(data)
    pack.check()
    forwards, at = [], pack.first_at()
    while at >= 0:
        forwards.append(pack.get(at))
        at = pack.next_at(at)
    backwards, at = [], pack.last_at()
    while at >= 0:
        backwards.append(pack.get(at))
        at = pack.previous_at(at)
    assert forwards == backwards[::-1]
    return forwards


def framed(body, count):
    return (7 + len(body)).to_bytes(4, "little") + count.to_bytes(2, "little") + body + b"\xff"


FIRST = st.one_of(
    st.integers(0, 255), st.sampled_from([0xC0, 0xE0, 0xEF, 0xF0, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5, 0xFF])
)
NEARLY_ELEMENT = st.builds(
    lambda first, rest, trail: bytes([first]) + rest + trail,
    FIRST,
    st.binary(max_size=12),
    st.sampled_from(
        [b"", b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x09", b"\x0d", b"\x81", b"\x01\x80"]
    ),
)


@EXAMPLES
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(data):
    if checked(data) is not None:
        read_whole(data)


@EXAMPLES
@given(st.lists(NEARLY_ELEMENT, max_size=8), st.one_of(st.just(65535), st.integers(0, 9)))
def test_nearly_right_elements_are_refused_or_read(elements, count):
    data = framed(b"".join(elements), count)
    n = checked(data)
    if n is not None:
        assert len(read_whole(data)) == n


@EXAMPLES
@given(
    st.lists(
        st.one_of(st.binary(max_size=80), st.integers(-(2**40), 2**40).map(lambda v: b"%d" % v)), max_size=12
    ),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3),
)
def test_a_listpack_with_a_few_bytes_changed_is_refused_or_read(values, changes):
    pack = Listpack()
    for value in values:
        pack.append(value)
    data = bytearray(pack.to_bytes())
    for at, byte in changes:
        data[at % len(data)] = byte
    if checked(bytes(data)) is not None:
        read_whole(bytes(data))
