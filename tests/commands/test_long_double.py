"""Long doubles: the sums of INCRBYFLOAT, digit by digit."""

import random
from fractions import Fraction

import pytest

from headrace.commands.string import long_double
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


def value(held):
    assert held is not None
    return held[0] * Fraction(2) ** held[1]


def test_rounding_errs_by_half_a_unit_at_most_and_round_trips_are_exact():
    chance = random.Random(7)
    for _ in range(500):
        numerator, places = chance.randrange(-(10**12), 10**12), chance.randrange(12)
        held = long_double.nearest(numerator, 10**places, 0)
        exact = Fraction(numerator, 10**places)
        assert abs(value(held) - exact) <= abs(exact) / 2**64
        assert abs(held[0]).bit_length() == 64 or numerator == 0
        read = value(long_double.parse(long_double.format_decimal(held)))
        assert abs(read - value(held)) <= Fraction(1, 10**17) + abs(exact) / 2**63


@pytest.mark.parametrize(
    "mantissa", [2**64 - 1, 2**64 + 1, 2**64 + 3, 2**65 - 1, 2**65 + 2, 2**65 + 6, 2**66 - 1]
)
def test_of_two_equally_near_numbers_the_even_one_is_held(mantissa):
    for power in (-200, 0, 16000):
        held = long_double.nearest(mantissa, 1, power)
        near = Fraction(mantissa) * Fraction(2) ** power
        unit = Fraction(2) ** held[1]
        assert abs(value(held) - near) <= unit / 2
        assert abs(value(held) - near) < unit / 2 or held[0] % 2 == 0


def test_the_smallest_number_and_half_of_it():
    assert long_double.nearest(1, 1, -16445) == (1, -16445)
    assert long_double.nearest(1, 1, -16446)[0] == 0
    assert long_double.nearest(3, 1, -16447) == (1, -16445)
    assert long_double.nearest(2**64 - 1, 1, 16320) == (2**64 - 1, 16320)
    assert long_double.nearest(2**64, 1, 16320) is None
