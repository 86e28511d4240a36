"""The Spark session of a job, in separate processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

AFTER_ANOTHER = """
import os, sys, pathlib
from pyspark.sql import SparkSession
from headrace.pipeline.spark_session.local_spark import local_spark

SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate().stop()
os.environ["SET_AFTERWARDS"] = "yes"
with local_spark("test", pathlib.Path(sys.argv[1])) as spark:
    print(spark.sparkContext._jvm.System.getenv("SET_AFTERWARDS"))
"""


def test_a_session_after_a_stopped_one_has_the_current_environment(tmp_path: Path) -> None:
    """PySpark keeps the JVM of a stopped session, which has the environment and stderr of its start."""
    command = [sys.executable, "-c", AFTER_ANOTHER, str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert (done.returncode, done.stdout) == (0, "yes\n"), done.stderr


def test_spark_starts_where_no_server_knows_the_name_of_the_machine(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--uts", "true"]).returncode:
        pytest.skip("the name of the machine cannot be changed here")
    program = (
        "import sys, pathlib\n"
        "from headrace.pipeline.spark_session.local_spark import local_spark\n"
        "with local_spark('test', pathlib.Path(sys.argv[1])) as spark:\n"
        "    print('rows:', spark.range(3).count())\n"
    )
    shell = 'hostname a-name-that-no-server-knows && exec "$@"'
    words = [sys.executable, "-c", program, str(tmp_path / "log")]
    command = ["unshare", "--uts", "sh", "-c", shell, "-", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert "rows: 3" in done.stdout, done.stderr
