"""Find the file from which Spark's JVM maps its classes, so that it starts in half the time.

    .venv/var/headrace/spark-<digest>.jsa      the classes, parsed and verified: of this Java and this PySpark
    ~/.cache/headrace/spark-<digest>.jsa       the same outside of a virtual environment

`shared_classes_writer` writes the file. The JVM checks it, and ignores a file that does not match. Java calls
this application class data sharing (AppCDS).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pyspark

QUIET_JVM_OPTIONS = (
    "-Xlog:disable -Xlog:all=error:stderr"  # no warnings about the file, which would go to stdout
)


def shared_classes_file() -> Path | None:
    """Return the path of the file for the Java and the PySpark of this process.

    None without Java, or if the path has a space: Spark splits the options of the JVM at spaces.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if home is None else os.path.join(home, "bin", "java")
    if java is None or not os.path.exists(java):
        return None
    program, jars = Path(java).resolve(), Path(pyspark.__file__).parent / "jars"
    parts = [pyspark.__version__, *(f"{path} {path.stat().st_mtime_ns}" for path in (program, jars))]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    if sys.prefix != sys.base_prefix:
        directory = Path(sys.prefix) / "var"
    else:
        directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = directory / "headrace" / f"spark-{digest}.jsa"
    return None if " " in str(found) else found


def java_options(path: Path | None) -> str:
    """Return the options of a JVM that uses a file; empty if it does not exist, or is not this user's."""
    try:
        is_ours = path is not None and path.stat().st_uid == os.geteuid()
    except OSError:
        return ""
    return f"-XX:SharedArchiveFile={path} {QUIET_JVM_OPTIONS}" if is_ours else ""
