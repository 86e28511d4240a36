"""ACL: users, their rules, and the log of denied requests."""

from __future__ import annotations

from collections.abc import Callable

import cython

from headrace.access.log import AccessLog, Denial
from headrace.access.rule_errors import InvalidUserFile, RejectedRule, UnclosedParenthesis, has_blanks
from headrace.access.user import User
from headrace.access.users import DEFAULT_NAME, Users
from headrace.commands.arguments import is_keyword, parse_i64
from headrace.commands.call import Call
from headrace.commands.command_rows import help_row, server_command
from headrace.commands.server.introspection import find_command
from headrace.commands.spec import Command
from headrace.errors import CommandError, UnknownSubcommand, WrongArgumentCount, to_text

GENPASS_BITS = 256
GENPASS_BITS_MAX = 4096
LOG_COUNT_DEFAULT = 10
KEY_REASON, CHANNEL_REASON = 2, 4  # the upper half of a verdict


class BadUserName(CommandError):
    text = "ERR Usernames can't contain spaces or null characters"


class DefaultUserNotRemovable(CommandError):
    text = "ERR The 'default' user cannot be removed"


class BadGenpassBits(CommandError):
    text = (
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up "
        f"to {GENPASS_BITS_MAX}"
    )


def users_of(call: Call) -> Users:
    """Return the users of the engine."""
    users: Users = call.engine.auth.users
    return users


def run_whoami(call: Call) -> None:
    """ACL WHOAMI: reply with the session's user."""
    call.reply.bulk(call.session.user_name)


def run_users(call: Call) -> None:
    """ACL USERS: reply with the names of all users."""
    call.reply.value(users_of(call).names())


def run_list(call: Call) -> None:
    """ACL LIST: reply with all users as lines of an ACL file."""
    call.reply.value(users_of(call).user_file_lines())


def run_cat(call: Call) -> None:
    """ACL CAT: reply with the categories, or the commands of one."""
    if len(call.argv) > 3:
        raise UnknownSubcommand("ACL", call.argv[1])
    named = users_of(call).catalogue.names_by_category
    if len(call.argv) == 2:
        call.reply.value(list(named))
        return
    found = named.get(call.argv[2].lower())
    if found is None:
        raise CommandError(f"ERR Unknown category '{to_text(call.argv[2])}'")
    call.reply.value(found)


def run_setuser(call: Call) -> None:
    """ACL SETUSER: create or change a user; all rules are applied, or none."""
    name = call.argv[2]
    if has_blanks(name):
        raise BadUserName()
    try:
        users_of(call).change(name, call.argv[3:])
    except RejectedRule as refused:
        text = f"ERR Error in ACL SETUSER modifier '{to_text(refused.rule)}': {refused.reason}"
        raise CommandError(text) from None
    except UnclosedParenthesis as refused:
        raise CommandError(f"ERR {refused}") from None
    call.engine.auth.refresh_sessions(call.session)
    call.reply.ok()


def run_deluser(call: Call) -> None:
    """ACL DELUSER: remove users and close their connections; reply how many existed."""
    if DEFAULT_NAME in call.argv[2:]:
        raise DefaultUserNotRemovable()
    users = users_of(call)
    removed = [users.remove(name) for name in call.argv[2:]]
    call.engine.auth.refresh_sessions(call.session)
    call.reply.integer(sum(user is not None for user in removed))


def run_getuser(call: Call) -> None:
    """ACL GETUSER: reply with a user's flags, passwords and rules, or null."""
    user = users_of(call).find(call.argv[2])
    if user is None:
        call.reply.null()
        return
    call.reply.map(6)
    call.reply.bulk(b"flags")
    call.reply.set(len(user.flags()))
    for flag in user.flags():
        call.reply.bulk(flag)
    call.reply.bulk(b"passwords")
    call.reply.value(list(user.passwords))
    _write_selector_rules(call, user, 0)
    call.reply.bulk(b"selectors")
    call.reply.array(len(user.selectors) - 1)
    for i in range(1, len(user.selectors)):
        call.reply.map(3)
        _write_selector_rules(call, user, i)


