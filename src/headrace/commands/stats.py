"""The engine's counters. They are plain integers, because the hot path increments them."""

from __future__ import annotations

from collections.abc import Callable

import cython

from headrace.commands.spec import Command
from headrace.limits import ERROR_CODE_BYTES_MAX, ERROR_CODES_MAX
from headrace.structures.histogram import Histogram
from headrace.visibility import Public


def reject_container(call: object) -> None:
    """Raise an error: a container without a subcommand is rejected before it runs."""
    raise AssertionError("a container has no function")


@cython.final
@cython.cclass
class CommandRow:
    """A command with this engine's counters, and copies of its fields as C types."""

    command: Command
    run: Callable[..., object]
    arity: cython.int
    readonly: cython.bint
    has_no_subcommands: cython.bint  # no subcommands
    may_read_entries: cython.bint  # it may read entries
    calls: Public[cython.longlong]
    rejected_calls: Public[cython.longlong]  # failed before it ran
    failed_calls: Public[cython.longlong]  # failed while it ran
    total_ns: Public[cython.longlong]  # total nanoseconds, if requests are timed: see timing.py
    latency_histogram: Public[Histogram | None]

    def __init__(self, command: Command) -> None:
        self.command = command
        self.run = command.run if command.run is not None else reject_container
        self.arity = command.arity
        self.readonly = command.readonly
        self.has_no_subcommands = not command.subcommands
        self.may_read_entries = command.group == "stream"
        self.reset()

    @cython.ccall
    def reset(self) -> cython.void:
        """Set all counters to zero."""
        self.calls = 0
        self.rejected_calls = 0
        self.failed_calls = 0
        self.total_ns = 0
        self.latency_histogram = None


@cython.final
@cython.cclass
class Stats:
    """The engine's counters since it was created or since CONFIG RESETSTAT."""

    command_count: Public[cython.longlong]  # executed, including those inside EXEC
    connection_count: Public[cython.longlong]  # sessions ever created
    unblocked_count: Public[cython.longlong]
    error_reply_count: Public[cython.longlong]
    errors_by_code: dict[bytes, int]  # by error code, the first word of the text
    rows: list[CommandRow]  # every command and subcommand once

    def __init__(self) -> None:
        self.rows = []
        self.reset()

    @cython.ccall
    def reset(self) -> cython.void:
        """Set all counters to zero."""
        row: CommandRow
        self.command_count = 0
        self.connection_count = 0
        self.unblocked_count = 0
        self.error_reply_count = 0
        self.errors_by_code = {}
        for row in self.rows:
            row.reset()

    @cython.ccall
    def count_error(self, text: bytes) -> cython.void:
        """Count an error reply with this text. Clients can invent codes: how many are kept is limited."""
        code = text.partition(b" ")[0]
        self.error_reply_count += 1
        if code in self.errors_by_code:
            self.errors_by_code[code] += 1
        elif len(self.errors_by_code) < ERROR_CODES_MAX and len(code) <= ERROR_CODE_BYTES_MAX:
            self.errors_by_code[code] = 1
