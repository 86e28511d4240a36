"""CLIENT: list, name, pause, unblock and close connections. For tracking see client_tracking.py."""

from __future__ import annotations

from collections.abc import Callable

import cython

from headrace.commands.arguments import Arguments, is_keyword, parse_i64, parse_timeout
from headrace.commands.call import Call
from headrace.commands.command_rows import help_row
from headrace.commands.connection import client_tracking
from headrace.commands.connection.connection import checked_client_name, is_printable
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax, NotAnInteger, UnknownSubcommand, to_text

# The kinds of clients that Redis distinguishes.
CLIENT_TYPES = (b"normal", b"master", b"replica", b"slave", b"pubsub")

# Redis has a buffer of this size for each client: obl counts the bytes in it, omem those beyond it.
REPLY_BUFFER_BYTES = 16 * 1024
NO_BUFFER_BYTES = (0, 0)  # of a session without a connection
LIST_LINE_FORMAT = (  # of CLIENT LIST
    b"id=%d addr=%b laddr=%b fd=%d name=%b age=%d idle=%d flags=%b db=%d sub=%d psub=%d ssub=%d multi=%d"
    b" watch=%d qbuf=%d qbuf-free=%d argv-mem=0 multi-mem=%d rbs=%d rbp=%d obl=%d oll=0 omem=%d tot-mem=%d"
    b" events=r cmd=%b user=%b redir=%d resp=%d lib-name=%b lib-ver=%b io-thread=0"
)


class NoSuchClient(CommandError):
    text = "ERR No such client"


class BadClientId(CommandError):
    text = "ERR client-id should be greater than 0"


class BadListedId(CommandError):
    text = "ERR Invalid client ID"


class MaxAgeNotAnInteger(CommandError):
    text = "ERR maxage is not an integer or out of range"


class MaxAgeTooSmall(CommandError):
    text = "ERR maxage should be greater than 0"


class BadUnblockReason(CommandError):
    text = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"


class Unblocked(CommandError):
    text = "UNBLOCKED client unblocked via CLIENT UNBLOCK"


class BadPauseMode(CommandError):
    text = "ERR CLIENT PAUSE mode must be WRITE or ALL"


def parse_deadline(text: bytes, now: int) -> int:
    """Parse a timeout in milliseconds; return the deadline, or 0 for a timeout of 0, which means never."""
    timeout = parse_timeout(text, now)
    return now + timeout if timeout else 0


def parse_client_type(word: bytes) -> bytes:
    """Parse a client type; return it in lower case, `replica` for `slave`. Raises CommandError if unknown."""
    kind = word.lower()
    if kind not in CLIENT_TYPES:
        raise CommandError(f"ERR Unknown client type '{to_text(word)}'")
    return b"replica" if kind == b"slave" else kind


def client_type_of(session: Session) -> bytes:
    """Return the session's type, one of CLIENT_TYPES."""
    if session.replayed:
        return b"master"
    if session.is_replica and not session.monitoring:
        return b"replica"
    return b"pubsub" if session.subscription_count else b"normal"


def parse_on_or_off(call: Call) -> bool:
    """Return True for the argument ON, False for OFF. Raises InvalidSyntax."""
    arguments: Arguments = call.arguments()
    if arguments.take_flag(b"ON"):
        return True
    if arguments.take_flag(b"OFF"):
        return False
    raise InvalidSyntax()


def run_id(call: Call) -> None:
    """CLIENT ID: reply with the connection's ID."""
    call.reply.integer(call.session.id)


def run_setname(call: Call) -> None:
    """CLIENT SETNAME: name the connection; an empty name removes the name."""
    call.session.name = checked_client_name(call.argv[2])
    call.reply.ok()


def run_getname(call: Call) -> None:
    """CLIENT GETNAME: reply with the connection's name, or null."""
    if call.session.name:
        call.reply.bulk(call.session.name)
    else:
        call.reply.null()


