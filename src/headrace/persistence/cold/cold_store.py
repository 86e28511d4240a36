"""Cold files as the store of an engine's cold storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.keyspace.cold_storage import RunStore
from headrace.persistence.cold.cold_files import ColdFiles


class ColdStore(RunStore):
    """A RunStore whose places are those of ColdFiles. Any thread may write and load."""

    def __init__(self, files: ColdFiles) -> None:
        self.files = files

    def write(self, runs: Sequence[Sequence[tuple[bytes, bytes]]]) -> list[Any]:
        """Store runs durably, as ColdFiles.write() does."""
        return list(self.files.write(runs))

    def load(self, place: Any) -> Sequence[tuple[bytes, bytearray]]:
        """Return keys and listpacks of a run. Raises DamagedColdRun."""
        return self.files.read(place)

    def file_of(self, place: Any) -> Any:
        """Return the ColdFile of this place."""
        return place.file

    def remove_unreferenced(self) -> int:
        """Remove the files that nothing refers to; return how many."""
        return self.files.remove_unreferenced()

    def is_stale(self, place: Any) -> bool:
        """Return whether most of the file with this place is dead, and nothing is appended to it."""
        return self.files.is_stale(place.file)

    def has_stale_files(self) -> bool:
        """Return whether a run is in such a file."""
        return self.files.has_stale()

    def file_count(self) -> int:
        """Return the number of files."""
        return self.files.totals().files

    def stored_bytes(self) -> int:
        """Return the bytes of all files."""
        return self.files.totals().bytes
