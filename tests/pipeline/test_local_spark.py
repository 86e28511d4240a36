"""The Spark session of a job, in separate processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

AFTER_ANOTHER = """
import os, sys, pathlib
from pyspark.sql import SparkSession
from headrace.pipeline.local_spark import local_spark

SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate().stop()
os.environ["SET_AFTERWARDS"] = "yes"
with local_spark("test", pathlib.Path(sys.argv[1])) as spark:
    print(spark.sparkContext._jvm.System.getenv("SET_AFTERWARDS"))
"""


def test_a_session_after_a_stopped_one_has_the_current_environment(tmp_path: Path) -> None:
    """PySpark keeps the JVM of a stopped session, which has the environment and stderr of its start."""
    command = [sys.executable, "-c", AFTER_ANOTHER, str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "yes\n"), done.stderr
