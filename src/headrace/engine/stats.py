"""What the engine counts. Integers only: the hot path adds one here and there."""

from __future__ import annotations

from typing import Any

import cython

from headrace.commands.spec import Command
from headrace.engine.histogram import Histogram
from headrace.visibility import Public


@cython.final
@cython.cclass
class CommandRow:
    """A command of the table with this engine's counts of it, and its C fields close at hand."""

    command: Command
    run: Any
    arity: cython.int
    readonly: cython.bint
    is_plain: cython.bint  # no subcommands
    calls: Public[cython.longlong]
    rejected: Public[cython.longlong]  # refused before it ran
    failed: Public[cython.longlong]  # refused while it ran
    ns: Public[cython.longlong]  # nanoseconds in all, as far as requests are timed: see timing.py
    latencies: Public[Histogram | None]

    def __init__(self, command: Command) -> None:
        self.command = command
        self.run = command.run
        self.arity = command.arity
        self.readonly = command.readonly
        self.is_plain = not command.subcommands
        self.reset()

    @cython.ccall
    def reset(self) -> cython.void:
        """All counts to zero."""
        self.calls = 0
        self.rejected = 0
        self.failed = 0
        self.ns = 0
        self.latencies = None


@cython.final
@cython.cclass
class Stats:
    """This engine's counts since it was made or CONFIG RESETSTAT."""

    commands: Public[cython.longlong]  # that ran, those inside EXEC too
    connections: Public[cython.longlong]  # sessions ever made
    unblocked: Public[cython.longlong]
    error_replies: Public[cython.longlong]
    errors: dict[bytes, int]  # by the error's first word
    rows: list[CommandRow]  # every command and subcommand once

    def __init__(self) -> None:
        self.rows = []
        self.reset()

    @cython.ccall
    def reset(self) -> cython.void:
        """All counts to zero."""
        row: CommandRow
        self.commands = 0
        self.connections = 0
        self.unblocked = 0
        self.error_replies = 0
        self.errors = {}
        for row in self.rows:
            row.reset()

    @cython.ccall
    def count_error(self, text: bytes) -> cython.void:
        """An error with this text was answered."""
        code = text.partition(b" ")[0]
        self.error_replies += 1
        self.errors[code] = self.errors.get(code, 0) + 1
