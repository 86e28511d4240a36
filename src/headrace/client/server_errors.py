"""Error replies of a server as exceptions that a program can catch, with advice.

The exception's text is the server's, code first. The advice is a note, which tracebacks show below it.
"""

from __future__ import annotations

from headrace.errors import (
    AccessDenied,
    CommandError,
    CrossSlot,
    ElementsTooLarge,
    GroupExists,
    IdsExhausted,
    IdTooSmall,
    InvalidStreamId,
    InvalidSyntax,
    NoSuchGroup,
    NoSuchKey,
    NotAnInteger,
    NotSupported,
    ServerOutOfMemory,
    WrongType,
)

BY_CODE: dict[str, type[CommandError]] = {
    "NOGROUP": NoSuchGroup,
    "BUSYGROUP": GroupExists,
    "WRONGTYPE": WrongType,
    "NOAUTH": AccessDenied,
    "WRONGPASS": AccessDenied,
    "NOPERM": AccessDenied,
    "OOM": ServerOutOfMemory,
    "CROSSSLOT": CrossSlot,
}

# Errors whose code is ERR are distinguished by their text.
BY_TEXT: tuple[tuple[str, type[CommandError]], ...] = (
    ("ERR unknown command", NotSupported),
    ("ERR unknown subcommand", NotSupported),
    ("ERR Unknown subcommand", NotSupported),
    *((one.text, one) for one in (NoSuchKey, IdTooSmall, IdsExhausted, InvalidStreamId)),
    *((one.text, one) for one in (InvalidSyntax, NotAnInteger, ElementsTooLarge)),
)

ADVICE: dict[type[CommandError], str] = {
    NoSuchGroup: "stream.group(name) creates the group; its option `recreate` does so whenever it is lost.",
    GroupExists: "stream.group(name) takes the group that is there.",
    WrongType: "The key holds something that is no stream: choose another name, or delete it.",
    AccessDenied: "The URL carries user and password: redis://user:password@host.",
    NotSupported: "This server is too old for it, or is not allowed to do it.",
    CrossSlot: "Names that share a part in braces are in one slot: {orders} and {orders}:dead.",
    ServerOutOfMemory: "The server is at its limit of memory: trim streams, or raise maxmemory.",
    IdTooSmall: "IDs only grow. Leave the ID out, and the stream gives the next one.",
}

NO_DISK = "The disk does not take what is written: make room. It is tried again by itself, and reads go on."


def command_error(text: str) -> CommandError:
    """Return the exception for an error text; a plain CommandError if the text is unknown.

    >>> type(command_error("NOGROUP No such consumer group 'g' for key name 's'")).__name__
    'NoSuchGroup'
    """
    kind = BY_CODE.get(text.partition(" ")[0])
    if kind is None:
        kind = next((kind for words, kind in BY_TEXT if text.startswith(words)), CommandError)
    error = kind(text)
    if advice := ADVICE.get(kind):
        error.add_note(advice)
    elif "MISCONF" in text:
        error.add_note(NO_DISK)
    return error


def not_supported(refused: CommandError, what: str, since: str) -> NotSupported:
    """Return the error for an option that the server does not know: its name, and the Redis version that has
    it.
    """
    error = NotSupported(
        f"{refused} (asked for {what}: Redis {since} and Headrace know it, older servers do not)"
    )
    error.__cause__ = refused
    return error
