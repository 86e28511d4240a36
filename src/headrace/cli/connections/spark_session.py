"""Start the Spark session of a command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from headrace.pipeline.spark_session import job_spark
from headrace.pipeline.spark_session.local_spark import local_spark
from headrace.spark.decode.misfits import MisfitCounts

STARTING_SPARK_MESSAGE = "Starting Spark…"


@contextmanager
def announced_spark(name: str, log: Path, zone: str = "UTC", quiet: bool = False) -> Iterator[SparkSession]:
    """Start a Spark session, stopped at the end of the block; print a line on stderr before the start.

    Args:
        name: The name of the Spark application.
        log: The file for the output of the JVM and its workers.
        zone: The time zone of the session.
        quiet: Whether to print nothing.
    """
    errors = Console(stderr=True, highlight=False, quiet=quiet)
    with ExitStack() as stack:
        if errors.is_terminal:
            with errors.status(STARTING_SPARK_MESSAGE):  # a spinner, removed when Spark has started
                spark = stack.enter_context(local_spark(name, log, zone))
        else:
            if not quiet:
                print(STARTING_SPARK_MESSAGE, file=sys.stderr, flush=True)
            spark = stack.enter_context(local_spark(name, log, zone))
        yield spark


def scratch_spark(
    name: str,
    zone: str = "UTC",
    on_misfits: Callable[[MisfitCounts], object] | None = None,
    quiet: bool = False,
) -> AbstractContextManager[SparkSession]:
    """Return a Spark session, started and announced at the beginning of the block; its log is temporary.

    Args:
        name: The name of the Spark application.
        zone: The time zone of the session.
        on_misfits: Called after Spark has stopped with the number of values that did not fit, by column.
        quiet: Whether to print nothing about the start.
    """
    return job_spark.scratch_spark(name, zone, on_misfits, partial(announced_spark, quiet=quiet))
