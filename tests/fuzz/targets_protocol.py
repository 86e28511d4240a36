"""Fuzz targets: requests, inline requests, replies and glob patterns."""

from __future__ import annotations

import zlib
from collections.abc import Hashable
from typing import Any

from fuzz.driver import Target
from headrace.errors import CommandError, ProtocolError
from headrace.keyspace.glob import Glob
from headrace.resp.inline import split_line
from headrace.resp.parser import RequestParser
from headrace.resp.reply_parser import INCOMPLETE, Push, ReplyParser
from headrace.resp.request import request as encoded
from headrace.resp.writer import ReplyWriter

SIGNS = rb"""* $ - : + _ # , % > ~ | = ! ( *1\r\n *2\r\n *-1\r\n *0\r\n $-1\r\n $0\r\n\r\n $3\r\nabc\r\n
:5\r\n +OK\r\n -ERR\r\n _\r\n #t\r\n ,1.5\r\n ,inf\r\n %1\r\n ~2\r\n >2\r\n |1\r\n =7\r\ntxt:abc\r\n
!3\r\nERR\r\n *1\r\n*1\r\n PING\r\n (123456789012345678901234567890\r\n *1048577\r\n $536870913\r\n ' " \0
\r\n \n \r"""
WORDS = [word.decode("unicode_escape").encode("latin-1") for word in SIGNS.split()] + [
    b" ",
    b"\\",
    b"\\x0a",
    b"\\n",
]


def cut(data: bytes) -> list[bytes]:
    """Data in pieces, of sizes that follow from it."""
    dice = zlib.crc32(data)
    pieces, at = [], 0
    while at < len(data):
        dice = (dice * 1103515245 + 12345) & 0x7FFFFFFF
        size = 1 + (dice >> 16) % (3 if dice & 64 else 40)
        pieces.append(data[at : at + size])
        at += size
    return pieces


def requests_of(pieces: list[bytes]) -> tuple[list[list[bytes]], str]:
    """The requests in the pieces, and the error at their end, if any."""
    parser = RequestParser()
    found: list[list[bytes]] = []
    size = 0
    try:
        for piece in pieces:
            parser.feed(piece)
            size += len(piece)
            while (request := parser.next()) is not None:
                assert request
                found.append(request)
            assert 0 <= parser.pending_bytes() <= size
    except ProtocolError as wrong:
        return found, str(wrong)
    return found, ""


def read_requests(data: bytes) -> set[Hashable]:
    """However they are cut, they are the same; what was read is read again as what it was."""
    found, wrong = requests_of([data])
    assert requests_of(cut(data)) == (found, wrong)
    assert requests_of([b"".join(encoded(*words) for words in found)]) == (found, "")
    return {wrong[:40], min(len(found), 9), *(("words", min(len(words), 40)) for words in found)}


def replies_of(pieces: list[bytes]) -> tuple[list[Any], str]:
    """The replies in the pieces, and the error at their end, if any."""
    parser = ReplyParser()
    found: list[Any] = []
    try:
        for piece in pieces:
            parser.feed(piece)
            while (reply := parser.next()) is not INCOMPLETE:
                found.append(reply)
    except ProtocolError as wrong:
        return found, str(wrong)
    return found, ""


def plain(reply: Any) -> bool:
    """Whether our own servers could have written it just so."""
    if isinstance(reply, list):
        return not isinstance(reply, Push) and all(map(plain, reply))
    if isinstance(reply, dict):
        return all(plain(key) and plain(value) for key, value in reply.items())
    if isinstance(reply, int):
        return -(1 << 63) <= reply < 1 << 63
    return not isinstance(reply, (CommandError, str))


def read_replies(data: bytes) -> set[Hashable]:
    """However they are cut, they are the same; what a server of ours could have said, it says again."""
    found, wrong = replies_of([data])
    assert repr(replies_of(cut(data))) == repr((found, wrong))
    said = [reply for reply in found if plain(reply)]
    answer = ReplyWriter(3)
    for reply in said:
        answer.value(reply)
    assert repr(replies_of([answer.take()])) == repr((said, ""))
    return {wrong[:24], min(len(found), 9), *map(type, found), *(str(type(r)) + str(r)[:2] for r in found)}


def read_line(data: bytes) -> set[Hashable]:
    """Words, which quoted are the same words, or none."""
    words = split_line(data)
    if words is None:
        return {None}
    line = b" ".join(b'"' + b"".join(b"\\x%02x" % byte for byte in word) + b'"' for word in words)
    assert split_line(line) == words
    return {min(len(words), 20), *(("size", min(len(word), 30)) for word in words)}


def match(data: bytes) -> set[Hashable]:
    """Pattern and text, a zero byte between them; many stars must not take long."""
    pattern, _, text = data.partition(b"\0")
    found = Glob(pattern).matches(text), Glob(pattern, True).matches(text)
    return {(found, pattern[:1], pattern[-1:], len(pattern) > len(text))}


LINE_WORDS = [*WORDS, b'\\"', b"\\'", b"\\x4"]
GLOBS = [b"*", b"?", b"[", b"]", b"^", b"-", b"\\", b"\0", b"a*", b"[^a-z]"]
TARGETS = [
    Target("requests", read_requests, (), WORDS, executions=(2000, 10000)),
    Target("replies", read_replies, (), WORDS, executions=(3000, 12000)),
    Target("lines", read_line, (), LINE_WORDS, executions=(2000, 6000), size_max=500),
    Target("patterns", match, (), GLOBS, executions=(5000, 20000), size_max=300),
]