def run_setinfo(call: Call) -> None:
    """CLIENT SETINFO: set the name or the version of the client's library."""
    option, value = call.argv[2], call.argv[3]
    shown = to_text(option)
    if not is_keyword(option, b"LIB-NAME") and not is_keyword(option, b"LIB-VER"):
        raise CommandError(f"ERR Unrecognized option '{shown}'")
    if not is_printable(value):
        raise CommandError(f"ERR {shown} cannot contain spaces, newlines or special characters.")
    if is_keyword(option, b"LIB-NAME"):
        call.session.library_name = value
    else:
        call.session.library_version = value
    call.reply.ok()


def watch_and_wait_bytes(session: Session) -> int:
    """Return the memory of the keys that the session watches or is blocked on."""
    watched = 0 if session.watch is None else session.watch.memory_bytes
    return watched + (0 if session.waiter is None else session.waiter.memory_bytes())


def list_line(session: Session, now: int, buffers: tuple[int, int] = NO_BUFFER_BYTES) -> bytes:
    """Return the session's line of CLIENT LIST. buffers: used and free bytes of its read buffer."""
    held, free = buffers
    queue, watch, command = session.queue, session.watch, session.last_command
    cap, unsent = session.reply.cap, session.reply.pending_bytes()
    queued = session.multi_queue_bytes()
    return LIST_LINE_FORMAT % (
        session.id,
        session.address,
        session.local_address,
        session.file_number,
        session.name,
        max(0, now - session.created_ms) // 1000,
        max(0, now - session.last_request_ms) // 1000,
        list_flags(session),
        session.database,
        len(session.channels),
        len(session.patterns),
        len(session.shard_channels),
        -1 if queue is None else len(queue),
        0 if watch is None else len(watch.keys),
        held,
        free,
        queued,
        cap,
        unsent,
        min(unsent, REPLY_BUFFER_BYTES),
        max(unsent - REPLY_BUFFER_BYTES, 0),
        held + free + cap + queued + session.subscription_bytes + watch_and_wait_bytes(session),
        b"NULL" if command is None else command.name,
        session.user_name,
        client_tracking.redirect_client_id(session.tracking),
        session.reply.protocol,
        session.library_name,
        session.library_version,
    )


def list_flags(session: Session) -> bytes:
    """Return the session's flags as Redis's letters; N for none."""
    watch, tracking = session.watch, session.tracking
    marks = (
        (b"S", session.is_replica and not session.monitoring),
        (b"M", session.replayed),
        (b"O", session.monitoring),
        (b"P", session.subscription_count > 0),
        (b"x", session.queue is not None),
        (b"b", session.waiter is not None),
        (b"t", tracking is not None and tracking.is_on),
        (b"R", tracking is not None and tracking.redirect_broken),
        (b"B", tracking is not None and tracking.broadcasting),
        (b"d", watch is not None and watch.invalidated),
        (b"c", session.closing),
        (b"e", session.no_evict),
        (b"T", session.no_touch),
    )
    return b"".join(letter for letter, is_set in marks if is_set) or b"N"


def list_line_with_buffers(call: Call, session: Session) -> bytes:
    """Return the session's line of CLIENT LIST, with the sizes of its buffers."""
    return list_line(session, call.now, call.server.query_buffer_sizes(session))


def run_info(call: Call) -> None:
    """CLIENT INFO: reply with the connection's line of CLIENT LIST."""
    call.reply.verbatim(list_line_with_buffers(call, call.session) + b"\n")


def run_list(call: Call) -> None:
    """CLIENT LIST: reply with a line for each client, for those of one type, or for those with these IDs."""
    arguments: Arguments = call.arguments()
    chosen: list[Session] = list(call.engine.clients.values())
    if arguments.take_option(b"TYPE"):
        kind = parse_client_type(arguments.next_argument())
        chosen = [session for session in chosen if client_type_of(session) == kind]
    elif arguments.take_option(b"ID"):
        ids = [_listed_id(word) for word in arguments.take_rest()]
        clients = call.engine.clients
        chosen = [clients[number] for number in ids if number in clients]
    arguments.expect_end()
    call.reply.verbatim(b"".join(list_line_with_buffers(call, session) + b"\n" for session in chosen))


def _listed_id(word: bytes) -> int:
    try:
        return parse_i64(word)
    except NotAnInteger:
        raise BadListedId() from None


