"""CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO: clients that cache keys learn when these change."""

from __future__ import annotations

from itertools import pairwise

import cython

from headrace import limits
from headrace.commands.arguments import Arguments, parse_i64
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.commands.tracking_state import TrackingState
from headrace.errors import CommandError, InvalidSyntax, to_text

OVERLAP_ERROR_END = "Prefixes for a single client must not overlap."
MODE_SWITCH_ERROR_END = (
    "before disabling tracking for this client, and then re-enabling it with a different mode."
)


class SecondRedirection(CommandError):
    text = "ERR A client can only redirect to a single other client"


class NoRedirectionTarget(CommandError):
    text = "ERR The client ID you want redirect to does not exist"


class PrefixWithoutBroadcast(CommandError):
    text = "ERR PREFIX option requires BCAST mode to be enabled"


class BroadcastModeSwitched(CommandError):
    text = f"ERR You can't switch BCAST mode on/off {MODE_SWITCH_ERROR_END}"


class OptionModeSwitched(CommandError):
    text = f"ERR You can't switch OPTIN/OPTOUT mode {MODE_SWITCH_ERROR_END}"


class OptionModeWithBroadcast(CommandError):
    text = "ERR OPTIN and OPTOUT are not compatible with BCAST"


class OptInAndOptOut(CommandError):
    text = "ERR You can't specify both OPTIN mode and OPTOUT mode"


class TooManyPrefixes(CommandError):
    text = f"ERR a client can have at most {limits.TRACKED_PREFIXES_MAX} prefixes"


class NotInOptionMode(CommandError):
    text = (
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT"
        " mode enabled"
    )


class NotOptIn(CommandError):
    text = "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."


class NotOptOut(CommandError):
    text = "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."


def run_tracking(call: Call) -> None:
    """CLIENT TRACKING: enable tracking with these options, or disable it."""
    arguments: Arguments = call.arguments()
    word = arguments.next_argument()
    options, prefixes = _parse_options(call, arguments)
    if word.upper() == b"OFF":
        call.engine.tracking.disable(call.session)
    elif word.upper() == b"ON":
        _check_options(call.session.tracking, options, prefixes)
        options.prefixes.update(dict.fromkeys(prefixes))
        call.engine.tracking.enable(call.session, options)
    else:
        raise InvalidSyntax()
    call.reply.ok()


def _parse_options(call: Call, arguments: Arguments) -> tuple[TrackingState, list[bytes]]:
    """Parse the options after ON or OFF; return them, and the prefixes as given."""
    options = TrackingState(0)
    prefixes: list[bytes] = []
    while arguments.has_more():
        if arguments.take_option(b"REDIRECT"):
            if options.redirect_client_id:
                raise SecondRedirection()
            options.redirect_client_id = parse_i64(arguments.next_argument())
            if options.redirect_client_id not in call.engine.clients:
                raise NoRedirectionTarget()
        elif arguments.take_option(b"PREFIX"):
            prefixes.append(arguments.next_argument())
        elif arguments.take_flag(b"BCAST"):
            options.broadcasting = True
        elif arguments.take_flag(b"OPTIN"):
            options.opt_in = True
        elif arguments.take_flag(b"OPTOUT"):
            options.opt_out = True
        elif arguments.take_flag(b"NOLOOP"):
            options.no_loop = True
        else:
            raise InvalidSyntax()
    return options, prefixes


def _check_options(before: TrackingState | None, options: TrackingState, prefixes: list[bytes]) -> None:
    """Raise CommandError if the options contradict each other, or those in force (`before`)."""
    if prefixes and not options.broadcasting:
        raise PrefixWithoutBroadcast()
    if before is not None and before.is_on and before.broadcasting != options.broadcasting:
        raise BroadcastModeSwitched()
    if options.broadcasting and (options.opt_in or options.opt_out):
        raise OptionModeWithBroadcast()
    if options.opt_in and options.opt_out:
        raise OptInAndOptOut()
    if before is not None and ((options.opt_in and before.opt_out) or (options.opt_out and before.opt_in)):
        raise OptionModeSwitched()
    existing = [] if before is None else sorted(before.prefixes)
    if len(prefixes) + len(existing) > limits.TRACKED_PREFIXES_MAX:
        raise TooManyPrefixes()
    _check_prefixes(existing, prefixes)


