"""A Spark data source over streams: batch and streaming, Arrow all the way."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.lag import progress
    from headrace.spark.marker import Marker
    from headrace.spark.sender import write_batches, write_stream
    from headrace.spark.source import HeadraceSource

__all__ = ["HeadraceSource", "Marker", "progress", "register", "write_batches", "write_stream"]

# Loaded on first use: the decoder and the planner need no PySpark, and this module must be light.
LATE = {
    "HeadraceSource": "headrace.spark.source",
    "Marker": "headrace.spark.marker",
    "progress": "headrace.spark.lag",
    "write_batches": "headrace.spark.sender",
    "write_stream": "headrace.spark.sender",
}


def register(spark: SparkSession) -> None:
    """Make format("headrace") known to a session that does not find it by itself (`--py-files`)."""
    from headrace.spark.source import HeadraceSource

    spark.dataSource.register(HeadraceSource)


def __getattr__(name: str) -> Any:
    """What LATE names."""
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(LATE[name]), name)
