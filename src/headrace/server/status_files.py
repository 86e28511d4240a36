"""pidfile and port-file: they tell other programs that the server is ready, and where."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.server.config.config import Config


class StatusFiles:
    """The files that were written; they are removed at the end."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._written: list[str] = []

    def write(self, directive: str, text: str) -> None:
        """Write a line to the file that the directive names, atomically: other programs wait for it.

        Does nothing if the directive is empty. Raises HeadraceError if the file cannot be written.
        """
        path = self.config.text(directive)
        if not path:
            return
        try:
            Path(f"{path}.new").write_text(f"{text}\n")
            os.replace(f"{path}.new", path)
        except OSError as wrong:
            raise HeadraceError(f"cannot write {directive} {path}: {wrong.strerror}") from None
        if path not in self._written:
            self._written.append(path)

    def rewrite_if_written(self, directive: str, text: str) -> None:
        """Write the file again if it was written. Raises HeadraceError."""
        if self.config.text(directive) in self._written:
            self.write(directive, text)

    def remove(self) -> None:
        """Remove the files."""
        for path in self._written:
            Path(path).unlink(missing_ok=True)
        self._written.clear()
