"""Whether the files of the log are where they were.

Somebody can remove them, or move the directory, under a running server: it goes on writing to files without a
name, which nobody will ever read. Once that is noticed, nothing is safe but what is in memory: writes are
refused, and the log is written anew, in a directory that is made anew if need be; unless the data directory
itself is another one now, where somebody else may be at work.
"""

from __future__ import annotations

import errno
import os

from headrace.errors import HeadraceError
from headrace.persistence.aof.log import Log
from headrace.persistence.files import Files
from headrace.server.durability import Durability
from headrace.server.saving import Saving

LOOK_MS = 1000  # so long can what is acknowledged be in memory only


class Whereabouts:
    """Looks once a second, while there is anything to do."""

    def __init__(self, files: Files, durability: Durability, saving: Saving) -> None:
        self.files = files
        self.durability = durability
        self.saving = saving
        self.looked_ms = 0

    def look(self, now: int) -> None:
        """Have the log written anew if a file is missing."""
        log = self.durability.log
        if log is None or log.trouble or self.durability.beginning or 0 <= now - self.looked_ms < LOOK_MS:
            return
        self.looked_ms = now
        if why := self._missing(log):
            self.saving.drop_rewrite()
            log.distrust(why)
            self.durability.tick(now)

    def _missing(self, log: Log) -> str:
        """What is not there of that which the next start needs; empty when all is."""
        try:
            self.files.check_lock()
        except HeadraceError as gone:
            return str(gone)
        names = log.names
        for path in [names.manifest, *(names.path(line.file) for line in log.manifest.read_lines())]:
            if not self.files.exists(path):
                return f"{path}: {os.strerror(errno.ENOENT)}"
        return ""
