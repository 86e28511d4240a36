"""What the files of a log are called, as Redis calls them.

<data directory>/appendonly.aof                            the single file of Redis before 7.0
<data directory>/appendonlydir/appendonly.aof.manifest     which of the others count, in which order
                              /appendonly.aof.2.base.rdb   everything up to some moment, as a snapshot
                              /appendonly.aof.2.base.aof   or as commands
                              /appendonly.aof.3.incr.aof   what was done since
                              /temp-appendonly.aof...      being written; worth nothing until renamed
"""

from __future__ import annotations

TEMPORARY = "temp-"


class LogFileNames:
    """The names for one appenddirname and appendfilename.

    manifest, temporary_manifest and single_file are names for Files, from the data directory on. base_name()
    and incr_name() are file names as they stand in the manifest; path() makes names for Files of them.
    """

    def __init__(self, directory: str = "appendonlydir", base: str = "appendonly.aof") -> None:
        self.directory = directory
        self.base = base
        self.single_file = base
        self.manifest = self.path(f"{base}.manifest")
        self.temporary_manifest = self.path(f"{TEMPORARY}{base}.manifest")

    def path(self, name: str) -> str:
        """Where a file of the log is."""
        return f"{self.directory}/{name}"

    def base_name(self, sequence: int, rdb: bool) -> str:
        """A base: a snapshot, or commands."""
        return f"{self.base}.{sequence}.base.{'rdb' if rdb else 'aof'}"

    def incr_name(self, sequence: int) -> str:
        """A file commits are appended to."""
        return f"{self.base}.{sequence}.incr.aof"

    def base_number(self, name: str) -> int:
        """The sequence with which base_name() gave that name; 0 if it never does."""
        sequence = name.removeprefix(f"{self.base}.").partition(".")[0]
        number = int(sequence) if sequence.isdecimal() else 0
        return number if name in (self.base_name(number, True), self.base_name(number, False)) else 0

    def is_incr(self, name: str) -> bool:
        """Whether incr_name() gave that name."""
        sequence = name.removeprefix(f"{self.base}.").removesuffix(".incr.aof")
        return sequence.isdecimal() and name == self.incr_name(int(sequence))

    def temporary(self, name: str) -> str:
        """Where a file is written that shall get that name once it is whole."""
        return self.path(f"{TEMPORARY}{name}")

    def is_temporary(self, name: str) -> bool:
        """Whether a file in the log's directory is what is left of one that was never finished."""
        return name.startswith(f"{TEMPORARY}{self.base}.")
