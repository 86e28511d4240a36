"""Collect the cold runs to which a new base file of the log refers; reject those that cannot be read.

A run is in the log twice until the next rewrite: its entries were logged when they were added, and its cold
file has them. The rewrite drops the first copy. It must not do so if the second one cannot be read.

    file   0 ................... logged_from_offset ......... size
           runs of the present base             runs whose entries are also in the log
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import DamagedColdRun
from headrace.persistence.cold.cold_files import ColdFile
from headrace.persistence.cold.run_place import RunPlace

ONLY_LOGGED_MESSAGE = "it cannot be read, and only the log has its entries: a restart loads them from there"


class ColdReferences:
    """The runs to which a base refers: for each file, the end of the last one. Iterating gives the files."""

    def __init__(self) -> None:
        self._ends: dict[ColdFile, int] = {}

    def add(self, place: RunPlace) -> None:
        """Add a run.

        Raises:
            DamagedColdRun: if the last read of it failed, and the log still has its entries.
        """
        file = place.file
        if place.offset in file.unreadable_offsets and place.offset >= file.logged_from_offset:
            raise DamagedColdRun(file.path, place.offset, ONLY_LOGGED_MESSAGE)
        self._ends[file] = max(self._ends.get(file, 0), place.offset + place.size)

    def __iter__(self) -> Iterator[ColdFile]:
        return iter(self._ends)

    def on_base_adopted(self) -> None:
        """Record in each file that the base is in use: the log no longer has the entries of these runs."""
        for file, end in self._ends.items():
            file.logged_from_offset = max(file.logged_from_offset, end)
