"""A Spark data source over streams: batch and streaming, Arrow all the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.source import HeadraceSource

__all__ = ["HeadraceSource", "register"]


def register(spark: SparkSession) -> None:
    """Make format("headrace") known to a session that does not find it by itself (`--py-files`)."""
    from headrace.spark.source import HeadraceSource

    spark.dataSource.register(HeadraceSource)


def __getattr__(name: str) -> Any:
    """HeadraceSource, loaded on first use: the decoder and the planner need no PySpark."""
    if name != "HeadraceSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headrace.spark.source import HeadraceSource

    return HeadraceSource
