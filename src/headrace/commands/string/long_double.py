"""The numbers of INCRBYFLOAT: what C calls a long double on x86-64, computed exactly.

    sign      15 bits            64 bits
    +---+------------------+-------------------------+
    |   | exponent         | mantissa                |    value = mantissa * 2 ** exponent
    +---+------------------+-------------------------+

A sum must come out with the same digits as in Redis, so all that is exact here is kept in whole numbers, and
rounded where the processor would round: after reading a text, after adding, when writing.
"""

from __future__ import annotations

import re
from decimal import Decimal

import cython

from headrace.errors import CommandError, NotAFloat

TEXT_MAX = 5 * 1024 - 1  # Redis reads a number into a buffer of this size
PLACES = 17  # digits behind the point, before the zeros at the end are cut off

MANTISSA_BITS = 64
EXPONENT_MIN = -16445  # of the last bit of the smallest number above zero
EXPONENT_MAX = 16320  # of the last bit of the largest number

# A number with more digits before its point, or more zeros behind it, need not be computed to be refused.
MAGNITUDE_MAX = 5000

DECIMAL = re.compile(rb"([+-]?)(\d*)(?:\.(\d*))?(?:e([+-]?\d+))?", re.IGNORECASE)
HEXADECIMAL = re.compile(rb"([+-]?)0x([0-9a-f]*)(?:\.([0-9a-f]*))?(?:p([+-]?\d+))?", re.IGNORECASE)
INFINITE = re.compile(rb"[+-]?inf(inity)?", re.IGNORECASE)

LongDouble = tuple[int, int]  # mantissa, with its sign, and exponent


def add(a: bytes, b: bytes) -> bytes:
    """The sum of two numbers, as text. Raises NotAFloat; CommandError when the sum is not finite."""
    left, right = parse(a), parse(b)
    total = None
    if left is not None and right is not None:
        exponent = min(left[1], right[1])
        exact = (left[0] << left[1] - exponent) + (right[0] << right[1] - exponent)
        total = nearest(exact, 1, exponent)
    if total is None:
        raise CommandError("ERR increment would produce NaN or Infinity")
    return text(total)


def parse(number: bytes) -> LongDouble | None:
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
        return 0, 0
    digit_exponent = 1 if decimal else 4  # by how much the exponent grows with each digit
    exponent = _exponent(exponent_text) - digit_exponent * len(part)
    # Compare before the power is computed: the exponent comes from outside.
    if abs(exponent + digit_exponent * len(digits)) > digit_exponent * MAGNITUDE_MAX:
        raise NotAFloat()
    if not decimal:
        value = nearest(int(digits, 16), 1, exponent)
    elif exponent < 0:
        value = nearest(_integer(digits), 10**-exponent, 0)
    else:
        value = nearest(_integer(digits) * 10**exponent, 1, 0)
    if value is None or not value[0]:  # too large, or too small to tell from zero
        raise NotAFloat()
    return (-value[0], value[1]) if sign == b"-" else value


def nearest(numerator: int, denominator: int, power: int) -> LongDouble | None:
    """What holds numerator / denominator * 2 ** power best, the even one of two; None past the largest."""
    size = abs(numerator)
    shift = size.bit_length() - denominator.bit_length() - MANTISSA_BITS  # right, or one too few
    if _quotient(size, denominator, shift).bit_length() > MANTISSA_BITS:
        shift += 1
    shift = max(shift, EXPONENT_MIN - power)
    mantissa = _quotient(size, denominator, shift)
    if mantissa.bit_length() > MANTISSA_BITS:  # rounded up to the next power of two
        mantissa >>= 1
        shift += 1
    if mantissa and shift + power > EXPONENT_MAX:
        return None
    return (-mantissa if numerator < 0 else mantissa), shift + power


def _quotient(numerator: int, denominator: int, shift: int) -> int:
    """numerator / denominator / 2 ** shift, rounded; of two equally near the even one."""
    if shift < 0:
        numerator <<= -shift
    else:
        denominator <<= shift
    quotient, rest = divmod(numerator, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and quotient & 1):
        quotient += 1
    return quotient


def text(value: LongDouble) -> bytes:
    """Decimal text with up to PLACES digits behind the point and no zeros at its end."""
    mantissa, exponent = value
    digits = _quotient(abs(mantissa) * 10**PLACES, 1, -exponent)
    if digits == 0:
        return b"0"
    whole, part = divmod(digits, 10**PLACES)
    written = f"{Decimal(whole):f}.{part:0{PLACES}d}".rstrip("0").rstrip(".").encode()
    return b"-" + written if mantissa < 0 else written


def _integer(digits: bytes) -> int:
    """What decimal digits say; by way of Decimal, for int() refuses more than 4300 of them."""
    return int(Decimal(digits.decode()))


def _exponent(digits: bytes) -> int:
    """What an exponent says, or one certainly too large when it has more digits than make sense."""
    size = digits.lstrip(b"+-").lstrip(b"0")
    value = int(size or b"0") if len(size) <= 6 else 10**6
    return -value if digits.startswith(b"-") else value
