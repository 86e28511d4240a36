"""Authentication and authorization of sessions.

    session.user                the User; None for this program's own sessions, which may do everything
    session.restricted_user     the User whose rules are checked; None if no rules need checking, as for most
                                sessions
    session.must_authenticate   the session must authenticate before anything else

All three depend on the users. Call refresh_sessions() when the users have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import cython

from headrace import companion_keys
from headrace.access import log
from headrace.access.command_catalogue import CommandCatalogue
from headrace.access.log import AccessLog
from headrace.access.redis_commands import redis_commands
from headrace.access.selector import WRITE, AccessRequest
from headrace.access.user import User
from headrace.access.users import Users
from headrace.commands.connection import client
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.commands.table import COMMANDS, command_of_name
from headrace.errors import CommandError, to_text

REASONS = {1: log.COMMAND, 2: log.KEY, 4: log.CHANNEL}  # by the upper half of a verdict
VERDICT_LOWER_HALF = 0xFFFFFFFF
SCHEDULING_COMMANDS = frozenset(command.name for command in COMMANDS if command.may_schedule_entries)


class NotAuthenticated(CommandError):
    text = "NOAUTH Authentication required."


class NoKeyAccess(CommandError):
    text = "NOPERM No permissions to access a key"


class NoChannelAccess(CommandError):
    text = "NOPERM No permissions to access a channel"


# The error for a request that was allowed when it was queued and is denied when EXEC runs it.
ACL_CHANGED_TEXT = (
    "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call."
    " This command is no longer allowed for the following reason: "
)
ACL_CHANGED_REASONS = {
    log.COMMAND: "no permission to execute the command or subcommand",
    log.KEY: "no permission to touch the specified keys",
    log.CHANNEL: "no permission to access one of the channels used as arguments",
}


def build_catalogue(commands: list[Command]) -> CommandCatalogue:
    """Return the commands and categories for ACL rules, including Redis commands that are absent here."""
    catalogue = CommandCatalogue()
    for command in commands:
        subcommands = {sub.name: sub.categories for sub in command.unique_subcommands()}
        catalogue.add(command.name, command.categories, subcommands)
    catalogue.add_absent(redis_commands())
    return catalogue


class Authorization:
    """The users of one engine, and the log of denied requests."""

    def __init__(self, clients: dict[int, Session], kill: Callable[[Session], None]) -> None:
        self.clients = clients
        self.kill_session = kill
        self.users = Users(build_catalogue(COMMANDS))
        self.acl_log = AccessLog()

    # Authentication.

    def begin_session(self, session: Session) -> None:
        """Log in a new client as the default user.

        It must authenticate unless that user is enabled and needs no password.
        """
        session.authenticated = self.users.default_needs_no_password()
        self._set_user(session, self.users.default)

    def _set_user(self, session: Session, user: User) -> None:
        session.user = user
        session.user_name = user.name
        self.refresh_session(session)

    def authenticate(
        self, session: Session, name: bytes, password: bytes, command: bytes, now_ms: int
    ) -> bool:
        """Log the session in and return True if the password is right; else log the denial, return False."""
        user = self.users.authenticate(name, password)
        if user is None:
            self._log(session, log.AUTH, log.TOP_LEVEL, command, name, now_ms)
            return False
        session.authenticated = True
        self._set_user(session, user)
        return True

    def authenticate_by_certificate(self, session: Session, name: bytes, now_ms: int) -> None:
        """Log the session in as the user that its TLS certificate names.

        If that user is unknown or disabled, only record the failure in the ACL log.
        """
        user = self.users.find(name)
        if user is None or not user.enabled:
            self._log(session, log.CERTIFICATE, log.TOP_LEVEL, name, name, now_ms)
            return
        session.authenticated = True
        self._set_user(session, user)

    def refresh_session(self, session: Session) -> None:
        """Set `must_authenticate` and `restricted_user` of the session from its user, if it has one."""
        user: User | None = session.user
        if user is None:
            return
        session.must_authenticate = not (session.authenticated or self.users.default_needs_no_password())
        session.restricted_user = user if session.must_authenticate or not user.is_unrestricted() else None

    # Changes of users.

    def refresh_sessions(self, caller: Session | None) -> None:
        """Re-resolve every session's user; close sessions whose user was deleted or lost a channel.

        The caller's session is closed only after its reply is sent.
        """
        for session in list(self.clients.values()):
            if session.user is None:
                continue
            session.user = self.users.find(session.user_name)
            if session.user is None or not self._may_keep_subscriptions(session):
                if session.user is None:  # it is denied everything until it is closed
                    session.user = session.restricted_user = User(session.user_name)
                    session.must_authenticate = True
                if session is caller:
                    session.closing = True
                else:
                    self.kill_session(session)
            else:
                self.refresh_session(session)

    def _may_keep_subscriptions(self, session: Session) -> bool:
        user = session.user
        return (
            user is not None
            and all(user.may_subscribe(name, False) for name in session.channels)
            and all(user.may_subscribe(glob, True) for glob in session.patterns)
            and all(user.may_subscribe(name, False) for name in session.shard_channels)
        )

    # Authorization.

    def permission_error(
        self, session: Session, command: Command, argv: list[bytes], now_ms: int, queued: bool = False
    ) -> CommandError | None:
        """Return the error if the request is denied, else None; record denials by ACL rules in the ACL log.

        queued: EXEC runs the request, which was allowed when it was queued.
        """
        if session.must_authenticate:
            return None if "no_auth" in command.flags else NotAuthenticated()
        if session.queue is not None and command.queueable and "no_multi" in command.flags:
            return None  # never allowed in MULTI, for any user: a later check says so
        request = command.access_request(argv)
        context = log.MULTI if queued or session.queue is not None else log.TOP_LEVEL
        return self._request_or_schedule_error(session, request, context, now_ms, queued)

    def _request_or_schedule_error(
        self, session: Session, request: AccessRequest, context: bytes, now_ms: int, changed: bool = False
    ) -> CommandError | None:
        """Return the error if the request itself, or what the server would do because of it, is denied."""
        error = self._request_error(session, request, context, now_ms, changed)
        if error is None and request.name in SCHEDULING_COMMANDS:
            return self._schedule_error(session, request, context, now_ms, changed)
        return error

    def _schedule_error(
        self, session: Session, request: AccessRequest, context: bytes, now_ms: int, changed: bool
    ) -> CommandError | None:
        """Return the error if a key is a schedule of a stream that the user may not write."""
        for at in request.key_positions:
            for target in companion_keys.schedule_target_streams(request.argv[at]):
                add = request_of_key(b"xadd", target, WRITE)
                error = self._request_error(session, add, context, now_ms, changed)
                if error is not None:
                    return error
        return None

    def _request_error(
        self, session: Session, request: AccessRequest, context: bytes, now_ms: int, changed: bool = False
    ) -> CommandError | None:
        user = session.restricted_user
        assert user is not None
        verdict = user.denial_code(request)
        if not verdict:
            return None
        reason = REASONS[verdict >> 32]
        what = request.name if reason == log.COMMAND else request.argv[verdict & VERDICT_LOWER_HALF]
        self._log(session, reason, context, what, user.name, now_ms)
        if changed:
            return CommandError(ACL_CHANGED_TEXT + ACL_CHANGED_REASONS[reason])
        if reason == log.KEY:
            return NoKeyAccess()
        return NoChannelAccess() if reason == log.CHANNEL else command_denied_error(user.name, request.name)

    def script_permission_error(
        self, session: Session, command: Command, argv: list[bytes], now_ms: int
    ) -> CommandError | None:
        """Return the error if a script of the session's user may not run the command, else None."""
        error = self._request_or_schedule_error(session, command.access_request(argv), log.LUA, now_ms)
        if error is None:
            return None
        return CommandError(f"ERR ACL failure in script: {str(error).removeprefix('NOPERM ')}")

    def may_run(self, session: Session, command: Command, argv: list[bytes]) -> bool:
        """Return whether the session's user may run the command; do not log a denial."""
        user = session.restricted_user
        if user is None:
            return True
        request = command.access_request(argv)
        if user.denial_code(request):
            return False
        return request.name not in SCHEDULING_COMMANDS or not any(
            user.denial_code(request_of_key(b"xadd", target, WRITE))
            for at in request.key_positions
            for target in companion_keys.schedule_target_streams(argv[at])
        )

    def check_commands(self, session: Session, names: Iterable[bytes], key: bytes, now_ms: int) -> None:
        """Raise CommandError if the user may not run one of these commands on the key.

        Used for scripts whose commands the server knows: they are checked before the script runs. The
        session must have a restricted_user.
        """
        for name in names:
            request = request_of_key(name, key, command_of_name(name).key_access_bits[0])
            permission_error = self._request_or_schedule_error(session, request, log.TOP_LEVEL, now_ms)
            if permission_error is not None:
                raise permission_error

    def check_key(self, session: Session, command: bytes, key: bytes, now_ms: int) -> None:
        """Raise CommandError if the user may not run this write command on the key."""
        if session.restricted_user is None:
            return
        request = request_of_key(command, key, WRITE)
        permission_error = self._request_or_schedule_error(session, request, log.TOP_LEVEL, now_ms)
        if permission_error is not None:
            raise permission_error

    def _log(
        self, session: Session, reason: bytes, context: bytes, what: bytes, user: bytes, now_ms: int
    ) -> None:
        line = client.list_line(session, now_ms)
        self.acl_log.add(reason, context, what, user, line, now_ms)


def request_of_key(command: bytes, key: bytes, use: int) -> AccessRequest:
    """Return the access request of a command with one key.

    use: how the command uses the key, as in access/selector.py.
    """
    request = AccessRequest(command, [command, key])
    request.key_positions, request.key_uses = [1], [use]
    return request


def command_denied_error(user: bytes, command: bytes) -> CommandError:
    """Return the error for a command that the user may not run."""
    user_name = to_text(user)
    return CommandError(f"NOPERM User {user_name} has no permissions to run the '{command.decode()}' command")