def _write_selector_rules(call: Call, user: User, i: int) -> None:
    """Write the rules of the user's selector i, in three pairs."""
    selector = user.selectors[i]
    texts = (selector.commands_text(), selector.keys_text(), selector.channels_text())
    for what, text in zip((b"commands", b"keys", b"channels"), texts, strict=True):
        call.reply.bulk(what)
        call.reply.bulk(text)


def run_dryrun(call: Call) -> None:
    """ACL DRYRUN: reply whether a user may make a request, without running it."""
    user = users_of(call).find(call.argv[2])
    if user is None:
        raise CommandError(f"ERR User '{to_text(call.argv[2])}' not found")
    request = call.argv[3:]
    command = find_command(call, request)
    if command is None:
        raise CommandError(f"ERR Command '{to_text(request[0])}' not found")
    if not command.accepts_argument_count(len(request)) or (command.run is None and len(request) == 1):
        raise WrongArgumentCount(command.name.decode())
    access_request = command.access_request(request)
    verdict = user.denial_code(access_request)
    if not verdict:
        call.reply.ok()
        return
    reason, at = verdict >> 32, verdict & 0xFFFFFFFF
    if reason in (KEY_REASON, CHANNEL_REASON):
        kind = b"key" if reason == KEY_REASON else b"channel"
        what = b"access the '%s' %s" % (request[at], kind)
    else:
        what = b"run the '%s' command" % command.name
    call.reply.bulk(b"User %s has no permissions to %s" % (user.name, what))


