"""The format of the hash behind iids, which logs and snapshots contain: XXH3 with 128 bits."""

import pytest
from xxhash import xxh3_128_hexdigest

# The digest, as one number in hex, of the first n bytes of made_of(): one n at least for every way of
# reading, and for both sides of every border between two ways.
DIGESTS = [
    (0, "99aa06d3014798d86001c324468d497f"),
    (1, "e1325e21416bcdb2929e358d27ae3ee2"),
    (2, "03430718a8616e6e5f54949a22a6fa65"),
    (3, "7b7864f22cbf919a3d1d5d94bc951786"),
    (4, "0686fee748050b880fed12d076f8f384"),
    (5, "0a542cc938571534ff8a9b3be9c998f2"),
    (8, "92a5daf2583aba0a1f53db946cef0532"),
    (9, "881dd49cb1f82cf9fd28224ad106a1f8"),
    (12, "bea09d2ea4ee731ab822ffdad5f9d1cd"),
    (16, "edae216cf8b58be508acbf2f80e9186a"),
    (17, "5e954dd96729963dca520941209ba1f8"),
    (32, "12e392b4707f4d59fe0b93bcac213660"),
    (33, "a7bdb00c4dea4bf5e5c727088a857c46"),
    (64, "2348bb16d735bb21dd74bf31be53814c"),
    (65, "4f880e01642c1787917426c3a0bf8a1a"),
    (96, "e58c953d2bc01a9bf1a5ff4b2c125a71"),
    (97, "35b03294160cffa87f2e0b549aa3b246"),
    (128, "45f06c23f126cbb50c39e01c3ef698d2"),
    (129, "f01affd6948850cc9bba4f3eca7c312e"),
    (160, "fa7ccd3d21af730e7d16ea8a8ad32fb7"),
    (191, "478abb5624d66fbeb117f4e9a9d43a9a"),
    (192, "91f9fdddf653427e2a3bd8f268b230aa"),
    (223, "0857fad3bb581af04c6ce3ca8f8ab11d"),
    (224, "0b6066a17e1cb29202615ca8b22264ef"),
    (240, "8cbeaed2e31512bc2e4bd151e9d53478"),
    (241, "937b7911a0c3fc37ed047bdb320c73df"),
    (256, "d618e29e5cca5b9871818f37d192d3e9"),
    (320, "98a163e7e825cf48a82ae7381de53ccd"),
    (1024, "193b58412f8e4724e431059c70cd0cf2"),
    (1025, "4e00b5f05a89bd9c843e4a213996146e"),
    (1088, "5e8c75c829bed396b046135aee258a12"),
    (2048, "a8ea9b1d22fbb8ec482c2fe2b3255669"),
    (2049, "804ae00244545259c60520123ec4d749"),
    (5000, "abbd7ecb8752ccd73f007ef4fcd6990e"),
]


def made_of(n: int) -> bytes:
    return bytes((i * i * 7 + i * 31 + 5) & 0xFF for i in range(n))


@pytest.mark.parametrize(("n", "expected"), DIGESTS)
def test_digests_are_those_of_xxhash_0_8(n, expected):
    assert xxh3_128_hexdigest(made_of(n)) == expected
