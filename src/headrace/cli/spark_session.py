"""The Spark session of a command: its start is announced before it begins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from headrace.pipeline.local_spark import local_spark

STARTING = "Starting Spark…"


@contextmanager
def announced_spark(name: str, log: Path, zone: str = "UTC") -> Iterator[SparkSession]:
    """Start a Spark session that ends with the block; say so on stderr before the wait begins.

    Args:
        name: the name of the Spark application.
        log: the file for what the JVM and its workers write.
        zone: the time zone of the session.
    """
    errors = Console(stderr=True, highlight=False)
    with ExitStack() as stack:
        if errors.is_terminal:
            with errors.status(STARTING):  # a spinner, removed when Spark is there
                spark = stack.enter_context(local_spark(name, log, zone))
        else:
            print(STARTING, file=sys.stderr, flush=True)
            spark = stack.enter_context(local_spark(name, log, zone))
        yield spark
