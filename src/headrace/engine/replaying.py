"""Execute the commands of a log or of a primary, which were executed once before.

There is no client: no reply is sent, nothing is paused or blocked. Only the command's function runs. The
commands of a primary (`live`) are counted, and recorded for this server's own log. A log is loaded before
effects are recorded.
The entry point for clients is engine.py.
"""

from __future__ import annotations

import logging
import re

import cython

from headrace.commands import rule_effects
from headrace.commands.call import Call
from headrace.commands.keys.dump import BadData
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.commands.stats import CommandRow
from headrace.engine import dispatch
from headrace.engine.engine import Engine
from headrace.engine.error_replies import wire_text
from headrace.errors import CommandError, ForeignCommand, WrongArgumentCount, to_text
from headrace.keyspace.keyspace import Keyspace
from headrace.visibility import Public

NAME_SHOWN_MAX = 60
COMMAND_NAME_PATTERN = re.compile(rb"[A-Za-z][A-Za-z0-9._|-]*")


class InvalidLogCommand(CommandError):
    """A log record that no server writes, or whose data headrace cannot hold."""

    def __init__(self, argv: list[bytes], why: str) -> None:
        name = to_text(argv[0][:NAME_SHOWN_MAX]).upper()
        super().__init__(f"the command {name!a}: {why}")


class ForeignLogCommand(InvalidLogCommand, ForeignCommand):
    """A log record of another server, for types or features that Headrace does not have."""


@cython.final
@cython.cclass
class Replayer:
    """Replays the commands of a log or a primary on an engine's keyspace, one after the other."""

    engine: Engine
    keyspace: Keyspace
    session: Session
    call: Call
    now_ms: Public[cython.longlong]  # the time of the replay, for commands that do not carry their own
    is_from_primary: cython.bint  # the commands are those of a primary
    # The previous command's first argument, whose objects the parser reuses, and its row; None if the next
    # command of that name must be checked again, because its row depends on more than the name.
    _previous_command_name: bytes | None
    _previous_row: CommandRow | None

    def __init__(self, engine: Engine, now_ms: cython.longlong, live: cython.bint = False) -> None:
        assert live or not engine.effects.recording, "the effects of a log would be recorded again"
        self.engine = engine
        self.keyspace = engine.keyspace
        self.now_ms = now_ms
        self.is_from_primary = live
        self._previous_command_name = self._previous_row = None
        self.session = Session(0)
        self.session.replayed = True
        policy = dispatch.PRIMARY_POLICY if live else dispatch.REPLAY_POLICY
        self.call = Call(engine, engine.keyspace, engine.server, engine.effects, policy)
        self.call.session = self.session
        self.call.reply = self.session.reply

    @cython.ccall
    def replay(self, argv: list[bytes]) -> bytes | None:
        """Replay one command; return its error text if it failed, else None.

        Raises:
            ForeignLogCommand: if it is a command of another server.
            InvalidLogCommand: if the command cannot be in a log: it has a wrong number of arguments, does not
                concern data, or headrace failed to run it.
        """
        call: Call = self.call
        row: CommandRow | None = self._previous_row
        known: cython.bint = argv[0] is self._previous_command_name and row is not None
        if not known:
            argv, row = self._resolve_command(argv)
        assert row is not None
        command: Command = row.command
        if not (len(argv) == row.arity if row.arity > 0 else len(argv) >= -row.arity):
            raise InvalidLogCommand(argv, str(WrongArgumentCount(command.name.decode())).removeprefix("ERR "))
        if not known:
            if not (command.write or command.readonly or command.name == b"select"):
                raise InvalidLogCommand(argv, "it changes no data, so it cannot be in a log")
            self._previous_command_name = argv[0]
            self._previous_row = None
            if command.name_argument_count == 1 and command.name != b"publish":
                self._previous_row = row
        call.argv = argv
        call.now = self.now_ms
        self.keyspace.now = self.now_ms
        try:
            self.engine.dispatcher.run(call, row)
        except CommandError as error:
            if not self.is_from_primary and command.name == b"restore" and isinstance(error, BadData):
                raise ForeignLogCommand(argv, "the value has a type that headrace does not have") from error
            return wire_text(error)
        except Exception as error:
            logging.getLogger("headrace").exception("a bug in %s", command.name.decode())
            raise InvalidLogCommand(argv, f"headrace failed to run it ({error!r})") from error
        finally:
            call.reply.rewind(0)
        return None

    @cython.cfunc
    def _resolve_command(self, argv: list[bytes]) -> tuple[list[bytes], CommandRow]:
        """Return the command and its row; if a PUBLISH records the command of a rule, those of the latter."""
        row: CommandRow | None = self.engine.rows.get(argv[0])
        recorded: list[bytes] | None = None
        if row is not None and row.command.name == b"publish":
            recorded = rule_effects.recorded_command(argv)
        if recorded is not None:
            argv = recorded
            row = self.engine.rows.get(argv[0])
        if row is None or not row.has_no_subcommands:
            row = self._find_row(argv)
        return argv, row

    @cython.cfunc
    def _find_row(self, argv: list[bytes]) -> CommandRow:
        """Return the row of a mixed-case name or of a subcommand."""
        row: CommandRow | None = self.engine.rows.get(argv[0].lower())
        if row is None:
            raise _unknown(argv, argv[0], "it is unknown: headrace supports streams and strings only")
        if row.has_no_subcommands or len(argv) == 1:
            return row
        sub = row.command.subcommand(argv[1])
        if sub is None:
            text = f"it has no subcommand {to_text(argv[1][:NAME_SHOWN_MAX])!a}"
            raise _unknown(argv, argv[1], text)
        return self.engine.rows_by_full_name[sub.name]


def _unknown(argv: list[bytes], name: bytes, why: str) -> InvalidLogCommand:
    """Return the error for a name that no command here has.

    If it could be the name of a command, another server has written it. Otherwise the record is damaged.
    """
    return (ForeignLogCommand if COMMAND_NAME_PATTERN.fullmatch(name) else InvalidLogCommand)(argv, why)
