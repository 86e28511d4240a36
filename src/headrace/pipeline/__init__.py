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
    from headrace.pipeline.archiving.job import ArchiveResult, archive
    from headrace.pipeline.loading.file_load import LoadResult
    from headrace.pipeline.loading.job import load
    from headrace.pipeline.replaying.job import replay
    from headrace.pipeline.replaying.replay_entries import ReplayResult
    from headrace.pipeline.spark_session.query_progress import BatchProgress
    from headrace.pipeline.trimming.job import release, trim
    from headrace.pipeline.trimming.trim_streams import TrimResult

__all__ = [
    "ArchiveResult",
    "BatchProgress",
    "LoadResult",
    "ReplayResult",
    "TrimResult",
    "archive",
    "load",
    "release",
    "replay",
    "trim",
]

# Imported on first use: importing this package must be cheap, and trim and replay do not need PySpark.
LAZY_IMPORTS = {
    "ArchiveResult": "headrace.pipeline.archiving.job",
    "BatchProgress": "headrace.pipeline.spark_session.query_progress",
    "LoadResult": "headrace.pipeline.loading.file_load",
    "ReplayResult": "headrace.pipeline.replaying.replay_entries",
    "TrimResult": "headrace.pipeline.trimming.trim_streams",
    "archive": "headrace.pipeline.archiving.job",
    "load": "headrace.pipeline.loading.job",
    "release": "headrace.pipeline.trimming.job",
    "replay": "headrace.pipeline.replaying.job",
    "trim": "headrace.pipeline.trimming.job",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
