"""Parse requests like a server, for the tests of encoders."""

from __future__ import annotations


def parse_requests(sent: bytes | bytearray) -> list[list[bytes]]:
    """Return the arguments of each request; the bytes must end with a complete request."""
    requests, at = [], 0

    def number(kind: bytes) -> int:
        nonlocal at
        end = sent.index(b"\r\n", at)
        assert sent[at : at + 1] == kind
        value = int(sent[at + 1 : end])
        at = end + 2
        return value

    while at < len(sent):
        words = []
        for _ in range(number(b"*")):
            size = number(b"$")
            words.append(bytes(sent[at : at + size]))
            at += size + 2
            assert sent[at - 2 : at] == b"\r\n"
        requests.append(words)
    return requests
