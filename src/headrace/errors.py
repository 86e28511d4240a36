"""All exception classes; those of commands have the exact text of the error reply.

CommandError     a valid request that the engine or server rejected; the connection stays open
ProtocolError    bytes that are not the Redis protocol; reported once, then the connection is closed
UsageError       an invalid argument, option or file; the program prints one line and exits with code 2
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

LOG_NAME_MAX = 512  # bytes of a name in a line of the log
NAME_ECHO_MAX = 128  # bytes of an unknown name that an error repeats


def os_error_text(error: OSError) -> str:
    """Return the system's message of an error in lower case, without the path."""
    return (error.strerror or str(error)).lower()


def copy_error(error: BaseException) -> BaseException:
    """Return an equal error without traceback, cause and context.

    An object that raises a stored error stores a copy, and raises a copy of the copy. Otherwise the traceback
    would refer to frames, and the frames to the object (a reference cycle). An error that cannot be copied
    becomes a HeadraceError with the same text.
    """
    try:
        return copy.copy(error)
    except Exception:  # its class has other arguments than its text
        return HeadraceError(str(error))


def to_text(word: bytes) -> str:
    """Decode a client's bytes to text that encodes to the same bytes again."""
    return word.decode("utf-8", "surrogateescape")


def log_text(word: bytes) -> str:
    """Decode a client's bytes to text for a log: bytes that are not UTF-8 are escaped, a long name is cut."""
    text = word[:LOG_NAME_MAX].decode("utf-8", "backslashreplace")
    return text if len(word) <= LOG_NAME_MAX else f"{text}... ({len(word)} bytes)"


class HeadraceError(Exception):
    """The base class of all errors that Headrace raises deliberately. The text says what to do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickle_error, (type(self), self.args), self.__dict__ or None


def unpickle_error(kind: type[HeadraceError], args: tuple[Any, ...]) -> HeadraceError:
    """Return an error with these args, for copy and pickle.

    The constructor is not called: its parameters may differ from `args`, which hold the text. Calling it
    would make unpickling fail, which breaks a process pool.
    """
    error = kind.__new__(kind)
    error.args = args
    return error


class ProtocolError(HeadraceError):
    """The input is not the Redis protocol."""


class UnexpectedReply(HeadraceError):
    """The reply is not one of a Redis server: probably another program listens at this address."""


class UsageError(HeadraceError):
    """An argument or option is invalid; the text names the valid ones."""


class CommandError(HeadraceError):
    """A valid request that was rejected. The text is the wire text, error code first.

    `stored_ids` is set if add_many() raises the error because single values were rejected. It has an element
    for each value, in their order: the StreamID of the entry, or None if the value was not stored. It is
    empty for all other errors: with NotConfirmed and NotReplicated all values are stored, with the others
    none is.
    """

    text: str = "ERR"
    stored_ids: Sequence[Any] = ()  # of StreamID or None

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text or self.text)


class ForeignCommand(CommandError):
    """A command of another server, for types or features that Headrace does not have."""


class InvalidSyntax(CommandError):
    text = "ERR syntax error"


class NotAnInteger(CommandError):
    text = "ERR value is not an integer or out of range"


class NotAFloat(CommandError):
    text = "ERR value is not a valid float"


class WrongType(CommandError):
    text = "WRONGTYPE Operation against a key holding the wrong kind of value"


class NoSuchKey(CommandError):
    text = "ERR no such key"


class WrongArgumentCount(CommandError):
    """A command got too few or too many arguments.

    Args:
        command: the name in lower case; a subcommand as `config|get`.
    """

    def __init__(self, command: str) -> None:
        super().__init__(f"ERR wrong number of arguments for '{command}' command")


class UnknownSubcommand(CommandError):
    """A subcommand does not exist or got the wrong arguments. The text repeats its name as sent."""

    def __init__(self, container: str, subcommand: bytes) -> None:
        name = to_text(subcommand[:NAME_ECHO_MAX])
        super().__init__(
            f"ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
        )


class InvalidStreamId(CommandError):
    text = "ERR Invalid stream ID specified as stream command argument"


class IdsExhausted(CommandError):
    text = "ERR The stream has exhausted the last possible ID, unable to add more items"


class IdTooSmall(CommandError):
    text = "ERR The ID specified in XADD is equal or smaller than the target stream top item"


class ElementsTooLarge(CommandError):
    text = "ERR Elements are too large to be stored"


# Errors that a Python program may want to distinguish. client/server_errors.py makes them from the error
# replies of a server and keeps their text.


class NoSuchGroup(CommandError):
    """The stream or its consumer group does not exist: it was never created, or it was deleted."""

    text = "NOGROUP No such consumer group"


class KeyRequired(CommandError):
    """XGROUP needs an existing stream."""

    text = (
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use"
        " the MKSTREAM option to create an empty stream automatically."
    )


class GroupExists(CommandError):
    """A consumer group of that name already exists."""

    text = "BUSYGROUP Consumer Group name already exists"


class NoSuchStream(NoSuchKey):
    """No stream of that name exists."""


class AccessDenied(CommandError):
    """The user or password is missing or wrong, or the user lacks the permission."""

    text = "NOPERM this user has no permissions to do that"


class StreamFull(CommandError):
    """The stream is at a limit of its rules, and its entries must stay. The entry was not added."""

    text = "FULL the stream is at its limit"


class EntriesKept(CommandError):
    """The rule STRICT rejects a command: it would remove entries that rules keep. Nothing was removed."""

    text = "KEPT the rules of the stream keep its entries"


class LastIdMismatch(HeadraceError):
    """The entry was not added: the stream's last ID is not the expected one."""

    def __init__(self, stream: str, expected: str) -> None:
        super().__init__(
            f"the last ID of {stream!r} is not {expected}: read the newer entries, and try again"
        )


