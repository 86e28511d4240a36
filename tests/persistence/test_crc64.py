"""CRC-64 against the definition, bit by bit."""

import random

from headrace.persistence.crc64 import crc64

POLYNOMIAL = 0xAD93D23594C935A9


def reversed_bits(v, n):
    return int(f"{v:0{n}b}"[::-1], 2)


def by_definition(data):
    """The remainder of the division of polynomials, bits reflected in and out."""
    remainder = 0
    for byte in data:
        remainder ^= reversed_bits(byte, 8) << 56
        for _ in range(8):
            remainder <<= 1
            if remainder >> 64:
                remainder ^= 1 << 64 | POLYNOMIAL
    return reversed_bits(remainder, 64)


def test_the_checked_value_of_the_polynomial():
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA


def test_every_length_equals_the_definition():
    data = random.Random(7).randbytes(300)
    assert [crc64(data[:n]) for n in range(300)] == [by_definition(data[:n]) for n in range(300)]


def test_long_inputs_equal_the_crc_byte_by_byte():
    data = random.Random(9).randbytes(20_000)
    for at, n in ((0, 6143), (0, 6144), (1, 6151), (3, 12288), (5, 19_001)):
        bytewise = 0x123456789ABCDEF
        for byte in data[at : at + n]:
            bytewise = crc64(bytes([byte]), bytewise)
        assert crc64(data[at : at + n], 0x123456789ABCDEF) == bytewise


def test_a_crc_can_be_continued():
    data = random.Random(8).randbytes(200)
    for cut in range(201):
        assert crc64(data[cut:], crc64(data[:cut])) == crc64(data)
