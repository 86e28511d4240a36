"""Requests of signal handlers and other threads to the running server: stop, reopen the log, wake."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress


class RunControl:
    """What was requested of the server. Its methods are thread-safe, and signal handlers may call them."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        """Create the socket pair that wakes the event loop.

        Args:
            interrupt: makes the event loop return after the current turn; thread-safe and signal-safe.
        """
        self._interrupt = interrupt
        self.stopping = False  # the server ends after the current turn
        self.shutdown_requested = False
        self.shutdown_reason = ""  # for the log
        self.shutdown_signals = 0  # requests of the shutdown that has not been executed yet
        self.log_reopen_requested = False  # of the file of log messages
        self._sender, self._receiver = socket.socketpair()
        self._sender.setblocking(False)
        self._receiver.setblocking(False)

    def wake(self) -> None:
        """End the wait of the event loop."""
        with suppress(OSError):  # it is already awake, or closed
            self._sender.send(b".")

    def stop(self) -> None:
        """End the server after the current turn, without a snapshot."""
        self.stopping = True
        self._interrupt()
        self.wake()

    def request_shutdown(self, reason: str = "a request") -> None:
        """Shut down, as SHUTDOWN does, after the current turn.

        Args:
            reason: what requested it, such as the name of a signal; for the log.
        """
        self.shutdown_reason = reason
        self.shutdown_requested = True
        self.shutdown_signals += 1
        self._interrupt()
        self.wake()

    def request_log_reopen(self) -> None:
        """Reopen the file of log messages after the current turn."""
        self.log_reopen_requested = True
        self._interrupt()
        self.wake()

    def is_ending(self) -> bool:
        """Return whether a stop or a shutdown was requested."""
        return self.stopping or self.shutdown_requested

    # For the server's own thread.

    @property
    def wake_sender(self) -> int:
        """The descriptor that wakes the event loop when a byte is written to it."""
        return self._sender.fileno()

    @property
    def wake_receiver(self) -> int:
        """The descriptor that is readable after wake()."""
        return self._receiver.fileno()

    def drain(self) -> None:
        """Read what wake() has sent."""
        self._receiver.recv(4096)

    def close(self) -> None:
        """Close both descriptors."""
        self._sender.close()
        self._receiver.close()