class NotSupported(CommandError):
    """The server does not know the command or the option, usually because it is too old."""

    text = "ERR the server does not support this"


class ServerOutOfMemory(CommandError):
    """The server has reached its memory limit (`maxmemory`)."""

    text = "OOM command not allowed when used memory > 'maxmemory'."


READING_FROM_STORE_MESSAGE = "it is being read from the object store; try again"
COLD_ERROR_PATTERN = re.compile(
    r"COLDERR (?:the entries (?P<ids>.+?) cannot be read: )?"
    r"cold file (?P<file>.+?), at byte (?P<offset>\d+): (?P<what>.*)",
    re.DOTALL,
)


class DamagedColdRun(CommandError):
    """Entries that were moved to a file cannot be read: the file is missing, damaged or unreadable.

    `file` is relative to the data directory, `offset` in bytes from its start. `ids` names the entries, such
    as "1-0 to 5-3"; "" if unknown.
    """

    def __init__(self, file: str, offset: int, what: str, ids: str = "") -> None:
        entries = f"the entries {ids} cannot be read: " if ids else ""
        place = f"cold file {file}, at byte {offset}: " if file else ""
        super().__init__(f"COLDERR {entries}{place}{what}")
        self.file = file
        self.offset = offset
        self.what = what
        self.ids = ids

    @classmethod
    def from_text(cls, text: str) -> DamagedColdRun:
        """Parse the text of an error reply. `file` is "" and `offset` 0 if the text does not name a file."""
        parts = COLD_ERROR_PATTERN.fullmatch(text)
        if parts is None:
            return cls("", 0, text.removeprefix("COLDERR "))
        return cls(parts["file"], int(parts["offset"]), parts["what"], parts["ids"] or "")


class TooFewReplicas(CommandError):
    """Nothing was executed: fewer replicas are connected than `min-replicas-to-write` demands."""

    text = "NOREPLICAS Not enough good replicas to write."


class NotConfirmed(CommandError):
    """The writes are stored, but too few replicas confirmed them in time (`write-quorum`)."""

    text = (
        "NOQUORUM the writes of this request are stored here, but fewer replicas than write-quorum says have"
        " confirmed them"
    )


class CrossSlot(CommandError):
    """Keys of one transaction belong to several slots of a cluster."""

    text = "CROSSSLOT Keys in request don't hash to the same slot"


class InvalidID(HeadraceError, ValueError):
    """Not a valid entry ID."""


class CodecError(HeadraceError, ValueError):
    """A value cannot be encoded into an entry's fields, or fields cannot be decoded into a value.

    `entry` is the entry that cannot be decoded; None for all other errors.
    """

    def __init__(self, text: str, *, entry: object = None) -> None:
        super().__init__(text)
        self.entry = entry

    def __reduce__(self) -> tuple[Any, ...]:
        # without the entry, whose codec need not be picklable
        return unpickle_error, (type(self), self.args), {**self.__dict__, "entry": None}


class ConnectionLost(HeadraceError, ConnectionError):
    """The server cannot be reached, or cannot accept the request, such as a write to a replica.

    `maybe_executed`: whether the server may have executed the request.
    """

    def __init__(self, text: str, maybe_executed: bool = False) -> None:
        super().__init__(text)
        self.maybe_executed = maybe_executed


class DatabaseClosed(HeadraceError):
    """The database is closed, or belongs to the parent of this forked process; the text says which."""


class NotOnDisk(HeadraceError):
    """The change is in memory, but the disk rejected it. Headrace keeps retrying the write."""


class NotReplicated(HeadraceError):
    """Entries are stored, but fewer replicas than wanted have confirmed them in time.

    `ids` are the IDs of the entries, `confirmed` is the number of replicas that have them, and `wanted` the
    number that was asked for. The message ends with the reason if replicas could not be asked.
    """

    def __init__(self, ids: list[bytes], confirmed: int, wanted: int, reason: str = "") -> None:
        what = f"the entry {ids[0].decode()} is" if len(ids) == 1 else f"{len(ids)} entries are"
        super().__init__(
            f"{what} stored, but not yet copied: {confirmed} of {wanted} replicas have confirmed it. "
            "The primary still sends it: adding it again can store it twice, unless idempotency= is given. "
            f"A failover before that loses it{reason and f' ({reason})'}"
        )
        self.ids = ids
        self.confirmed = confirmed
        self.wanted = wanted
