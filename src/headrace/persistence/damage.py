"""The errors for files and payloads that cannot be loaded: damaged, or with data of other types."""

from __future__ import annotations

from headrace.errors import HeadraceError


class Damaged(HeadraceError):
    """A file, or a part of one, that no server can have written.

    offset is where the damage was found, in bytes from the start of the file. Callers that know the file's
    name add it.
    """

    def __init__(self, offset: int, what: str, file: str = "", advice: str = "") -> None:
        super().__init__(offset, what)
        self.offset = offset
        self.what = what
        self.file = file
        self.advice = advice

    def __str__(self) -> str:
        where = f"{self.file}, at byte {self.offset}" if self.file else f"at byte {self.offset}"
        return f"{where}: {self.what}" + (f"; {self.advice}" if self.advice else "")


class ForeignDataError(Damaged):
    """Valid data of types that Headrace does not hold. The file is not damaged, and is never truncated."""
