"""The numbers of INCRBYFLOAT: what C calls a long double on x86-64, computed exactly.

    15 bits            64 bits
    +----------+-------------------------+
    | exponent | mantissa                |    value = mantissa * 2 ** exponent
    +----------+-------------------------+

A sum must come out with the same digits as in Redis, so a number is kept as the fraction it stands for and
rounded where the processor would round: after reading the text, and after adding.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from headrace.errors import CommandError, NotAFloat

TEXT_MAX = 5 * 1024 - 1  # Redis reads a number into a buffer of this size
PLACES = 17  # digits behind the point, before the zeros at the end are cut off

MANTISSA_BITS = 64
EXPONENT_MIN = -16445  # of the last bit of the smallest number above zero
LARGEST = Fraction((2**64 - 1) * 2**16320)

# A number with more digits before its point, or more zeros behind it, need not be computed to be refused.
MAGNITUDE_MAX = 5000

DECIMAL = re.compile(rb"([+-]?)(\d*)(?:\.(\d*))?(?:e([+-]?\d+))?", re.IGNORECASE)
HEXADECIMAL = re.compile(rb"([+-]?)0x([0-9a-f]*)(?:\.([0-9a-f]*))?(?:p([+-]?\d+))?", re.IGNORECASE)
INFINITE = re.compile(rb"[+-]?inf(inity)?", re.IGNORECASE)


def add(a: bytes, b: bytes) -> bytes:
    """The sum of two numbers, as text. Raises NotAFloat; CommandError when the sum is not finite."""
    left, right = parse(a), parse(b)
    total = None if left is None or right is None else rounded(left + right)
    if total is None:
        raise CommandError("ERR increment would produce NaN or Infinity")
    return text(total)


def parse(number: bytes) -> Fraction | None:
    """The nearest number a long double can hold; None for an infinite one. Raises NotAFloat."""
    if INFINITE.fullmatch(number):
        return None
    decimal, hexadecimal = DECIMAL.fullmatch(number), HEXADECIMAL.fullmatch(number)
    match = decimal or hexadecimal
    if match is None or len(number) > TEXT_MAX:
        raise NotAFloat()
    sign, whole, part, exponent_text = match.groups(default=b"")
    if not whole and not part:
        raise NotAFloat()
    digits = (whole + part).lstrip(b"0")
    if not digits:
        return Fraction(0)
    digit_exponent = 1 if decimal else 4  # by how much the exponent grows with each digit
    exponent = _exponent(exponent_text) - digit_exponent * len(part)
    # Compare before the power is computed: the exponent comes from outside.
    if abs(exponent + digit_exponent * len(digits)) > digit_exponent * MAGNITUDE_MAX:
        raise NotAFloat()
    exact = (
        _integer(digits) * Fraction(10) ** exponent if decimal else int(digits, 16) * Fraction(2) ** exponent
    )
    value = rounded(-exact if sign == b"-" else exact)
    if not value:  # too large, or too small to tell from zero
        raise NotAFloat()
    return value


def rounded(exact: Fraction) -> Fraction | None:
    """The nearest number a long double can hold, the even one of two; None when it is past the largest."""
    size = abs(exact)
    if size == 0:
        return exact
    exponent = size.numerator.bit_length() - size.denominator.bit_length() - MANTISSA_BITS
    if size / Fraction(2) ** exponent >= 2**MANTISSA_BITS:
        exponent += 1
    step = Fraction(2) ** max(exponent, EXPONENT_MIN)
    nearest = round(exact / step) * step
    return nearest if abs(nearest) <= LARGEST else None


def text(value: Fraction) -> bytes:
    """Decimal text with up to PLACES digits behind the point and no zeros at its end."""
    digits = round(abs(value) * 10**PLACES)
    if digits == 0:
        return b"0"
    whole, part = divmod(digits, 10**PLACES)
    written = f"{Decimal(whole):f}.{part:0{PLACES}d}".rstrip("0").rstrip(".").encode()
    return b"-" + written if value < 0 else written


def _integer(digits: bytes) -> int:
    """What decimal digits say; by way of Decimal, for int() refuses more than 4300 of them."""
    return int(Decimal(digits.decode()))


def _exponent(digits: bytes) -> int:
    """What an exponent says, or one certainly too large when it has more digits than make sense."""
    size = digits.lstrip(b"+-").lstrip(b"0")
    value = int(size or b"0") if len(size) <= 6 else 10**6
    return -value if digits.startswith(b"-") else value
