"""Write the file from which Spark's JVM maps its classes.

    python -m headrace.pipeline.shared_classes_writer

`make install` does this. A small job runs in a JVM, which at its exit writes the classes that it has loaded:
150 MB, in about half a minute. Sessions of `local_spark` use the file from then on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from rich.console import Console

from headrace.errors import HeadraceError
from headrace.pipeline.spark_session.class_data_sharing import (
    QUIET_JVM_OPTIONS,
    java_options,
    shared_classes_file,
)
from headrace.pipeline.spark_session.local_spark import local_spark

WRITE_TIMEOUT_SECONDS = 600.0  # for the JVM to write the file at its exit, on a busy machine


class ClassesNotUsed(HeadraceError):
    """The installed Java ignores the file, so writing it again would not help."""


def write_shared_classes(path: Path) -> None:
    """Write the file, with the classes that a small job loads.

    Raises:
        HeadraceError: if the JVM does not start, or neither writes nor uses the file.
        OSError: if the directory cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spark-", dir=path.parent) as scratch:
        written = Path(scratch) / path.name
        options = f"-XX:ArchiveClassesAtExit={written} {QUIET_JVM_OPTIONS}"
        log = Path(scratch) / "log"
        with local_spark("shared classes", log, java=options, exit_seconds=WRITE_TIMEOUT_SECONDS) as spark:
            spark.sparkContext.parallelize([1, 2], 2).map(lambda n: n + 1).collect()
            spark.range(10).groupBy((F.col("id") % 2).alias("odd")).count().collect()
            stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
            query = stream.writeStream.format("noop").option("checkpointLocation", f"{scratch}/state")
            query.trigger(once=True).start().awaitTermination()
            jvm: Any = spark._jvm
            get = jvm.java.lang.System.getProperty
            java, class_path = get("java.home"), get("java.class.path")
        if not written.exists():
            raise HeadraceError(f"the JVM did not write its classes: {log.read_text()[-500:].strip()}")
        check_cds_archive_usable(written, java, class_path)
        os.replace(written, path)


def check_cds_archive_usable(path: Path, java: str, class_path: str) -> None:
    """Raise ClassesNotUsed if a JVM with Spark's class path ignores the file.

    Java 21 ignores it, because Spark's class path names slf4j-api twice, and the file has it once.
    """
    command = [f"{java}/bin/java", "-cp", class_path, "-XX:+UseSerialGC", f"-XX:SharedArchiveFile={path}"]
    tried = subprocess.run([*command, "-Xshare:on", "-version"], capture_output=True, text=True)
    if tried.returncode:
        raise ClassesNotUsed(f"the Java in {java} does not use prepared classes")


def not_used_marker_file(path: Path) -> Path:
    """Return the path of the marker file: if it exists, this Java ignores such files, and none is written."""
    return path.with_suffix(".unused")


def main() -> int:
    """Write the file unless it exists or would not be used. Returns 0 even on errors: Spark needs no file."""
    console = Console(highlight=False)
    path = shared_classes_file()
    if path is None or java_options(path) or not_used_marker_file(path).exists():
        return 0
    try:
        with console.status("Preparing faster starts of Spark"):
            write_shared_classes(path)
    except (HeadraceError, OSError) as error:
        console.print(f"Spark will start as usual, not faster: {error}", soft_wrap=True)
        if isinstance(error, ClassesNotUsed):
            with suppress(OSError):
                not_used_marker_file(path).write_text(f"{error}\n")
        return 0
    console.print(f"Spark starts faster by {path}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
