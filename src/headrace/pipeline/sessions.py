"""A Spark of one's own on this machine: quiet, small, and gone without a trace when it is closed.

What the JVM and its Python workers would write on the terminal goes to a log file instead.
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
from headrace.pipeline.interrupts import hold, interrupts_held, raise_if_noted
from headrace.spark import register
from headrace.spark.errors import as_headrace_error
from headrace.spark.interpreter import DRIVER_PYTHON, PYTHON, missing_packages

CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# What spark-submit tells the program that it starts: where its JVM listens.
SUBMITTED = "PYSPARK_GATEWAY_PORT"

# How long the JVM may take to leave by itself.
GOODBYE_SECONDS = 10.0

LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


def settings(scratch: Path, zone: str) -> dict[str, str]:
    """What differs from Spark's defaults, and why."""
    java = f"-Dlog4j2.configurationFile={(scratch / 'log4j2.properties').as_uri()} -Djava.io.tmpdir={scratch}"
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
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }


@contextmanager
def local_spark(name: str, log: Path, zone: str = "UTC") -> Iterator[SparkSession]:
    """A session that ends with the block: the JVM has left and its scratch files are deleted.

    Under spark-submit it is the session of that, with its own settings. Ctrl-C within the block is raised by
    `progress.follow`, or when the block ends.
    """
    if SUBMITTED in os.environ:
        with interrupts_held():
            builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", zone)
            with builder.getOrCreate() as spark, spark_errors_explained():
                hold()
                register(spark)
                yield spark
        return
    scratch = Path(tempfile.mkdtemp(prefix="headrace-spark-"))
    try:
        (scratch / "log4j2.properties").write_text(LOGGING)
        with interrupts_held(), logging_to(log):
            spark = start(name, settings(scratch, zone), log)
            try:
                with spark_errors_explained():
                    hold()
                    raise_if_noted()
                    yield spark
            finally:
                stop(spark)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def spark_errors_explained() -> Iterator[None]:
    """Convert errors of Spark's to errors of one line, while the JVM, which has their text, is there."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise as_headrace_error(error) from error


def start(name: str, conf: dict[str, str], log: Path) -> SparkSession:
    """Start the JVM with its stderr on the log file, and the session in it."""
    if SparkContext._active_spark_context is not None:
        raise HeadraceError("this process has a Spark session already; stop it first")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise HeadraceError(
            "Spark needs Java 17 or later, and there is none (no java on the PATH, no JAVA_HOME)"
        )
    choose_interpreter()
    if SparkContext._gateway is not None:
        # The JVM of a session that was stopped: it has another log and another environment.
        end_jvm(SparkContext._gateway)
    builder = SparkSession.builder.appName(name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    with stderr_on(log), utf8_locale():
        return builder.getOrCreate()


def choose_interpreter() -> None:
    """Have Spark run its Python workers with this interpreter, or with the one that the user has set.

    PYSPARK_DRIVER_PYTHON is replaced: it may be `jupyter` or `ipython`, which cannot run workers.

    Raises:
        UsageError: if the one that the user has set has no Headrace.
    """
    python = os.environ.setdefault(PYTHON, sys.executable)
    os.environ[DRIVER_PYTHON] = python
    if python != sys.executable and (missing := missing_packages(python)):
        raise UsageError(
            f"{PYTHON} is {python}, which has no {', '.join(missing)}: "
            f"unset it, or set it to {sys.executable}"
        )


def stop(spark: SparkSession) -> None:
    """Stops the session and waits until the JVM has left; one that does not leave is killed."""
    gateway: Any = spark.sparkContext._gateway
    # Whatever fails here fails because the JVM is gone or will be in a moment.
    with suppress(Exception):
        spark.stop()
    end_jvm(gateway)


def end_jvm(gateway: Any) -> None:
    """Shut down the JVM of a gateway, which PySpark starts again for the next session."""
    jvm: subprocess.Popen[bytes] = gateway.proc
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if jvm.stdin is not None:
        jvm.stdin.close()
    try:
        jvm.wait(GOODBYE_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


@contextmanager
def logging_to(log: Path) -> Iterator[None]:
    """What Python libraries log goes to the file: stacks of failures that the exceptions tell as well."""
    handler = logging.FileHandler(log)
    logging.getLogger().addHandler(handler)
    # These of PySpark's write on stderr by themselves.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


@contextmanager
def utf8_locale() -> Iterator[None]:
    """Start processes within in a locale of UTF-8: without one a JVM writes no other letters into paths."""
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
def stderr_on(log: Path) -> Iterator[None]:
    """What is started within writes its stderr to the file, and goes on doing so afterwards."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