def run_kill(call: Call) -> None:
    """CLIENT KILL: close the client of an address, or those that match the options."""
    if len(call.argv) == 3:
        found = [s for s in call.engine.clients.values() if s.address == call.argv[2]]
        if not found:
            raise NoSuchClient()
        _kill(call, found)
        call.reply.ok()
        return
    keep, skip_me = parse_kill(call)
    found = [
        session
        for session in call.engine.clients.values()
        if all(wanted(session) for wanted in keep) and not (skip_me and session is call.session)
    ]
    _kill(call, found)
    call.reply.integer(len(found))


def _kill(call: Call, found: list[Session]) -> None:
    """Close the sessions; the caller's is closed after its reply."""
    for session in found:
        if session is call.session:
            session.closing = True
        elif session.replayed:
            call.server.replication.close_link()
        else:
            call.engine.kill(session)


def parse_kill(call: Call) -> tuple[list[Callable[[Session], bool]], bool]:
    """Parse the options of CLIENT KILL; return the conditions, and whether to spare the caller (SKIPME)."""
    arguments: Arguments = call.arguments()
    keep: list[Callable[[Session], bool]] = []
    skip_me = True
    while arguments.has_more():
        if arguments.take_option(b"ID"):
            number = _positive(arguments.next_argument(), BadClientId, BadClientId)
            keep.append(_is_equal(lambda s: s.id, number))
        elif arguments.take_option(b"TYPE"):
            keep.append(_is_equal(client_type_of, parse_client_type(arguments.next_argument())))
        elif arguments.take_option(b"ADDR"):
            keep.append(_is_equal(lambda s: s.address, arguments.next_argument()))
        elif arguments.take_option(b"LADDR"):
            keep.append(_is_equal(lambda s: s.local_address, arguments.next_argument()))
        elif arguments.take_option(b"USER"):
            user = arguments.next_argument()
            if call.engine.auth.users.find(user) is None:
                raise CommandError(f"ERR No such user '{to_text(user)}'")
            keep.append(_is_equal(lambda s: s.user_name, user))
        elif arguments.take_option(b"MAXAGE"):
            age = _positive(arguments.next_argument(), MaxAgeNotAnInteger, MaxAgeTooSmall)
            keep.append(_is_created_until(call.now - age * 1000))
        elif arguments.take_option(b"SKIPME"):
            skip_me = arguments.take_flag(b"YES")
            if not skip_me and not arguments.take_flag(b"NO"):
                raise InvalidSyntax()
        else:
            raise InvalidSyntax()
    return keep, skip_me


def _is_equal(session_property: Callable[[Session], object], value: object) -> Callable[[Session], bool]:
    """Return a condition: the session's property has that value."""
    return lambda session: session_property(session) == value


def _is_created_until(moment: int) -> Callable[[Session], bool]:
    """Return a condition: the session was created at that time, in milliseconds, or before."""
    return lambda session: session.created_ms <= moment


def _positive(word: bytes, not_an_integer: type[CommandError], too_small: type[CommandError]) -> int:
    try:
        number = parse_i64(word)
    except NotAnInteger:
        raise not_an_integer() from None
    if number <= 0:
        raise too_small()
    return number


def run_unblock(call: Call) -> None:
    """CLIENT UNBLOCK: end another client's wait, with its timeout reply or an error; reply 1 if it waited."""
    argv = call.argv
    if len(argv) > 4:
        raise UnknownSubcommand("CLIENT", argv[1])
    error = Unblocked() if len(argv) == 4 and is_keyword(argv[3], b"ERROR") else None
    if len(argv) == 4 and error is None and not is_keyword(argv[3], b"TIMEOUT"):
        raise BadUnblockReason()
    session = call.engine.clients.get(parse_i64(argv[2]))
    call.reply.integer(1 if session is not None and call.engine.unblock(session, error) else 0)


def run_pause(call: Call) -> None:
    """CLIENT PAUSE: hold all requests, or writes only, for some milliseconds."""
    argv = call.argv
    if len(argv) > 4:
        raise UnknownSubcommand("CLIENT", argv[1])
    writes_only = len(argv) == 4 and is_keyword(argv[3], b"WRITE")
    if len(argv) == 4 and not writes_only and not is_keyword(argv[3], b"ALL"):
        raise BadPauseMode()
    until = parse_deadline(argv[2], call.now)
    if until:
        call.engine.write_gate.pause(until, writes_only)
    call.reply.ok()


