"""The log: lines of text or of JSON, on standard error or in a file, which may be moved away.

2026-03-01 09:30:00,125 WARNING maxclients is 4032: the system allows no more ...
{"time": "2026-03-01T09:30:00.125Z", "level": "warning", "pid": 7, "message": "maxclients is 4032: ..."}
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime

from headrace.console.escaping import EscapingFormatter, json_text
from headrace.errors import HeadraceError
from headrace.server.config.config import Config

NOTICE = 25  # between INFO and WARNING: all is well, and the operator would like to know
LEVELS = {
    "debug": logging.DEBUG,
    "verbose": logging.INFO,
    "notice": NOTICE,
    "warning": logging.WARNING,
    "nothing": logging.CRITICAL + 1,
}
logging.addLevelName(NOTICE, "NOTICE")


class JsonLines(logging.Formatter):
    """One object a line: time in UTC, level, pid, message, and for a bug the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without its end."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "pid": record.process,
            "message": record.getMessage().encode("utf-8", "backslashreplace").decode(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json_text(fields)


class LogFile(logging.FileHandler):
    """What bears the name that logfile says when a line is written: a file moved or removed is left alone.

    While there is no such file to be had, or it takes no more, that is said on standard error, once.
    """

    last_error = ""  # of what went wrong

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line."""
        try:
            if not self._is_current():
                self.reopen()
        except OSError as wrong:
            self._report(wrong)
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """What went wrong with a line that was written."""
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
        """Whether the open file is still found under its name."""
        if self.stream is None:  # it is about to be opened
            return True
        try:
            return os.path.samestat(os.stat(self.baseFilename), os.fstat(self.stream.fileno()))
        except FileNotFoundError:
            return False

    def reopen(self) -> None:
        """Write to what bears the name now. OSError, and the old file stays."""
        fresh = self._open()
        self.acquire()
        try:
            self.stream, old = fresh, self.stream
        finally:
            self.release()
        self.last_error = ""
        with suppress(OSError):  # what it had no room for
            old.close()


def start_log(config: Config) -> None:
    """Send the log to the file that the configuration names, or to standard error. HeadraceError."""
    path = config.text("logfile")
    handler: logging.Handler
    try:
        handler = LogFile(path, errors="backslashreplace") if path else logging.StreamHandler(sys.stderr)
    except OSError as wrong:
        raise HeadraceError(f"cannot write logfile {path}: {wrong.strerror}") from None
    logger = logging.getLogger("headrace")
    for old in logger.handlers:
        old.close()
    logger.handlers[:] = [handler]
    logger.propagate = False
    apply_log(config)


def apply_log(config: Config) -> None:
    """Act on loglevel and log-format as they are now."""
    logger = logging.getLogger("headrace")
    logger.setLevel(LEVELS[config.text("loglevel")])
    text = EscapingFormatter("%(asctime)s %(levelname)s %(message)s")
    for handler in logger.handlers:
        handler.setFormatter(JsonLines() if config.text("log-format") == "json" else text)


def reopen_log() -> None:
    """Open the file anew, as logrotate asks for with SIGHUP. On standard error there is nothing to do."""
    logger = logging.getLogger("headrace")
    for handler in logger.handlers:
        if isinstance(handler, LogFile):
            try:
                handler.reopen()
                logger.log(NOTICE, "logfile %s opened anew", handler.baseFilename)
            except OSError as wrong:
                logger.error("cannot open logfile %s anew: %s", handler.baseFilename, wrong.strerror)
