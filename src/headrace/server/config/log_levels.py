"""The levels of log messages, by their names in the `loglevel` directive."""

from __future__ import annotations

import logging

NOTICE = 25  # between INFO and WARNING: normal events that operators want to see
LEVELS = {
    "debug": logging.DEBUG,
    "verbose": logging.INFO,
    "notice": NOTICE,
    "warning": logging.WARNING,
    "nothing": logging.CRITICAL + 1,
}
logging.addLevelName(NOTICE, "NOTICE")
