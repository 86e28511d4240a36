"""Every refusal once, with its exact wire text.

CommandError     a request that was understood and refused; the connection goes on
ProtocolError    bytes that are not the protocol; answered once, then the connection closes
UsageError       a wrong option or file on the command line: one line, exit code 2
"""

from __future__ import annotations

NAME_SHOWN_MAX = 128  # bytes of an unknown name that an answer repeats


class HeadraceError(Exception):
    """The base of all that headrace raises on purpose; its text says what to do."""


class ProtocolError(HeadraceError):
    """Bytes that are not the Redis protocol."""


class UsageError(HeadraceError):
    """The user asked for something that cannot be done; the text says what to do instead."""


class CommandError(HeadraceError):
    """A request that was understood and refused. The text is what goes on the wire, code first."""

    text: str = "ERR"

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text or self.text)


class SyntaxRefused(CommandError):
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
    """The command's name, lower case, subcommands as `config|get`."""

    def __init__(self, command: str) -> None:
        super().__init__(f"ERR wrong number of arguments for '{command}' command")


class UnknownForm(CommandError):
    """A subcommand whose further words do not fit; it is named as the client typed it."""

    def __init__(self, container: str, subcommand: bytes) -> None:
        name = subcommand[:NAME_SHOWN_MAX].decode("utf-8", "surrogateescape")
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


# What a Python program meets: the refusals it may want to tell apart. Who reads a server's answers makes them
# of its text (api/remote/server_errors.py), and their text is the server's.


class NoSuchGroup(CommandError):
    """The stream or its consumer group is not there: nobody made it, or it was deleted."""

    text = "NOGROUP No such consumer group"


class GroupExists(CommandError):
    """A consumer group of that name is there already."""

    text = "BUSYGROUP Consumer Group name already exists"


class NoSuchStream(NoSuchKey):
    """There is no stream of that name."""


class AccessDenied(CommandError):
    """User and password are wrong or missing, or the user may not do that."""

    text = "NOPERM this user has no permissions to do that"


class NotSupported(CommandError):
    """The server does not know the command or the option: it is too old."""

    text = "ERR the server does not know that"


class ServerFull(CommandError):
    """The server has reached its limit of memory."""

    text = "OOM command not allowed when used memory > 'maxmemory'"


class CrossSlot(CommandError):
    """Keys that are to be changed together belong to several servers of a cluster."""

    text = "CROSSSLOT Keys in request don't hash to the same slot"


class InvalidID(HeadraceError, ValueError):
    """Not an ID of a stream's entry."""


class CodecError(HeadraceError, ValueError):
    """A value that cannot be made into an entry's fields, or fields that make no value."""


class ConnectionLost(HeadraceError, ConnectionError):
    """A server cannot be reached. perhaps_done: whether it may have carried out what it was asked for."""

    def __init__(self, text: str, perhaps_done: bool = False) -> None:
        super().__init__(text)
        self.perhaps_done = perhaps_done


class DatabaseClosed(HeadraceError):
    """The database was closed, or belongs to another process; the text says which."""


class NotOnDisk(HeadraceError):
    """What was just done is in memory, and the disk has refused it; it is tried again by itself."""
