"""The state of a log rewrite that has begun and is not finished."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.persistence.aof.manifest import ManifestLine


@dataclass
class PendingRewrite:
    """A rewrite under way: write a base that describes this moment to `temporary`, and sync it."""

    temporary: str
    rdb: bool
    base: ManifestLine
    incr: ManifestLine
    offset: int  # of the records given before: the base holds them
    usable: bool = True  # not after a failed sync of what was written since
    failure: str = ""  # why finish_rewrite() said no
