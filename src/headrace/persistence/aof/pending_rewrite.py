"""The state of a log rewrite that has begun and is not finished."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.persistence.aof.manifest import ManifestLine


@dataclass
class PendingRewrite:
    """A running rewrite. The caller writes the new base to the file `temporary` and syncs it."""

    temporary: str
    rdb: bool
    base: ManifestLine
    incr: ManifestLine
    offset: int  # in the bytes given to commit(): the base contains the records before it
    usable: bool = True  # False after a failed sync of the records written since
    failure: str = ""  # why finish_rewrite() returned False
