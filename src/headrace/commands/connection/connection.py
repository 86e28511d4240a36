"""PING, ECHO, HELLO, AUTH, SELECT, QUIT and RESET: the client's own connection."""

from __future__ import annotations

import cython

from headrace.access.users import DEFAULT_NAME
from headrace.commands.arguments import Arguments, is_keyword, parse_i64
from headrace.commands.call import Call
from headrace.commands.keys.databases import NoSuchDatabase
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax, NotAnInteger, WrongArgumentCount, to_text

I32_MAX = 0x7FFFFFFF


class DatabaseNotI32(CommandError):
    text = f"ERR value is out of range, value must between {-I32_MAX - 1} and {I32_MAX}"


class NoPassword(CommandError):
    text = (
        "ERR AUTH <password> called without any password configured for the default user. "
        "Are you sure your configuration is correct?"
    )


class WrongPassword(CommandError):
    text = "WRONGPASS invalid username-password pair or user is disabled."


class HelloTooEarly(CommandError):
    text = (
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
        "<user> <pass> option can be used to authenticate the client and select the RESP protocol version at "
        "the same time"
    )


class NoSuchProtocol(CommandError):
    text = "NOPROTO unsupported protocol version"


class ProtocolNotAnInteger(CommandError):
    text = "ERR Protocol version is not an integer or out of range"


class BadClientName(CommandError):
    text = "ERR Client names cannot contain spaces, newlines or special characters."


def is_printable(text: bytes) -> bool:
    """Return whether the text is visible ASCII, which CLIENT LIST can show."""
    return all(33 <= c <= 126 for c in text)


def checked_client_name(name: bytes) -> bytes:
    """Return the client name. Raises BadClientName if CLIENT LIST could not show it."""
    if not is_printable(name):
        raise BadClientName()
    return name


def run_ping(call: Call) -> None:
    """PING: reply PONG, or the message; with subscriptions in RESP2, an array that looks like a message."""
    if len(call.argv) > 2:
        raise WrongArgumentCount("ping")
    if call.session.subscription_count and call.reply.protocol == 2:  # it must look like a message
        call.reply.array(2)
        call.reply.bulk(b"pong")
        call.reply.bulk(call.argv[1] if len(call.argv) == 2 else b"")
    elif len(call.argv) == 2:
        call.reply.bulk(call.argv[1])
    else:
        call.reply.simple(b"PONG")


def run_echo(call: Call) -> None:
    """ECHO: reply with the message."""
    call.reply.bulk(call.argv[1])


def authenticate(call: Call, user: bytes, password: bytes) -> None:
    """Log the session in as the user. Raises WrongPassword."""
    if not call.engine.auth.authenticate(call.session, user, password, call.command.name, call.now):
        raise WrongPassword()


def run_auth(call: Call) -> None:
    """AUTH: log in. Without a name, log in as the default user; an error if that user needs no password."""
    if len(call.argv) > 3:
        raise InvalidSyntax()
    if len(call.argv) == 3:
        authenticate(call, call.argv[1], call.argv[2])
    elif call.engine.auth.users.default.nopass:
        raise NoPassword()
    else:
        authenticate(call, DEFAULT_NAME, call.argv[1])
    call.reply.ok()


def run_hello(call: Call) -> None:
    """HELLO: choose the protocol; optionally authenticate and name the connection."""
    session: Session = call.session
    arguments: Arguments = call.arguments()
    protocol: cython.longlong = session.reply.protocol
    name: bytes | None = None
    if arguments.has_more():
        try:
            protocol = parse_i64(arguments.next_argument())
        except NotAnInteger:
            raise ProtocolNotAnInteger() from None
        if not 2 <= protocol <= 3:
            raise NoSuchProtocol()
    while arguments.has_more():
        option = arguments.next_argument()
        if is_keyword(option, b"AUTH") and arguments.remaining_count() >= 2:
            authenticate(call, arguments.next_argument(), arguments.next_argument())
        elif is_keyword(option, b"SETNAME") and arguments.remaining_count() >= 1:
            name = checked_client_name(arguments.next_argument())
        else:
            shown = to_text(option)
            raise CommandError(f"ERR Syntax error in HELLO option '{shown}'")
    if session.must_authenticate:
        raise HelloTooEarly()
    if name is not None:
        session.name = name
    session.reply.protocol = protocol
    _write_hello_reply(call)


def hello_secret_positions(argv: list[bytes]) -> list[int]:
    """Return the positions of user and password after each AUTH in a HELLO."""
    found = [at for at in range(1, len(argv)) if argv[at].lower() == b"auth"]
    return [after for at in found for after in (at + 1, at + 2) if after < len(argv)]


def _write_hello_reply(call: Call) -> None:
    """Write the reply to HELLO: a description of the server. Clients expect the name redis."""
    call.reply.map(7)
    for name, value in (
        (b"server", b"redis"),
        (b"version", call.server.redis_version.encode()),
        (b"proto", call.session.reply.protocol),
        (b"id", call.session.id),
        (b"mode", b"standalone"),
        (b"role", b"replica" if call.server.replication.is_replica() else b"master"),
        (b"modules", []),
    ):
        call.reply.bulk(name)
        call.reply.value(value)


def run_select(call: Call) -> None:
    """SELECT: set the connection's database."""
    index: cython.longlong = parse_i64(call.argv[1])
    if not -I32_MAX - 1 <= index <= I32_MAX:
        raise DatabaseNotI32()
    if call.keyspace.database(index) is None:
        raise NoSuchDatabase()
    call.session.database = index
    call.reply.ok()


def run_quit(call: Call) -> None:
    """QUIT: reply OK and close the connection."""
    call.session.closing = True
    call.reply.ok()


def run_reset(call: Call) -> None:
    """RESET: set the connection back to its initial state."""
    call.engine.unwatch(call.session)
    call.engine.pubsub.unsubscribe_all(call.session)
    call.engine.tracking.disable(call.session)
    call.session.reset()
    if call.session.user is not None:
        call.engine.auth.begin_session(call.session)
    call.reply.simple(b"RESET")


COMMANDS = [
    Command(
        "ping",
        -1,
        run_ping,
        "fast",
        tips="request_policy:all_shards response_policy:all_succeeded",
        group="connection",
        summary="Returns PONG, or the message.",
        syntax="[message]",
    ),
    Command(
        "echo",
        2,
        run_echo,
        "loading stale fast",
        group="connection",
        summary="Returns the message.",
        syntax="message",
    ),
    Command(
        "auth",
        -2,
        run_auth,
        "noscript loading stale fast no_auth allow_busy",
        secrets="1..-1",
        group="connection",
        summary="Authenticates the connection.",
        syntax="[username] password",
        complexity="O(N), N being the number of passwords of the user",
    ),
    Command(
        "hello",
        -1,
        run_hello,
        "noscript loading stale fast no_auth allow_busy",
        secrets=hello_secret_positions,
        group="connection",
        since="6.0.0",
        summary="Chooses RESP2 or RESP3 and introduces the server.",
        syntax="[protover [AUTH username password] [SETNAME clientname]]",
    ),
    Command(
        "select",
        2,
        run_select,
        "loading stale fast",
        group="connection",
        summary="Chooses the connection's database.",
        syntax="index",
    ),
    Command(
        "quit",
        -1,
        run_quit,
        "noscript loading stale fast no_auth allow_busy at_once",
        group="connection",
        summary="Closes the connection.",
    ),
    Command(
        "reset",
        1,
        run_reset,
        "noscript loading stale fast no_auth allow_busy at_once",
        group="connection",
        since="6.2.0",
        summary="Resets the connection to its initial state.",
    ),
]
