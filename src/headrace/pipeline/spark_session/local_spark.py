"""Run a local Spark session whose JVM and scratch files are removed when it is closed.

The JVM and its Python workers write to a log file instead of the terminal.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.shared.interrupts import (
    defer_interrupts,
    install_signal_handlers,
    raise_if_interrupted,
)
from headrace.pipeline.spark_session.class_data_sharing import java_options, shared_classes_file
from headrace.spark import register
from headrace.spark.errors import as_headrace_error
from headrace.spark.interpreter import DRIVER_PYTHON_VARIABLE, PYTHON_VARIABLE, missing_packages

CHECKPOINT_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

# The environment variable in which spark-submit gives the port of its JVM.
GATEWAY_PORT_VARIABLE = "PYSPARK_GATEWAY_PORT"

JVM_EXIT_SECONDS = 10.0  # how long to wait for the JVM to exit before it is killed

LOG4J_PROPERTIES = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


def spark_settings(scratch: Path, zone: str, java: str) -> dict[str, str]:
    """Return the settings that differ from Spark's defaults."""
    java += f" -Dlog4j2.configurationFile={(scratch / 'log4j2.properties').as_uri()}"
    java += f" -Djava.io.tmpdir={scratch}"
    cores = os.cpu_count() or 1
    return {
        "spark.master": f"local[{cores},4]",  # the 4: a task may fail three times
        "spark.driver.extraJavaOptions": f"{java} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": zone,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        # The default writer of checkpoints spends 40 ms on each small local file; this one spends 5.
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILE_MANAGER,
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }


@contextmanager
def local_spark(
    name: str,
    log: Path,
    zone: str = "UTC",
    *,
    java: str | None = None,
    exit_seconds: float = JVM_EXIT_SECONDS,
) -> Iterator[SparkSession]:
    """Start a Spark session that ends with the block; then the JVM has exited and its files are deleted.

    Under spark-submit the block gets the submitted session, with its own settings. Ctrl-C within the block is
    raised by `query_progress.follow_batches`, or when the block ends.

    Args:
        name: The name of the Spark application.
        log: The file for the log of the JVM and of its Python workers.
        zone: The time zone of the session.
        java: Options of the JVM about shared classes; None to use the file of shared_classes_writer if any.
        exit_seconds: How long the JVM may take to exit before it is killed.

    Raises:
        UsageError: if PYSPARK_PYTHON is an interpreter without Headrace.
        HeadraceError: if Java is missing, this process has a session already, or Spark fails in the block.
    """
    if GATEWAY_PORT_VARIABLE in os.environ:
        with defer_interrupts():
            builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", zone)
            with builder.getOrCreate() as spark, spark_errors_explained():
                install_signal_handlers()
                register(spark)
                yield spark
        return
    scratch = Path(tempfile.mkdtemp(prefix="headrace-spark-"))
    try:
        (scratch / "log4j2.properties").write_text(LOG4J_PROPERTIES)
        with defer_interrupts(), python_logs_to(log):
            java = java_options(shared_classes_file()) if java is None else java
            spark = start_session(name, spark_settings(scratch, zone, java), log)
            try:
                with spark_errors_explained():
                    install_signal_handlers()
                    raise_if_interrupted()
                    yield spark
            finally:
                stop_session(spark, exit_seconds)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def spark_errors_explained() -> Iterator[None]:
    """Convert Spark's errors to errors of one line while the JVM, which holds their text, is running."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise as_headrace_error(error) from error


def start_session(name: str, conf: dict[str, str], log: Path) -> SparkSession:
    """Start the JVM with its stderr redirected to the log file, and a session in it.

    Raises:
        UsageError: if PYSPARK_PYTHON is an interpreter without Headrace.
        HeadraceError: if this process has a session already, or Java is missing.
    """
    if SparkContext._active_spark_context is not None:
        raise HeadraceError("this process has a Spark session already; stop it first")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise HeadraceError(
            "Spark needs Java 17 or later, and none was found: put java on the PATH or set JAVA_HOME"
        )
    set_python_interpreter()
    if SparkContext._gateway is not None:
        # The JVM of a stopped session has another log and another environment.
        end_jvm(SparkContext._gateway)
    builder = SparkSession.builder.appName(name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    # Otherwise Spark looks up the name of this machine, and fails where no server knows it.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with stderr_redirected_to(log), utf8_locale():
        return builder.getOrCreate()


def set_python_interpreter() -> None:
    """Make Spark run its Python workers with this interpreter, or with the one that the user has set.

    PYSPARK_DRIVER_PYTHON is replaced: it may be `jupyter` or `ipython`, which cannot run workers.

    Raises:
        UsageError: if the interpreter that the user has set lacks Headrace or a package it needs.
    """
    python = os.environ.setdefault(PYTHON_VARIABLE, sys.executable)
    os.environ[DRIVER_PYTHON_VARIABLE] = python
    if python != sys.executable and (missing := missing_packages(python)):
        raise UsageError(
            f"{PYTHON_VARIABLE} is {python}, which has no {', '.join(missing)}: "
            f"unset it, or set it to {sys.executable}"
        )


def stop_session(spark: SparkSession, exit_seconds: float) -> None:
    """Stop the session and wait until the JVM has exited; kill it if it does not exit in time."""
    gateway: Any = spark.sparkContext._gateway
    # Any failure here means that the JVM has exited or is about to.
    with suppress(Exception):
        spark.stop()
    end_jvm(gateway, exit_seconds)


def end_jvm(gateway: Any, exit_seconds: float = JVM_EXIT_SECONDS) -> None:
    """Shut down the JVM of a gateway; PySpark starts another one for the next session."""
    jvm: subprocess.Popen[bytes] = gateway.proc
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if jvm.stdin is not None:
        jvm.stdin.close()
    try:
        jvm.wait(exit_seconds)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


@contextmanager
def python_logs_to(log: Path) -> Iterator[None]:
    """Send the logs of Python libraries to the file: they repeat the stack traces of raised exceptions."""
    handler = logging.FileHandler(log)
    logging.getLogger().addHandler(handler)
    # These loggers of PySpark write to stderr themselves.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


@contextmanager
def utf8_locale() -> Iterator[None]:
    """Set a UTF-8 locale for processes started in the block: without it a JVM writes only ASCII paths."""
    before = os.environ.get("LC_ALL")
    locale = before or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
    if "utf-8" in locale.lower() or "utf8" in locale.lower():
        yield
        return
    os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        if before is None:
            del os.environ["LC_ALL"]
        else:
            os.environ["LC_ALL"] = before


@contextmanager
def stderr_redirected_to(log: Path) -> Iterator[None]:
    """Redirect the stderr of this process to the file in the block.

    Processes that are started there keep it for as long as they run.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