def run_genpass(call: Call) -> None:
    """ACL GENPASS: reply with a random password of that number of bits, in hexadecimal."""
    if len(call.argv) > 3:
        raise UnknownSubcommand("ACL", call.argv[1])
    bits = parse_i64(call.argv[2]) if len(call.argv) == 3 else GENPASS_BITS
    if not 0 < bits <= GENPASS_BITS_MAX:
        raise BadGenpassBits()
    digits = (bits + 3) // 4
    call.reply.bulk(call.server.random_bytes((digits + 1) // 2).hex()[:digits].encode())


def run_load(call: Call) -> None:
    """ACL LOAD: replace all users by those of the ACL file; change none if the file is invalid."""
    try:
        users_of(call).replace_all(call.server.read_users())
    except InvalidUserFile as wrong:
        text = f"ERR {wrong}. WARNING: ACL errors detected, no change to the previously active ACL rules was"
        raise CommandError(f"{text} performed") from None
    call.engine.auth.refresh_sessions(call.session)
    call.reply.ok()


def run_save(call: Call) -> None:
    """ACL SAVE: write the users to the ACL file."""
    call.server.write_users(users_of(call).user_file_lines())
    call.reply.ok()


def run_log(call: Call) -> None:
    """ACL LOG: reply with the latest denied requests, newest first; RESET deletes them."""
    if len(call.argv) > 3:
        raise UnknownSubcommand("ACL", call.argv[1])
    log: AccessLog = call.engine.auth.acl_log
    count = LOG_COUNT_DEFAULT
    if len(call.argv) == 3:
        if is_keyword(call.argv[2], b"RESET"):
            log.clear()
            call.reply.ok()
            return
        count = max(parse_i64(call.argv[2]), 0)
    entries = log.entries[:count]
    call.reply.array(len(entries))
    for entry in entries:
        _write_denial(call, entry)


def _write_denial(call: Call, entry: Denial) -> None:
    facts: dict[bytes, object] = {
        b"count": entry.count,
        b"reason": entry.reason,
        b"context": entry.context,
        b"object": entry.object,
        b"username": entry.user,
        b"age-seconds": max(call.now - entry.updated_ms, 0) / 1000,
        b"client-info": entry.client,
        b"entry-id": entry.number,
        b"timestamp-created": entry.created_ms,
        b"timestamp-last-updated": entry.updated_ms,
    }
    call.reply.value(facts)


ADMIN_FLAGS = "admin noscript loading stale"
ANY_USER_FLAGS = "noscript loading stale"


def subcommand_row(
    name: str,
    arity: int,
    run: Callable[[Call], None],
    flags: str,
    since: str,
    summary: str,
    syntax: str = "",
    cost: str = "O(1)",
    tips: str = "",
    secrets: str = "",
) -> Command:
    """Return a subcommand's row."""
    return server_command(f"acl|{name}", arity, run, since, summary, syntax, flags, tips, secrets, cost)


SUBCOMMANDS = [
    subcommand_row(
        "cat",
        -2,
        run_cat,
        ANY_USER_FLAGS,
        "6.0.0",
        "Lists the categories, or the commands of one.",
        "[category]",
    ),
    subcommand_row(
        "deluser",
        -3,
        run_deluser,
        ADMIN_FLAGS,
        "6.0.0",
        "Removes users and closes their connections.",
        "username [username ...]",
        "O(1) for every user, and for every connection",
        tips="request_policy:all_nodes response_policy:all_succeeded",
    ),
    subcommand_row(
        "dryrun",
        -4,
        run_dryrun,
        ADMIN_FLAGS,
        "7.0.0",
        "Reports whether a user may make a request, without running it.",
        "username command [arg [arg ...]]",
        secrets="4..-1",
    ),
    subcommand_row(
        "genpass", -2, run_genpass, ANY_USER_FLAGS, "6.0.0", "Generates a random password.", "[bits]"
    ),
    subcommand_row(
        "getuser",
        3,
        run_getuser,
        ADMIN_FLAGS,
        "6.0.0",
        "Returns a user's flags, passwords and rules.",
        "username",
        "O(N), N being the user's rules",
    ),
    subcommand_row(
        "list",
        2,
        run_list,
        ADMIN_FLAGS,
        "6.0.0",
        "Lists the users as lines of a file.",
        cost="O(N), N being the users",
    ),
    subcommand_row(
        "load",
        2,
        run_load,
        ADMIN_FLAGS,
        "6.0.0",
        "Reads the users from the ACL file.",
        cost="O(N), N being the users",
    ),
    subcommand_row(
        "log",
        -2,
        run_log,
        ADMIN_FLAGS,
        "6.0.0",
        "Shows the latest denied requests.",
        "[count | RESET]",
        "O(N), N being count",
    ),
    subcommand_row(
        "save",
        2,
        run_save,
        ADMIN_FLAGS,
        "6.0.0",
        "Writes the users to the ACL file.",
        cost="O(N), N being the users",
        tips="request_policy:all_nodes response_policy:all_succeeded",
    ),
    subcommand_row(
        "setuser",
        -3,
        run_setuser,
        ADMIN_FLAGS,
        "6.0.0",
        "Creates or changes a user by rules.",
        "username [rule [rule ...]]",
        "O(N), N being the rules, and O(1) for every connection",
        tips="request_policy:all_nodes response_policy:all_succeeded",
        secrets="2..-1",
    ),
    subcommand_row(
        "users",
        2,
        run_users,
        ADMIN_FLAGS,
        "6.0.0",
        "Lists the names of the users.",
        cost="O(N), N being the users",
    ),
    subcommand_row("whoami", 2, run_whoami, ANY_USER_FLAGS, "6.0.0", "Names the caller's user."),
]

COMMANDS = [
    Command(
        "acl",
        -2,
        None,
        "",
        group="server",
        since="6.0.0",
        summary="Users and their permissions.",
        complexity="Depends on the subcommand",
        subcommands=[*SUBCOMMANDS, help_row("acl", SUBCOMMANDS, "6.0.0")],
    )
]
