"""Check the types in replies, to detect a program on the port that is not a Redis server.

    redis-py's clients     add_reply_checks() checks a reply before redis-py converts it
    raw connections        check_reply()

Checked are types, the format of IDs and cursors, and that the needed fields are present, for commands whose
replies Headrace parses. Replies may have further fields: later versions of servers add some.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from headrace.client.url import without_password
from headrace.errors import UnexpectedReply

ReplyPredicate = Callable[[object], bool]

ID_PATTERN = re.compile(rb"[0-9]{1,20}(-[0-9]{1,20})?")
SHOWN_REPLY_CHARS_MAX = 60  # characters of a reply in an error


def is_integer(reply: object) -> bool:
    """Return whether the reply is an integer. A boolean, as redis-py's RESP3 parser may return, is not."""
    return isinstance(reply, int) and not isinstance(reply, bool)


def is_cursor(reply: object) -> bool:
    """Return whether the reply is a cursor: digits."""
    return isinstance(reply, bytes) and reply.isdigit()


def is_count(reply: object) -> bool:
    """Return whether the reply is an integer of 0 or more."""
    return isinstance(reply, int) and not isinstance(reply, bool) and reply >= 0


def is_bytes(reply: object) -> bool:
    """Return whether the reply is a string."""
    return isinstance(reply, bytes)


def is_id(reply: object) -> bool:
    """Return whether the reply is an entry ID, such as 1700000000000-0."""
    return isinstance(reply, bytes) and ID_PATTERN.fullmatch(reply) is not None


def is_status(reply: object) -> bool:
    """Return whether the reply is a status, such as OK: a string of ASCII characters."""
    return isinstance(reply, bytes) and reply.isascii()


def null_or(shape: ReplyPredicate) -> ReplyPredicate:
    """Return the shape of a reply that is null or has the given shape."""
    return lambda reply: reply is None or shape(reply)


def list_of(shape: ReplyPredicate) -> ReplyPredicate:
    """Return the shape of a list of any length, whose elements all have the given shape."""
    return lambda reply: isinstance(reply, list) and all(map(shape, reply))


def list_empty_or_starting_with(shape: ReplyPredicate) -> ReplyPredicate:
    """Return the shape of a list that is empty, or whose first element has the given shape.

    Checking all elements of a page would take long.
    """
    return lambda reply: isinstance(reply, list) and (not reply or shape(reply[0]))


def list_starting_with(*shapes: ReplyPredicate) -> ReplyPredicate:
    """Return the shape of a list whose first elements have these shapes; more may follow."""

    def check(reply: object) -> bool:
        return (
            isinstance(reply, list)
            and len(reply) >= len(shapes)
            and all(shape(each) for shape, each in zip(shapes, reply, strict=False))
        )

    return check


def pairs_including(required: Mapping[bytes, ReplyPredicate]) -> ReplyPredicate:
    """Return the shape of a flat list of names and values, among them the required ones."""

    def check(reply: object) -> bool:
        if not isinstance(reply, list) or len(reply) % 2 or not all(map(is_status, reply[::2])):
            return False
        found = dict(zip(reply[::2], reply[1::2], strict=True))
        return all(name in found and shape(found[name]) for name, shape in required.items())

    return check


def is_entry(reply: object) -> bool:
    """Return whether the reply is an entry: an ID, and a flat list of names and values.

    The list is null if the entry was deleted.
    """
    return list_starting_with(is_id, null_or(list_of(is_bytes)))(reply) and len(reply[1] or ()) % 2 == 0  # type: ignore[index]


def is_xarrow_reply(reply: object) -> bool:
    """Return whether this is a reply of XARROW: last ID, four counts, perhaps a list of counts, a message."""
    if not list_starting_with(null_or(is_id), is_count, is_count, is_count, is_count)(reply):
        return False
    *misfits, message = reply[5:] or [None]  # type: ignore[index]
    return is_bytes(message) and (not misfits or (len(misfits) == 1 and list_of(is_count)(misfits[0])))


def is_xpending_reply(reply: object) -> bool:
    """Return whether this is a reply of XPENDING: the summary, or a row for each entry."""
    return list_starting_with(is_integer, null_or(is_id), null_or(is_id))(reply) or list_of(
        list_starting_with(is_id, is_bytes, is_integer, is_integer)
    )(reply)


