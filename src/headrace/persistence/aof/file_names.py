"""The names of the files of a log, which are those of Redis.

<data directory>/appendonly.aof                            the single file of Redis before 7.0
<data directory>/appendonlydir/appendonly.aof.manifest     the list of the files that are read, in order
                              /appendonly.aof.2.base.rdb   the data at some moment, as a snapshot
                              /appendonly.aof.2.base.aof   or as commands
                              /appendonly.aof.3.incr.aof   the records since then
                              /temp-appendonly.aof...      incomplete, not read until it is renamed
                              /cold/3.cold                 runs of nodes, to which a base may refer
                              /cold/3.cold.stored          its name in an object store, which has it
                              /cold/store-identity         the text that the store must have, too
                              /cold/owner                  the identity of the log that names these files
                              /cold/headrace.lock          locked by the process that uses them
"""

from __future__ import annotations

TEMPORARY_PREFIX = "temp-"
COLD_DIRECTORY_NAME = "cold"
STORE_IDENTITY = "store-identity"
COLD_OWNER = "owner"
MANIFEST_SUFFIX = ".manifest"


class LogFileNames:
    """The file names for one appenddirname and appendfilename; `base` is the appendfilename.

    manifest, temporary_manifest and single_file are relative to the data directory. base_name() and
    incr_name() return names as in the manifest; path() makes them relative to the data directory.
    """

    def __init__(self, directory: str = "appendonlydir", base: str = "appendonly.aof") -> None:
        self.directory = directory
        self.prefix = base
        self.single_file = base
        self.cold_directory = self.path(COLD_DIRECTORY_NAME)
        self.manifest = self.path(base + MANIFEST_SUFFIX)
        self.temporary_manifest = self.path(f"{TEMPORARY_PREFIX}{base}.manifest")

    def path(self, name: str) -> str:
        """Return the path of a file of the log, relative to the data directory."""
        return f"{self.directory}/{name}"

    def cold_path(self, name: str) -> str:
        """Return the path of a cold file, relative to the data directory."""
        return f"{self.cold_directory}/{name}"

    def base_name(self, sequence: int, rdb: bool) -> str:
        """Return the name of a base: a snapshot (rdb) or commands."""
        return f"{self.prefix}.{sequence}.base.{'rdb' if rdb else 'aof'}"

    def incr_name(self, sequence: int) -> str:
        """Return the name of an incremental file, to which commits are appended."""
        return f"{self.prefix}.{sequence}.incr.aof"

    def base_number(self, name: str) -> int:
        """Return the sequence number in the name of a base; 0 if it is not one."""
        sequence = name.removeprefix(f"{self.prefix}.").partition(".")[0]
        number = int(sequence) if sequence.isdecimal() else 0
        return number if name in (self.base_name(number, True), self.base_name(number, False)) else 0

    def is_other_manifest(self, name: str) -> bool:
        """Return whether this is the name of a manifest of another log in the same directory."""
        is_manifest = name.endswith(MANIFEST_SUFFIX) and not name.startswith(TEMPORARY_PREFIX)
        return is_manifest and self.path(name) != self.manifest

    def is_incr(self, name: str) -> bool:
        """Return whether this is the name of an incremental file."""
        sequence = name.removeprefix(f"{self.prefix}.").removesuffix(".incr.aof")
        return sequence.isdecimal() and name == self.incr_name(int(sequence))

    def temporary_path(self, name: str) -> str:
        """Return the path at which a file is written before it is renamed to this name."""
        return self.path(f"{TEMPORARY_PREFIX}{name}")

    def is_temporary(self, name: str) -> bool:
        """Return whether this is the name of a temporary file of the log."""
        return name.startswith(f"{TEMPORARY_PREFIX}{self.prefix}.")
