"""The one place where commands run: those of clients, rules, scripts, logs and primaries.

    policy          caller                   checks before                     an error      counted  blocks
    REQUEST_POLICY  a client                 all of Engine.execute             is the reply  yes      yes
    QUEUED_POLICY   EXEC                     rights                            is the reply  yes      no
    SCRIPT_POLICY   a script                 those of ScriptRunner             is the reply  yes      no
    WAITER_POLICY   a blocked client, again  pause, rights, write gate         is the reply  once     no
    RULE_POLICY     the rules of a stream    RuleRunner.is_suspended, for all  is raised     no       no
    PRIMARY_POLICY  the stream of a primary  number of arguments               is raised     yes      no
    REPLAY_POLICY   a log that is loaded     number of arguments               is raised     no       no

A blocked client keeps its request. When a key has new data, the request is checked again: it fails if its
user has lost a right, or if writes are rejected by now. While clients are paused, it continues to wait.
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call, CallerPolicy
from headrace.commands.session import Session
from headrace.commands.stats import CommandRow, Stats
from headrace.engine import error_replies
from headrace.engine.authorization import Authorization
from headrace.engine.rule_marks import RuleMarker
from headrace.engine.timing import Timing
from headrace.engine.write_gate import WriteGate
from headrace.errors import CommandError
from headrace.keyspace.blocking import Waiter
from headrace.keyspace.effects import Effects
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.rule_registry import RuleRegistry

REQUEST_POLICY = CallerPolicy(may_block=True)
QUEUED_POLICY = CallerPolicy()
SCRIPT_POLICY = CallerPolicy()
WAITER_POLICY = CallerPolicy()
RULE_POLICY = CallerPolicy(replies=False, counted=False)
PRIMARY_POLICY = CallerPolicy(replies=False)
REPLAY_POLICY = CallerPolicy(replies=False, counted=False, leaves_out_unreadable_removals=True)


@cython.final
@cython.cclass
class Dispatcher:
    """Runs the command of a call as the call's policy says."""

    keyspace: Keyspace
    effects: Effects
    stats: Stats
    timing: Timing
    auth: Authorization
    write_gate: WriteGate
    registry: RuleRegistry
    rule_marker: RuleMarker

    def __init__(
        self,
        keyspace: Keyspace,
        effects: Effects,
        stats: Stats,
        timing: Timing,
        auth: Authorization,
        write_gate: WriteGate,
    ) -> None:
        self.keyspace = keyspace
        self.effects = effects
        self.stats = stats
        self.timing = timing
        self.auth = auth
        self.write_gate = write_gate
        self.registry = keyspace.rule_registry
        self.rule_marker = RuleMarker(self.registry)

    @cython.ccall
    @cython.nonecheck(False)  # all that is read here is set before the first request
    @cython.exceptval(-1, check=False)
    def run(self, call: Call, row: CommandRow) -> cython.int:
        """Run the row's command with the call's session, arguments, time and reply.

        Afterwards the command has replied, with an error if it failed, or its session waits. Returns 0,
        because an int is cheaper to check for an exception than void.

        Raises:
            Exception: any that the command raised, if the call's policy does not make it the reply.
        """
        keyspace: Keyspace = self.keyspace
        policy: CallerPolicy = call.policy
        argv: list[bytes] = call.argv
        mark: cython.Py_ssize_t = call.reply.mark()
        effects: cython.Py_ssize_t = len(self.effects.items)
        since: cython.longlong = self.timing.last_reading_ns
        call.command = row.command
        call.database = keyspace.databases[call.session.database]
        keyspace.counts_lookups = row.readonly
        if policy.counted_in_stats:
            row.calls += 1
            self.stats.command_count += 1
        try:
            row.run(call)
        except Exception as exception:
            if policy.counted_in_stats:
                row.failed_calls += 1
            call.reply.rewind(mark)
            if not policy.replies_with_errors:
                raise
            self.reply_error(call.session, error_replies.command_error(exception, row.command))
        if not policy.replies_with_errors:
            return 0
        if len(self.effects.items) != effects:
            call.session.last_write_offset = self.effects.log_offset
        changes: list[bytes] = call.argv  # a command may have replaced its request by what it does
        call.argv = argv
        if self.timing.must_record_runs:
            self.timing.record_run(call, row, since)
        if self.registry.streams and row.command.write:
            self.rule_marker.after_command(call.database, row.command, changes)
        return 0

    @cython.ccall
    def run_again(self, call: Call, row: CommandRow, waiter: Waiter) -> cython.bint:
        """Try the blocked request again; return whether it has replied.

        The call, of policy WAITER_POLICY, has the waiter's session, request and database.
        """
        session: Session = call.session
        mark: cython.Py_ssize_t = call.reply.mark()
        effects: cython.Py_ssize_t = self.effects.next_index()
        since: cython.longlong = self.timing.last_reading_ns
        served: bool
        self.keyspace.counts_lookups = row.readonly
        try:
            self._check_again(call, row)
            served = waiter.serve(call)
        except Exception as exception:
            served = True
            row.failed_calls += 1
            call.reply.rewind(mark)
            self.reply_error(session, error_replies.command_error(exception, row.command))
        if self.effects.next_index() != effects:
            session.last_write_offset = self.effects.log_offset
        if served:
            self.timing.record_unblocked(row, since)
            if self.registry.streams and row.command.write:
                self.rule_marker.after_command(call.database, row.command, call.argv)
        return served

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _check_again(self, call: Call, row: CommandRow) -> cython.int:
        """Raise CommandError if the blocked request may no longer run."""
        error: CommandError | None = None
        if call.session.restricted_user is not None:
            error = self.auth.permission_error(call.session, row.command, call.argv, call.now)
        if error is None and self.write_gate.may_reject:
            error = self.write_gate.error_for(call.session, row, call.argv)
        if error is not None:
            raise error
        return 0

    @cython.ccall
    def reply_error(self, session: Session, error: CommandError) -> cython.void:
        """Reply with the error, and count it."""
        text = error_replies.wire_text(error)
        self.stats.count_error(text)
        session.reply.error(text)
