"""The CRC-32C of the log: published values, and the processor's instruction beside the table."""

import random

import pytest

from headrace.persistence.crc32c import crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # RFC 3720, appendix B.4: this and those that follow
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_published_values(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected
    assert crc32c(data, table=True) == expected


def test_instruction_and_table_agree_at_every_length_and_continue_each_other() -> None:
    data = random.Random(1).randbytes(300)
    for n in range(len(data)):
        whole = crc32c(data[:n])
        assert whole == crc32c(data[:n], table=True)
        assert whole == crc32c(data[n // 3 : n], crc32c(data[: n // 3]))
