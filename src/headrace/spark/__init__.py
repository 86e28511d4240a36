"""A Spark data source and sink for streams: batch and streaming, in Arrow record batches."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.archive_offsets import offsets_after_archive
    from headrace.spark.errors import explain
    from headrace.spark.sink.marker import Marker
    from headrace.spark.sink.sender import write_batches, write_stream
    from headrace.spark.source.data_loss import DataLoss
    from headrace.spark.source.data_source import HeadraceSource
    from headrace.spark.source.lag import progress

__all__ = [
    "DataLoss",
    "HeadraceSource",
    "Marker",
    "explain",
    "offsets_after_archive",
    "progress",
    "register",
    "write_batches",
    "write_stream",
]

# Imported on first use: importing this package must not import PySpark.
LAZY_IMPORTS = {
    "DataLoss": "headrace.spark.source.data_loss",
    "HeadraceSource": "headrace.spark.source.data_source",
    "Marker": "headrace.spark.sink.marker",
    "explain": "headrace.spark.errors",
    "offsets_after_archive": "headrace.spark.archive_offsets",
    "progress": "headrace.spark.source.lag",
    "write_batches": "headrace.spark.sink.sender",
    "write_stream": "headrace.spark.sink.sender",
}


def register(spark: SparkSession) -> None:
    """Register format("headrace") with a session, and check that Spark's Python workers can import it.

    Call it where Spark does not find the format automatically: in a virtual environment that is not activated
    (`.venv/bin/python job.py`, an IDE, a notebook), and with `--py-files`. Elsewhere it does no harm.
    If Spark runs on this machine and PYSPARK_PYTHON is not set, the session's Python workers, including
    those of UDFs, run the interpreter of this program from now on.

    Args:
        spark: the session.

    Raises:
        HeadraceError: if the Python of Spark's workers cannot import Headrace; the text says what to set.
    """
    from headrace.spark.interpreter import check_interpreter, use_this_interpreter
    from headrace.spark.source.data_source import HeadraceSource

    use_this_interpreter(spark)
    check_interpreter(spark)
    spark.dataSource.register(HeadraceSource)


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
