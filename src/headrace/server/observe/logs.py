"""The message log: lines of text or JSON, on standard error or in a file that may be rotated.

2026-03-01 09:30:00,125 WARNING maxclients is 4032: the system allows no more ...
{"time": "2026-03-01T09:30:00.125Z", "level": "warning", "pid": 7, "message": "maxclients is 4032: ..."}
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime

from headrace.console.escaping import EscapingFormatter, json_text, truncated_log_message
from headrace.errors import HeadraceError
from headrace.server.config.config import Config
from headrace.server.config.log_levels import LEVELS, NOTICE


class JsonLineFormatter(logging.Formatter):
    """One object a line: time in UTC, level, pid, message, and the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, without its newline."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "pid": record.process,
            "message": truncated_log_message(record.getMessage())
            .encode("utf-8", "backslashreplace")
            .decode(),
        }
        if record.exc_info:
            lines = self.formatException(record.exc_info).split("\n")
            fields["exception"] = "\n".join(map(truncated_log_message, lines))
        return json_text(fields)


def json_line(level: int, message: str) -> str:
    """Return a line as log-format json writes it, for standard output."""
    record = logging.LogRecord("headrace", level, "", 0, message, None, None)
    return JsonLineFormatter().format(record)


class MessageLogFile(logging.FileHandler):
    """The file named by logfile. Before each line it is opened again if it was moved or removed.

    If it cannot be opened or written, the error is printed once, on standard error.
    """

    last_error = ""  # the last error printed

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line."""
        try:
            if not self._is_current():
                self.reopen()
        except OSError as wrong:
            self._report(wrong)
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Report an error in writing a line."""
        wrong = sys.exc_info()[1]
        if isinstance(wrong, OSError):
            self._report(wrong)
        else:
            super().handleError(record)

    def _report(self, wrong: OSError) -> None:
        if self.last_error != wrong.strerror and sys.stderr is not None:
            error = self.last_error = wrong.strerror or ""
            with suppress(OSError):
                print(f"headrace: cannot write logfile {self.baseFilename}: {error}", file=sys.stderr)

    def _is_current(self) -> bool:
        """Return whether the open file still has its name."""
        if self.stream is None:  # it is about to be opened
            return True
        try:
            return os.path.samestat(os.stat(self.baseFilename), os.fstat(self.stream.fileno()))
        except FileNotFoundError:
            return False

    def reopen(self) -> None:
        """Open the file that has the name now. Raises OSError; then the old file stays open."""
        fresh = self._open()
        self.acquire()
        try:
            self.stream, old = fresh, self.stream
        finally:
            self.release()
        self.last_error = ""
        with suppress(OSError):  # bytes for which the disk had no space
            old.close()


def start_message_log(config: Config) -> None:
    """Send the log to the configured file, or to standard error. Raises HeadraceError."""
    path = config.text("logfile")
    handler: logging.Handler
    try:
        handler = (
            MessageLogFile(path, errors="backslashreplace") if path else logging.StreamHandler(sys.stderr)
        )
    except OSError as wrong:
        raise HeadraceError(f"cannot write logfile {path}: {wrong.strerror}") from None
    logger = logging.getLogger("headrace")
    for old in logger.handlers:
        old.close()
    logger.handlers[:] = [handler]
    logger.propagate = False
    apply_message_log_config(config)


def apply_message_log_config(config: Config) -> None:
    """Apply loglevel and log-format."""
    logger = logging.getLogger("headrace")
    logger.setLevel(LEVELS[config.text("loglevel")])
    text = EscapingFormatter("%(asctime)s %(levelname)s %(message)s")
    for handler in logger.handlers:
        handler.setFormatter(JsonLineFormatter() if config.text("log-format") == "json" else text)


def reopen_message_log() -> None:
    """Reopen the file, as logrotate requests by SIGHUP. On standard error it does nothing."""
    logger = logging.getLogger("headrace")
    for handler in logger.handlers:
        if isinstance(handler, MessageLogFile):
            try:
                handler.reopen()
                logger.log(NOTICE, "logfile %s reopened", handler.baseFilename)
            except OSError as wrong:
                logger.error("cannot reopen logfile %s: %s", handler.baseFilename, wrong.strerror)
