"""The numbers of INCRBYFLOAT: C's long double on x86-64, computed exactly.

    sign      15 bits            64 bits
    +---+------------------+-------------------------+
    |   | exponent         | mantissa                |    value = mantissa * 2 ** exponent
    +---+------------------+-------------------------+

A sum must have the same digits as in Redis. So exact values are integers here, and are rounded where the
processor would round: after parsing, after adding, when formatting.
"""

from __future__ import annotations

import re
from decimal import Decimal

import cython

from headrace.errors import CommandError, NotAFloat

TEXT_MAX = 5 * 1024 - 1  # Redis reads a number into a buffer of this size
DECIMAL_PLACES = 17  # digits after the point, before trailing zeros are removed

MANTISSA_BITS = 64
EXPONENT_MIN = -16445  # of the last bit of the smallest positive number
EXPONENT_MAX = 16320  # of the last bit of the largest number

# A number with more digits before its point, or more zeros after it, is rejected without computing it.
MAGNITUDE_MAX = 5000

DECIMAL_PATTERN = re.compile(rb"([+-]?)(\d*)(?:\.(\d*))?(?:e([+-]?\d+))?", re.IGNORECASE)
HEXADECIMAL_PATTERN = re.compile(rb"([+-]?)0x([0-9a-f]*)(?:\.([0-9a-f]*))?(?:p([+-]?\d+))?", re.IGNORECASE)
INFINITE_PATTERN = re.compile(rb"[+-]?inf(inity)?", re.IGNORECASE)

LongDouble = tuple[int, int]  # mantissa, with its sign, and exponent


def add(a: bytes, b: bytes) -> bytes:
    """Return the sum of two numbers as text. Raises NotAFloat; CommandError if the sum is not finite."""
    left, right = parse(a), parse(b)
    total = None
    if left is not None and right is not None:
        exponent = min(left[1], right[1])
        exact = (left[0] << left[1] - exponent) + (right[0] << right[1] - exponent)
        total = nearest(exact, 1, exponent)
    if total is None:
        raise CommandError("ERR increment would produce NaN or Infinity")
    return format_decimal(total)


def parse(number: bytes) -> LongDouble | None:
    """Return the nearest long double; None for an infinite one. Raises NotAFloat."""
    if INFINITE_PATTERN.fullmatch(number):
        return None
    decimal, hexadecimal = DECIMAL_PATTERN.fullmatch(number), HEXADECIMAL_PATTERN.fullmatch(number)
    match = decimal or hexadecimal
    if match is None or len(number) > TEXT_MAX:
        raise NotAFloat()
    sign, whole, part, exponent_text = match.groups(default=b"")
    if not whole and not part:
        raise NotAFloat()
    digits = (whole + part).lstrip(b"0")
    if not digits:
        return 0, 0
    digit_exponent = 1 if decimal else 4  # added to the exponent for each digit
    exponent = _exponent(exponent_text) - digit_exponent * len(part)
    # Compare before the power is computed: the exponent is outside input.
    if abs(exponent + digit_exponent * len(digits)) > digit_exponent * MAGNITUDE_MAX:
        raise NotAFloat()
    if not decimal:
        value = nearest(int(digits, 16), 1, exponent)
    elif exponent < 0:
        value = nearest(_integer(digits), 10**-exponent, 0)
    else:
        value = nearest(_integer(digits) * 10**exponent, 1, 0)
    if value is None or not value[0]:  # too large, or rounded to zero
        raise NotAFloat()
    return (-value[0], value[1]) if sign == b"-" else value


def nearest(numerator: int, denominator: int, power: int) -> LongDouble | None:
    """Return numerator / denominator * 2 ** power rounded, ties to even; None if it is too large."""
    size = abs(numerator)
    shift = size.bit_length() - denominator.bit_length() - MANTISSA_BITS  # to the right; may be one too few
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
    """Return numerator / denominator / 2 ** shift rounded, ties to even."""
    if shift < 0:
        numerator <<= -shift
    else:
        denominator <<= shift
    quotient, rest = divmod(numerator, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and quotient & 1):
        quotient += 1
    return quotient


def format_decimal(value: LongDouble) -> bytes:
    """Format as a decimal with at most DECIMAL_PLACES digits after the point, without trailing zeros."""
    mantissa, exponent = value
    digits = _quotient(abs(mantissa) * 10**DECIMAL_PLACES, 1, -exponent)
    if digits == 0:
        return b"0"
    whole, part = divmod(digits, 10**DECIMAL_PLACES)
    written = f"{Decimal(whole):f}.{part:0{DECIMAL_PLACES}d}".rstrip("0").rstrip(".").encode()
    return b"-" + written if mantissa < 0 else written


def _integer(digits: bytes) -> int:
    """Parse decimal digits; with Decimal, because int() rejects more than 4300 of them."""
    return int(Decimal(digits.decode()))


def _exponent(digits: bytes) -> int:
    """Parse an exponent; one with too many digits becomes a value that is certainly too large."""
    size = digits.lstrip(b"+-").lstrip(b"0")
    value = int(size or b"0") if len(size) <= 6 else 10**6
    return -value if digits.startswith(b"-") else value
