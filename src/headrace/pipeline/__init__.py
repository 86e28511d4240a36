"""Jobs between files, streams, archives and Spark: load, archive, trim, replay, query.

    headrace.pipeline.load("orders.csv", stream="orders")
    headrace.pipeline.archive("orders", to="archive/orders")
    headrace.pipeline.trim("orders")
    headrace.pipeline.replay("orders", into="orders-test", archive="archive/orders")

Each function does what the command of its name does, without printing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.pipeline.archive_job import ArchiveResult, archive
    from headrace.pipeline.load_file import LoadResult
    from headrace.pipeline.load_job import load
    from headrace.pipeline.query_progress import BatchProgress
    from headrace.pipeline.replay_entries import ReplayResult
    from headrace.pipeline.replay_job import replay
    from headrace.pipeline.trim_job import trim
    from headrace.pipeline.trim_streams import TrimResult

__all__ = [
    "ArchiveResult",
    "BatchProgress",
    "LoadResult",
    "ReplayResult",
    "TrimResult",
    "archive",
    "load",
    "replay",
    "trim",
]

# Imported on first use: importing this package must be cheap, and trim and replay do not need PySpark.
LAZY_IMPORTS = {
    "ArchiveResult": "headrace.pipeline.archive_job",
    "BatchProgress": "headrace.pipeline.query_progress",
    "LoadResult": "headrace.pipeline.load_file",
    "ReplayResult": "headrace.pipeline.replay_entries",
    "TrimResult": "headrace.pipeline.trim_streams",
    "archive": "headrace.pipeline.archive_job",
    "load": "headrace.pipeline.load_job",
    "replay": "headrace.pipeline.replay_job",
    "trim": "headrace.pipeline.trim_job",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
