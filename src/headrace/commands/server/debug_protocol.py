"""DEBUG PROTOCOL: one reply of each type, by which clients test their parsers."""

from __future__ import annotations

from collections.abc import Callable

from headrace.commands.call import Call
from headrace.errors import CommandError
from headrace.resp.writer import ReplyWriter

BIG_NUMBER = b"1234567999999999999999999999999999999"


class BadReplyType(CommandError):
    text = (
        "ERR Wrong protocol type name. Please use one of the following: string|integer|double|bignum|null|"
        "array|set|map|attrib|push|verbatim|true|false"
    )


class NeedsResp3(CommandError):
    text = "ERR RESP2 is not supported by this command"


def write_big_number(reply: ReplyWriter) -> None:
    """Write a number that does not fit in 64 bits."""
    if reply.protocol == 2:
        reply.bulk(BIG_NUMBER)
    else:
        reply.raw(b"(" + BIG_NUMBER + b"\r\n")


def write_map(reply: ReplyWriter) -> None:
    """Write a map from numbers to booleans."""
    reply.map(3)
    for number in range(3):
        reply.integer(number)
        reply.boolean(number == 1)


def write_attribute(reply: ReplyWriter) -> None:
    """Write an attribute, which RESP2 does not have, and a reply."""
    if reply.protocol == 3:
        reply.raw(b"|1\r\n")
        reply.bulk(b"key-popularity")
        reply.value([b"key:123", 90])
    reply.bulk(b"Some real reply following the attribute")


def write_push(reply: ReplyWriter) -> None:
    """Write a reply and a push message, which RESP2 does not have."""
    if reply.protocol == 2:
        raise NeedsResp3()
    reply.bulk(b"Some real reply following the push reply")
    reply.push(2)
    reply.bulk(b"server-cpu-usage")
    reply.integer(42)


REPLY_WRITERS: dict[bytes, Callable[[ReplyWriter], object]] = {
    b"string": lambda reply: reply.bulk(b"Hello World"),
    b"integer": lambda reply: reply.integer(12345),
    b"double": lambda reply: reply.double(3.141),
    b"bignum": write_big_number,
    b"null": lambda reply: reply.null(),
    b"array": lambda reply: reply.value([0, 1, 2]),
    b"set": lambda reply: reply.value({0, 1, 2}),
    b"map": write_map,
    b"attrib": write_attribute,
    b"push": write_push,
    b"verbatim": lambda reply: reply.verbatim(b"This is a verbatim\nstring"),
    b"true": lambda reply: reply.boolean(True),
    b"false": lambda reply: reply.boolean(False),
}


def run_protocol(call: Call) -> None:
    """DEBUG PROTOCOL: reply with a value of the named type."""
    write = REPLY_WRITERS.get(call.argv[2].lower())
    if write is None:
        raise BadReplyType()
    write(call.reply)
