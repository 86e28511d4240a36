"""Runs the command of a call for a script: a class in C of the engine, which scripts/ cannot import."""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.stats import CommandRow


@cython.cclass
class RowRunner:
    """The engine, as the runner of scripts sees it."""

    @cython.ccall
    def run_script_call(self, call: Call, row: CommandRow) -> cython.void:
        """Run the command of a script, whose checks it has passed; its reply is in the call's writer."""
        raise NotImplementedError
