"""Long doubles: the sums of INCRBYFLOAT, digit by digit."""

import random
from fractions import Fraction

import pytest

from headrace.commands import long_double
from headrace.errors import CommandError, NotAFloat


@pytest.mark.parametrize(
    ("a", "b", "total"),
    [
        (b"10.5", b"0.1", b"10.6"),
        (b"0.1", b"0.2", b"0.3"),
        (b"5.0e3", b"2.0e2", b"5200"),
        (b"3", b"-3", b"0"),
        (b"-0", b"-0.0", b"0"),
        (b"1e18", b"0.1", b"1000000000000000000.125"),
        (b"1e-17", b"0", b"0.00000000000000001"),
        (b"1e-18", b"0", b"0"),
        (b"-1e-18", b"0", b"0"),
        (b"0x1.8p1", b".5", b"3.5"),
        (b"+5.", b"0e99999999999999999999", b"5"),
        (b"18446744073709551615", b"0.5", b"18446744073709551616"),
    ],
)
def test_a_sum_is_rounded_to_sixty_four_bits_and_written_out(a, b, total):
    assert long_double.add(a, b) == total
    assert long_double.add(b, a) == total


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" 1",
        b"1 ",
        b"1_0",
        b"nan",
        b"-nan",
        b"1e",
        b"e5",
        b".",
        b"+-1",
        b"0x",
        b"1e5000",
        b"1e-5000",
        b"1\0",
    ]
    + [b"1e" + b"9" * 1000, b"1e-" + b"9" * 5000, b"9" * 5120, b"0x1p99999999999999999999", b"\xff"],
)
def test_what_is_no_number_or_cannot_be_held_is_refused(text):
    with pytest.raises(NotAFloat):
        long_double.parse(text)


def test_a_sum_past_the_largest_number_is_refused():
    largest = b"1.1897314953572317650e4932"
    assert len(long_double.add(largest, b"0")) == 4933
    for a, b in [(largest, largest), (b"inf", b"1"), (b"1", b"-Infinity"), (b"inf", b"-inf")]:
        with pytest.raises(CommandError, match="increment would produce NaN or Infinity"):
            long_double.add(a, b)


def test_reading_what_was_written_gives_the_number_to_seventeen_places():
    chance = random.Random(7)
    for _ in range(500):
        exact = Fraction(chance.randrange(-(10**12), 10**12), 10 ** chance.randrange(12))
        held = long_double.rounded(exact)
        assert held is not None
        read = long_double.parse(long_double.text(held))
        assert read is not None
        assert abs(read - held) <= Fraction(1, 10**17) + abs(held) / 2**63
        assert abs(held - exact) <= abs(exact) / 2**64