IS_STREAM_INFO = pairs_including(
    {
        b"length": is_count,
        b"groups": is_integer,
        b"last-generated-id": is_id,
        b"first-entry": null_or(is_entry),
        b"last-entry": null_or(is_entry),
    }
)
IS_GROUP = pairs_including(
    {b"name": is_bytes, b"consumers": is_integer, b"pending": is_integer, b"last-delivered-id": is_id}
)
IS_CONSUMER = pairs_including({b"name": is_bytes, b"pending": is_integer, b"idle": is_integer})

SHAPE_BY_COMMAND: dict[str, ReplyPredicate] = {
    "COMMAND INFO": list_of(null_or(list_of(lambda reply: True))),
    "DEL": is_integer,
    "DUMP": null_or(is_bytes),
    "GET": null_or(is_bytes),
    "INFO": is_bytes,
    "MEMORY USAGE": null_or(is_integer),
    "SCAN": list_starting_with(is_cursor, list_of(is_bytes)),
    "TIME": list_starting_with(is_bytes, is_bytes),
    "TYPE": is_status,
    "MULTI": is_status,
    "WAIT": is_integer,
    "XACK": is_integer,
    "XADD": null_or(is_id),
    "XARROW": is_xarrow_reply,
    "XAUTOCLAIM": list_starting_with(
        is_id, list_empty_or_starting_with(null_or(lambda reply: is_id(reply) or is_entry(reply)))
    ),
    "XCLAIM": list_empty_or_starting_with(null_or(lambda reply: is_id(reply) or is_entry(reply))),
    "XCOUNT": is_integer,
    "XINFO CONSUMERS": list_of(IS_CONSUMER),
    "XINFO GROUPS": list_of(IS_GROUP),
    "XINFO STREAM": IS_STREAM_INFO,
    "XDEL": is_integer,
    "XLEN": is_count,
    "XPENDING": is_xpending_reply,
    "XRANGE": list_empty_or_starting_with(is_entry),
    "XREAD": null_or(list_of(list_starting_with(is_bytes, list_empty_or_starting_with(is_entry)))),
    "XREADGROUP": null_or(
        list_of(list_starting_with(is_bytes, list_empty_or_starting_with(list_starting_with(is_id))))
    ),
    "XREVRANGE": list_empty_or_starting_with(is_entry),
    "XTRIM": is_integer,
}


def command_name(words: Any) -> str:
    """Return the key of a request in SHAPE_BY_COMMAND: its command, with a subcommand if replies differ."""
    first, *rest = (str(word, "latin-1") if isinstance(word, bytes) else str(word) for word in words[:2])
    name = first.upper()
    return f"{name} {rest[0].upper()}" if rest and name in ("XINFO", "MEMORY", "COMMAND") else name


def check_reply(url: str, words: Any, reply: object) -> None:
    """Raise UnexpectedReply unless the reply has the shape of the command's replies.

    Errors, and commands that SHAPE_BY_COMMAND does not have, are not checked.
    """
    name = command_name(words)
    shape = SHAPE_BY_COMMAND.get(name)
    if name == "XINFO STREAM" and len(words) > 3:  # FULL: another reply
        return
    if shape is not None and not isinstance(reply, Exception) and not shape(reply):
        raise unexpected_reply(url, name, reply)


def unexpected_reply(url: str, name: str, reply: object) -> UnexpectedReply:
    """Return the error for a reply that does not have the shape of the replies to the command `name`."""
    text = repr(reply)
    if len(text) > SHOWN_REPLY_CHARS_MAX:
        text = text[:SHOWN_REPLY_CHARS_MAX] + "..."
    where = without_password(url)
    return UnexpectedReply(f"{where}: its reply to {name} is not one of Redis: {text}; is it a Redis server?")


def add_reply_checks(client: Any, url: str) -> Any:
    """Make a client of redis-py check the shape of replies before it converts them; return the client.

    A reply of another shape then raises UnexpectedReply.
    """
    callbacks: dict[str, Callable[..., Any]] = client.response_callbacks
    for name, shape in SHAPE_BY_COMMAND.items():
        callbacks[name] = _checked_callback(url, name, shape, callbacks.get(name))
    return client


def _checked_callback(
    url: str, name: str, shape: ReplyPredicate, convert: Callable[..., Any] | None
) -> Callable[..., Any]:
    def check(reply: object, **options: Any) -> Any:
        if not isinstance(reply, Exception) and not options.get("full") and not shape(reply):
            raise unexpected_reply(url, name, reply)
        return reply if convert is None else convert(reply, **options)

    return check
