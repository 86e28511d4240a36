r"""Encodes requests for clients of a server: an array of strings.

*2\r\n $3\r\nGET\r\n $1\r\nk\r\n
"""

from __future__ import annotations


def request(*words: bytes) -> bytes:
    """Encode a request."""
    return b"*%d\r\n" % len(words) + b"".join(map(bulk, words))


def bulk(word: bytes) -> bytes:
    """Encode one argument."""
    return b"$%d\r\n%b\r\n" % (len(word), word)
