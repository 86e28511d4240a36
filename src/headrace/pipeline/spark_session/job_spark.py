"""Choose the Spark session of a job: the caller's, this process's, or a local one for the job alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.pipeline.shared.interrupts import defer_interrupts
from headrace.pipeline.spark_session.local_spark import local_spark, spark_errors_explained
from headrace.spark import register
from headrace.spark.decode.misfits import MisfitCounts, read_misfit_counts, set_misfits_directory

# Starts a session: the name of the application, its log file, the time zone.
StartSpark = Callable[[str, Path, str], AbstractContextManager[SparkSession]]


@contextmanager
def job_spark(
    name: str,
    given: SparkSession | None,
    zone: str = "UTC",
    on_misfits: Callable[[MisfitCounts], object] | None = None,
) -> Iterator[SparkSession]:
    """Yield the session for a job. A session that existed before is not stopped.

    Args:
        name: The name of the job.
        given: The caller's session; None for the active one of this process. If there is none, a local
            session is started for the block.
        zone: The time zone of a local session.
        on_misfits: See scratch_spark(). The tasks of a session that existed before log these counts instead.

    Raises:
        HeadraceError: if Spark cannot be started or fails, or the Python of its workers has no Headrace.
    """
    if given is None and SparkContext._active_spark_context is not None:
        given = SparkSession.builder.getOrCreate()
    if given is None:
        with scratch_spark(name, zone, on_misfits) as spark:
            yield spark
        return
    with defer_interrupts(), spark_errors_explained():
        register(given)
        yield given


@contextmanager
def scratch_spark(
    name: str,
    zone: str = "UTC",
    on_misfits: Callable[[MisfitCounts], object] | None = None,
    start: StartSpark = local_spark,
) -> Iterator[SparkSession]:
    """Start a Spark session whose log is in a temporary directory.

    Args:
        name: The name of the Spark application.
        zone: The time zone of the session.
        on_misfits: Called after Spark has stopped with the number of values that did not fit, by column.
        start: Starts the session.
    """
    with ExitStack() as stack:
        prefix = f"{name.replace(' ', '-')}-"
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix=prefix)))
        if on_misfits is not None:
            stack.enter_context(set_misfits_directory(scratch))
            stack.callback(lambda: on_misfits(read_misfit_counts(scratch)))
        yield stack.enter_context(start(name, scratch / "spark.log", zone))
