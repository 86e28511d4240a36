"""Find which Python Spark runs for its workers, and check that it can import Headrace.

    lookup of the format         a process that the JVM starts at the first format("…") of a session
    which Python it runs         PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else python3 of the PATH; read
                                 from the environment of the JVM, so nothing can change it once Spark runs
    a registered format          the Python in SparkContext.pythonExec (set at its start: PYSPARK_PYTHON,
                                 else python3), for planning, reading and writing

So the workers of a program that runs as `.venv/bin/python job.py`, in an IDE or in a notebook, run another
Python than the program. On one machine `use_this_interpreter` corrects that, also in an existing session. For
a cluster only the user knows the path of Python on its nodes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PYTHON_VARIABLE = "PYSPARK_PYTHON"
DRIVER_PYTHON_VARIABLE = "PYSPARK_DRIVER_PYTHON"
REQUIRED_PACKAGES = ("headrace", "redis", "pyarrow")  # PySpark itself comes with Spark
PRINT_MISSING_PROGRAM = (
    "import sys, importlib.util; print(*(n for n in sys.argv[1:] if importlib.util.find_spec(n) is None))"
)
CHECK_TIMEOUT_S = 60.0


def use_this_interpreter(spark: SparkSession) -> None:
    """Run the Python workers of a session on this machine with the interpreter of this program.

    Do nothing if PYSPARK_PYTHON is set, on a cluster, or under Spark Connect.
    """
    context = _spark_context(spark)
    if context is not None and PYTHON_VARIABLE not in os.environ and _is_local(context) and sys.executable:
        context.pythonExec = sys.executable


def check_interpreter(spark: SparkSession) -> None:
    """Check that the Python of Spark's workers can import Headrace.

    Raises:
        HeadraceError: if it cannot; the text says what to set.
    """
    context = _spark_context(spark)
    if context is None or context.pythonExec == sys.executable:
        return
    missing = missing_packages(context.pythonExec, _shipped_files(context))
    if missing:
        where = sys.executable if _is_local(context) else "a Python with headrace on every node"
        raise HeadraceError(
            f"Spark runs {shutil.which(context.pythonExec)} for its Python workers, which lacks "
            f"{', '.join(missing)}: set {PYTHON_VARIABLE}={where} in the environment before Spark starts."
        )


def missing_packages(python: str, path: list[str] | None = None) -> list[str]:
    """Return the packages that an interpreter lacks for the source and the sink.

    Args:
        python: its name or path.
        path: further entries of its PYTHONPATH.

    Returns:
        The names of the missing packages; an empty list if the interpreter cannot be run.
    """
    found = shutil.which(python)
    if found is None:
        return []
    given = os.environ.get("PYTHONPATH", "")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [given, *(path or [])]))}
    try:
        done = subprocess.run(
            [found, "-c", PRINT_MISSING_PROGRAM, *REQUIRED_PACKAGES],
            env=environment, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []  # Spark reports its own error about it
    return done.stdout.split()


def _spark_context(spark: SparkSession) -> Any:
    """Return the SparkContext; None under Spark Connect, where the server runs the workers."""
    return getattr(spark, "_sc", None)


def _is_local(context: SparkContext) -> bool:
    return str(context.master).startswith("local")


def _shipped_files(context: SparkContext) -> list[str]:
    """Return the files that `--py-files` and addPyFile() have sent to the workers."""
    from pyspark import SparkFiles

    root = SparkFiles.getRootDirectory()
    return [os.path.join(root, name) for name in context._python_includes or ()]
