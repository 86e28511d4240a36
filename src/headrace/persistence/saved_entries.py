"""Read the file in which a former primary has saved entries that its new primary lacks.

It has SELECT commands, and one XADD for each entry, in the form of the log:

SELECT 0
XADD orders 4-0 amount 7
XADD orders NOMKSTREAM 5-0 amount 8         NOMKSTREAM: the new primary may have had the entry and removed it
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from headrace.errors import CommandError, HeadraceError, UsageError, os_error_text
from headrace.persistence.aof.reader import LogReader
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DiskDirectory

MAYBE_REMOVED_OPTION = b"NOMKSTREAM"  # the option of XADD that says so


@dataclass
class SavedEntry:
    """An entry of the file."""

    database: int
    key: bytes
    id: bytes
    fields: list[bytes]
    maybe_removed: bool  # the new primary may have had it, and removed it


def xadd_arguments(entry: SavedEntry) -> list[bytes]:
    """Return the XADD command of an entry, as the file has it."""
    option = [MAYBE_REMOVED_OPTION] if entry.maybe_removed else []
    return [b"XADD", entry.key, *option, entry.id, *entry.fields]


def read_saved_entries(path: str, visit: Callable[[SavedEntry], None]) -> None:
    """Call visit(entry) for each entry of the file, in order.

    Raises:
        UsageError: if the file has other commands, or is damaged.
        HeadraceError: if it cannot be read, or ends within an entry.
    """
    database = 0

    def execute(words: list[bytes]) -> bytes | None:
        nonlocal database
        name = words[0].upper()
        if name == b"SELECT" and len(words) == 2 and words[1].isdigit():
            database = int(words[1])
            return None
        maybe_removed = words[2:3] == [MAYBE_REMOVED_OPTION]
        id_at = 3 if maybe_removed else 2
        fields = words[id_at + 1 :]
        if name != b"XADD" or not fields or len(fields) % 2:
            raise CommandError("it is not XADD with an ID and fields")
        visit(SavedEntry(database, words[1], words[id_at], fields, maybe_removed))
        return None

    directory = DiskDirectory(os.path.dirname(os.path.abspath(path)))
    try:
        with closing(directory.open_source(os.path.basename(path))) as source:
            result = LogReader(source, path, execute).run()
    except OSError as error:
        raise HeadraceError(f"{path}: {os_error_text(error)}") from error
    except Damaged as damage:
        where = f"at byte {damage.offset:,}: {damage.what}"  # without the advice to cut off a log
        raise UsageError(f"{path} is not a file of saved entries, or is damaged: {where}") from None
    if result.cut_within:
        raise HeadraceError(
            f"{path} ends within an entry, at byte {result.valid_end:,}: it was not completed"
        )
