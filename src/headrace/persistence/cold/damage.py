"""The error for a run of a cold file that cannot be read."""

from __future__ import annotations

from headrace.errors import HeadraceError


class DamagedColdRun(HeadraceError):
    """A run, or another part of a cold file, is missing, damaged or unreadable.

    `file` is relative to the data directory, `offset` in bytes from its start. `ids` names the entries that
    cannot be read, such as "1-0 to 5-3"; "" if unknown.
    """

    def __init__(self, file: str, offset: int, what: str, ids: str = "") -> None:
        super().__init__(file, offset, what, ids)
        self.file = file
        self.offset = offset
        self.what = what
        self.ids = ids

    def __str__(self) -> str:
        entries = f"the entries {self.ids} cannot be read: " if self.ids else ""
        return f"{entries}cold file {self.file}, at byte {self.offset}: {self.what}"
