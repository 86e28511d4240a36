"""Detect copies of an archive: they have its table ID, so the server cannot distinguish them.

The original and the copy have the same table ID, and each table ID has one watermark. If a job archived to
the copy, it would raise the watermark of the original. `headrace trim` would then remove entries that the
original lacks. An archive that was moved keeps its ID, too, but its previous place has no table any more.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from headrace.archive.delta_log import explain_table_errors
from headrace.archive.files import existing_table
from headrace.archive.location import ArchiveLocation, archive_location, is_same_store_url
from headrace.archive.watermark import Watermark, percent_encoded_location
from headrace.errors import HeadraceError, UsageError

log = logging.getLogger(__name__)


def check_not_copy(
    location: ArchiveLocation, table: str, watermarks: Iterable[tuple[str, Watermark]]
) -> None:
    """Reject an archive if another place has the same table; warn if it was at another place before.

    Args:
        location: Where a job archives to.
        table: The ID of the table there.
        watermarks: The watermarks of its streams, each with the stream's name.

    Raises:
        UsageError: if the archive is a copy.
    """
    places = {each.location for _, each in watermarks if each.table_id == table and each.location}
    for place in sorted(places):
        if is_same_place(place, location):
            continue
        if table_id_at(place, location) == table:
            raise UsageError(
                f"{location} is a copy of the archive {place}, or the other way around: both have the table "
                f"ID {table}, so the server takes them for one. Archive to {place}; or run headrace trim "
                f"--release {place} first, and never archive to that one again. A second archive begins in "
                "an empty directory"
            )
        log.warning(
            "The archive %s was at %s until now. If it still exists there, one of both is a copy: archive to "
            "one of them only.",
            location,
            place,
        )


def is_same_place(published: str, location: ArchiveLocation) -> bool:
    """Return whether a published location, of which only the end may be known, is this one."""
    if percent_encoded_location(published) == percent_encoded_location(str(location)):
        return True
    if not location.is_local:
        return is_same_store_url(published, location.uri)
    try:
        return os.path.samefile(published, location.path)  # a symbolic link, or another mount
    except (OSError, ValueError):
        return False


def table_id_at(place: str, location: ArchiveLocation) -> str | None:
    """Return the ID of the table at a published location; None if there is none, or it cannot be read.

    The store of the other archive is opened with the options of this one.
    """
    try:
        other = archive_location(place)
        if not other.is_local:
            other = ArchiveLocation(other.uri, location.options)
        elif not os.path.isabs(place):
            return None  # only the end of a long text was published
        with explain_table_errors(other):
            found = existing_table(other)
        return None if found is None else str(found.metadata().id)
    except (HeadraceError, OSError):
        return None