def _check_prefixes(existing: list[bytes], prefixes: list[bytes]) -> None:
    """Raise an error if a prefix begins with another one: a key would be reported twice."""
    in_order = sorted([*existing, *prefixes])
    if not any(after.startswith(before) for before, after in pairwise(in_order)):
        return
    for i, prefix in enumerate(prefixes):
        for other in existing:
            if _overlap(prefix, other):
                raise _overlap_error(prefix, "an existing prefix", other)
        for other in prefixes[i + 1 :]:
            if _overlap(prefix, other):
                raise _overlap_error(prefix, "another provided prefix", other)


def _overlap(one: bytes, other: bytes) -> bool:
    return one.startswith(other) or other.startswith(one)


def _overlap_error(prefix: bytes, which: str, other: bytes) -> CommandError:
    shown, shown_other = to_text(prefix), to_text(other)
    return CommandError(f"ERR Prefix '{shown}' overlaps with {which} '{shown_other}'. {OVERLAP_ERROR_END}")


def run_caching(call: Call) -> None:
    """CLIENT CACHING: with OPTIN or OPTOUT, choose whether the next request's keys are remembered."""
    arguments: Arguments = call.arguments()
    state: TrackingState | None = call.session.tracking
    if state is None or not state.is_on:
        raise NotInOptionMode()
    if arguments.take_flag(b"YES"):
        if not state.opt_in:
            raise NotOptIn()
    elif arguments.take_flag(b"NO"):
        if not state.opt_out:
            raise NotOptOut()
    else:
        raise InvalidSyntax()
    state.caching_command_sent = True
    call.reply.ok()


def redirect_client_id(state: TrackingState | None) -> int:
    """Return the ID of the client that invalidations are redirected to; 0: none, -1: tracking is off."""
    return state.redirect_client_id if state is not None and state.is_on else -1


def run_getredir(call: Call) -> None:
    """CLIENT GETREDIR: reply with the ID of the client that invalidations are redirected to, 0 or -1."""
    call.reply.integer(redirect_client_id(call.session.tracking))


def run_trackinginfo(call: Call) -> None:
    """CLIENT TRACKINGINFO: reply with the flags, the redirection and the prefixes."""
    state = call.session.tracking
    flags = [b"off"] if state is None or not state.is_on else _flags(state)
    call.reply.map(3)
    call.reply.bulk(b"flags")
    call.reply.set(len(flags))
    for flag in flags:
        call.reply.bulk(flag)
    call.reply.bulk(b"redirect")
    call.reply.integer(redirect_client_id(state))
    call.reply.bulk(b"prefixes")
    call.reply.value([] if state is None else sorted(state.prefixes))


def _flags(state: TrackingState) -> list[bytes]:
    marks = (
        (b"on", True),
        (b"bcast", state.broadcasting),
        (b"optin", state.opt_in),
        (b"caching-yes", state.opt_in and state.caching_command_sent),
        (b"optout", state.opt_out),
        (b"caching-no", state.opt_out and state.caching_command_sent),
        (b"noloop", state.no_loop),
        (b"broken_redirect", state.redirect_broken),
    )
    return [flag for flag, is_set in marks if is_set]


SUBCOMMAND_FLAGS = "noscript loading stale"

SUBCOMMANDS = [
    Command(
        "client|caching",
        3,
        run_caching,
        SUBCOMMAND_FLAGS,
        group="connection",
        since="6.0.0",
        summary="With tracking by choice, has the keys of the next request remembered, or not.",
        syntax="<YES | NO>",
    ),
    Command(
        "client|getredir",
        2,
        run_getredir,
        SUBCOMMAND_FLAGS,
        group="connection",
        since="6.0.0",
        summary="Returns the client that tracking redirects to.",
    ),
    Command(
        "client|tracking",
        -3,
        run_tracking,
        SUBCOMMAND_FLAGS,
        group="connection",
        since="6.0.0",
        summary="Informs the client, which caches keys, when these change.",
        syntax="<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT]"
        " [NOLOOP]",
    ),
    Command(
        "client|trackinginfo",
        2,
        run_trackinginfo,
        SUBCOMMAND_FLAGS,
        group="connection",
        since="6.2.0",
        summary="Returns the options of tracking.",
    ),
]
