"""The interface by which a running script calls the engine. ScriptRunner implements it; so do tests."""

from __future__ import annotations

import cython

from headrace.resp.writer import ReplyWriter
from headrace.visibility import Public


@cython.cclass
class ScriptHost:
    """Runs the commands of scripts. Compiled code calls call() in C, the other methods through Python."""

    command_reply: Public[ReplyWriter]  # where call() writes; cleared before each call

    def __init__(self) -> None:
        self.command_reply = ReplyWriter()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def call(self, argv: list[bytes], protocol: cython.int) -> cython.int:
        """Run a command; write its reply, an error included, to `command_reply`. Return 0; raise nothing."""
        raise NotImplementedError

    def check_interrupt(self) -> tuple[bytes | None, float]:
        """Return the error that ends the script now, if any, and the seconds until the next check."""
        raise NotImplementedError

    def may_run(self, argv: list[bytes]) -> bool | None:
        """Return whether the user may run the command; None if it does not exist."""
        raise NotImplementedError

    def log(self, level: int, text: bytes) -> None:
        """Write a line to the server's log."""
        raise NotImplementedError

    def set_replication(self, flags: int) -> None:
        """Set where the following effects go: the flags of redis.set_repl(), 0 for nowhere."""
        raise NotImplementedError

    def register_function(self, name: bytes, flags: int, description: bytes | None) -> None:
        """Register a function of the library being loaded."""
        raise NotImplementedError
