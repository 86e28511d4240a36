"""Read the ID of the first entry from a reply of XINFO STREAM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def first_entry_id(about: Mapping[str, Any]) -> Any:
    """Return the ID of the first entry as the reply has it; None if the stream is empty.

    The entry itself is null in the reply of Headrace if its cold file is damaged. The ID is known then, too.
    """
    entry = about["first-entry"]
    if entry:
        return entry[0]
    return about.get("recorded-first-entry-id") if about.get("cold-error") else None
