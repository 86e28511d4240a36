"""The state of a log rewrite that has begun and is not finished."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.persistence.aof.manifest import ManifestLine
from headrace.persistence.cold.cold_references import ColdReferences


@dataclass
class PendingRewrite:
    """A running rewrite. The caller writes the new base to the file at `temporary_path` and syncs it.

    rdb: whether the base is a snapshot. incr: the incremental file that follows the base.
    """

    temporary_path: str
    rdb: bool
    base: ManifestLine
    incr: ManifestLine
    offset: int  # in the bytes given to commit(): the base contains the records before it
    usable: bool = True  # False after a failed sync of the records written since
    failure: str = ""  # why finish_rewrite() returned False
    # The cold runs that the new base refers to: rdb_steps() adds them. Their files are kept as long as this
    # object. None: the base must not refer to any.
    cold_references: ColdReferences | None = None
