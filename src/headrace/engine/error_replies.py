"""What the engine itself refuses, before a command runs, and how a refusal is put on the wire."""

from __future__ import annotations

import logging

import cython

from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.errors import NAME_ECHO_MAX, CommandError

ARGUMENTS_SHOWN_MAX = 128  # bytes of an unknown request's arguments that the answer repeats, all together

# What a client that listens to channels may still ask for in RESP2, where it could not tell replies apart.
SUBSCRIBER_COMMANDS = frozenset(
    {b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ping", b"quit", b"reset"}
)

HTTP = frozenset({b"post", b"host:"})  # a method whose request has a body, and a header every request has

ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


class InternalError(CommandError):
    text = "ERR internal error, the request had no effect or part of its effect; see the server's log"


class NotInTransaction(CommandError):
    text = "ERR Command not allowed inside a transaction"


class Loading(CommandError):
    text = "LOADING Redis is loading the dataset in memory"


class OutOfMemory(CommandError):
    text = "OOM command not allowed when used memory > 'maxmemory'."


class SubscriberModeOnly(CommandError):
    """The command's name, lower case."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET"
            " are allowed in this context"
        )


class ExecAborted(CommandError):
    """EXEC itself was malformed."""

    def __init__(self, error: CommandError) -> None:
        reason: str = error.args[0]
        super().__init__(f"EXECABORT Transaction discarded because of: {reason.removeprefix('ERR ')}")


def allowed_while_subscribed(command: Command) -> bool:
    """Whether a client that listens to channels may run the command in RESP2."""
    return command.name in SUBSCRIBER_COMMANDS


def to_text(word: bytes) -> str:
    """Bytes of the client's, as text that turns into the same bytes again."""
    return word.decode("utf-8", "surrogateescape")


def unknown_command(session: Session, argv: list[bytes]) -> CommandError:
    """The refusal of a name that is not in the table; it repeats the beginning of the request.

    Who speaks HTTP is a browser, and the page in it that has it send requests in here is nobody we know: the
    connection ends before they come.
    """
    if argv[0].lower() in HTTP:
        session.closing = True
        address = session.address.decode(errors="replace")
        logging.getLogger("headrace").warning(
            "closing %s: it speaks HTTP, perhaps for a page in a browser", address
        )
    name = argv[0][:NAME_ECHO_MAX]
    arguments = b""
    for word in argv[1:]:
        room = ARGUMENTS_SHOWN_MAX - len(arguments)
        if room <= 0:
            break
        arguments += b"'" + word[:room] + b"' "
    return CommandError(
        f"ERR unknown command '{to_text(name)}', with args beginning with: {to_text(arguments)}"
    )


def unknown_subcommand(argv: list[bytes]) -> CommandError:
    """The refusal of a second word that the container does not have."""
    container = to_text(argv[0]).upper()
    return CommandError(f"ERR unknown subcommand '{to_text(argv[1][:NAME_ECHO_MAX])}'. Try {container} HELP.")


def command_error(exception: Exception, command: Command) -> CommandError:
    """What is answered when the command has raised that. If it is not a refusal it is a bug, and logged."""
    if isinstance(exception, CommandError):
        return exception
    logging.getLogger("headrace").error("a bug in %s", command.name.decode(), exc_info=exception)
    return InternalError()


def wire_text(error: CommandError) -> bytes:
    """The refusal's text as one line of bytes."""
    text: str = error.args[0]
    return text.encode("utf-8", "surrogateescape").translate(ONE_LINE)
