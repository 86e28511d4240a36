"""Error replies of a server as exceptions that a program can catch, with advice.

The exception's text is the server's, code first. The advice is a note, which tracebacks show below it.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import (
    AccessDenied,
    CommandError,
    CrossSlot,
    DamagedColdRun,
    ElementsTooLarge,
    EntriesKept,
    GroupExists,
    IdsExhausted,
    IdTooSmall,
    InvalidStreamId,
    InvalidSyntax,
    NoSuchGroup,
    NoSuchKey,
    NotAnInteger,
    NotConfirmed,
    NotSupported,
    ServerOutOfMemory,
    StreamFull,
    TooFewReplicas,
    WrongType,
)

ERROR_CLASS_BY_CODE: dict[str, Callable[[str], CommandError]] = {
    "NOGROUP": NoSuchGroup,
    "BUSYGROUP": GroupExists,
    "WRONGTYPE": WrongType,
    "NOAUTH": AccessDenied,
    "WRONGPASS": AccessDenied,
    "NOPERM": AccessDenied,
    "OOM": ServerOutOfMemory,
    "FULL": StreamFull,
    "KEPT": EntriesKept,
    "CROSSSLOT": CrossSlot,
    "NOREPLICAS": TooFewReplicas,
    "NOQUORUM": NotConfirmed,
    "COLDERR": DamagedColdRun.from_text,
}

# Errors whose code is ERR are distinguished by their text.
ERROR_CLASSES_BY_PREFIX: tuple[tuple[str, type[CommandError]], ...] = (
    ("ERR unknown command", NotSupported),
    ("ERR unknown subcommand", NotSupported),
    ("ERR Unknown subcommand", NotSupported),
    *((one.text, one) for one in (NoSuchKey, IdTooSmall, IdsExhausted, InvalidStreamId)),
    *((one.text, one) for one in (InvalidSyntax, NotAnInteger, ElementsTooLarge)),
)

ADVICE_BY_ERROR_CLASS: dict[type[CommandError], str] = {
    NoSuchGroup: "The first consumer creates the group, or stream.group(name, create=True); its option"
    " `recreate` does so whenever it is lost.",
    GroupExists: "stream.group(name) uses the existing group.",
    WrongType: "The key is not a stream: choose another name, or delete the key.",
    AccessDenied: "Write user and password into the URL: redis://user:password@host.",
    NotSupported: "The server is too old for it, or has it disabled.",
    CrossSlot: "Names that share a part in braces are in one slot: {orders} and {orders}:dead.",
    ServerOutOfMemory: "The server has reached its memory limit: trim streams, or raise maxmemory.",
    StreamFull: "Its rules keep what it has: wait until consumers have acknowledged entries.",
    EntriesKept: "Groups must acknowledge the entries, or an archive must contain them; or remove STRICT.",
    TooFewReplicas: "Nothing was stored: try again when the server's replicas are connected.",
    NotConfirmed: "A failover may lose the entry; adding it again stores it twice without idempotency=.",
    IdTooSmall: "IDs only increase. Without an ID the stream generates the next one.",
}

# By code, where the advice for the class does not help.
ADVICE_BY_CODE = {
    "NOPERM": "An administrator allows it with ACL SETUSER; docs/library.md lists what each call needs."
}
DISK_ADVICE = "The server cannot write to its disk: free some space. It keeps retrying, and reads still work."


def exec_abort_reason(text: str) -> str:
    """Return the error that made EXEC fail, if the text gives it; otherwise the text.

    >>> exec_abort_reason("EXECABORT Transaction discarded because of: OOM command not allowed")
    'OOM command not allowed'
    """
    return text.rpartition("because of: ")[2] if text.startswith("EXECABORT") else text


def command_error(text: str) -> CommandError:
    """Return the exception for the text of an error reply; a plain CommandError if the text is unknown.

    If EXEC was rejected, the exception is that of the error which made it fail.

    >>> type(command_error("NOGROUP No such consumer group 'g' for key name 's'")).__name__
    'NoSuchGroup'
    """
    text = exec_abort_reason(text)
    code = text.partition(" ")[0]
    make = ERROR_CLASS_BY_CODE.get(code)
    if make is None:
        make = next((kind for words, kind in ERROR_CLASSES_BY_PREFIX if text.startswith(words)), CommandError)
    error = make(text)
    if advice := ADVICE_BY_CODE.get(code) or ADVICE_BY_ERROR_CLASS.get(type(error)):
        error.add_note(advice)
    elif "MISCONF" in text:
        error.add_note(DISK_ADVICE)
    return error


def not_supported_error(rejected: CommandError, what: str, since: str) -> NotSupported:
    """Return the error for an option that the server does not know; Redis has it since version `since`."""
    error = NotSupported(f"{rejected} ({what}= needs Redis {since} or Headrace)")
    error.__cause__ = rejected
    return error