def run_unpause(call: Call) -> None:
    """CLIENT UNPAUSE: end the pause."""
    call.engine.write_gate.end_pause()
    call.reply.ok()


def run_reply(call: Call) -> None:
    """CLIENT REPLY: turn replies on or off, or (SKIP) off for this request and the next."""
    arguments: Arguments = call.arguments()
    session: Session = call.session
    if arguments.take_flag(b"ON"):
        session.set_reply_on()
        call.reply.ok()
    elif arguments.take_flag(b"OFF"):
        session.set_reply_off()
    elif arguments.take_flag(b"SKIP"):
        session.set_reply_skip()
    else:
        raise InvalidSyntax()


def run_no_evict(call: Call) -> None:
    """CLIENT NO-EVICT: stored and shown; clients are never evicted here."""
    call.session.no_evict = parse_on_or_off(call)
    call.reply.ok()


def run_no_touch(call: Call) -> None:
    """CLIENT NO-TOUCH: stored and shown; keys have no access time here."""
    call.session.no_touch = parse_on_or_off(call)
    call.reply.ok()


def subcommand_row(
    name: str,
    arity: int,
    run: Callable[[Call], None],
    since: str,
    summary: str,
    syntax: str = "",
    flags: str = "",
    tips: str = "",
) -> Command:
    """Return a subcommand's row."""
    return Command(
        f"client|{name}",
        arity,
        run,
        f"{flags} noscript loading stale",
        tips=tips,
        group="connection",
        since=since,
        summary=summary,
        syntax=syntax,
    )


SUBCOMMANDS = [
    subcommand_row("id", 2, run_id, "5.0.0", "Returns the caller's ID."),
    subcommand_row(
        "setname",
        3,
        run_setname,
        "2.6.9",
        "Names the connection.",
        "connection-name",
        tips="request_policy:all_nodes response_policy:all_succeeded",
    ),
    subcommand_row("getname", 2, run_getname, "2.6.9", "Returns the connection's name."),
    subcommand_row(
        "setinfo",
        4,
        run_setinfo,
        "7.2.0",
        "Sets the name or version of the client's library.",
        "<LIB-NAME name | LIB-VER version>",
        tips="request_policy:all_nodes response_policy:all_succeeded",
    ),
    subcommand_row("info", 2, run_info, "6.2.0", "Describes the connection.", tips="nondeterministic_output"),
    subcommand_row(
        "list",
        -2,
        run_list,
        "2.4.0",
        "Describes connections.",
        "[TYPE type] [ID id [id ...]]",
        "admin",
        tips="nondeterministic_output",
    ),
    subcommand_row(
        "kill",
        -3,
        run_kill,
        "2.4.0",
        "Closes connections.",
        "<ip:port | [ID id] [TYPE type] [USER user] [ADDR ip:port] [LADDR ip:port] [SKIPME yes|no]>",
        "admin",
    ),
    subcommand_row(
        "unblock", -3, run_unblock, "5.0.0", "Unblocks a client.", "client-id [TIMEOUT | ERROR]", "admin"
    ),
    subcommand_row("pause", -3, run_pause, "3.0.0", "Pauses requests.", "timeout [WRITE | ALL]", "admin"),
    subcommand_row("unpause", 2, run_unpause, "6.2.0", "Ends a pause.", "", "admin"),
    subcommand_row("reply", 3, run_reply, "3.2.0", "Turns replies off and on.", "<ON | OFF | SKIP>"),
    subcommand_row(
        "no-evict", 3, run_no_evict, "7.0.0", "Spares the connection from eviction.", "<ON | OFF>", "admin"
    ),
    subcommand_row("no-touch", 3, run_no_touch, "7.2.0", "Reads keys without touching them.", "<ON | OFF>"),
    *client_tracking.SUBCOMMANDS,
]

COMMANDS = [
    Command(
        "client",
        -2,
        None,
        group="connection",
        since="2.4.0",
        summary="Lists, names and closes connections.",
        complexity="Depends on the subcommand",
        subcommands=[*SUBCOMMANDS, help_row("client", SUBCOMMANDS)],
    )
]
