"""The classes of Spark's JVM in a file, written by a JVM and used by another one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipeline.spark_session.class_data_sharing import java_options, shared_classes_file

WRITE = """
import pathlib, sys
from headrace.pipeline.shared_classes_writer import write_shared_classes
write_shared_classes(pathlib.Path(sys.argv[1]))
"""
START = """
import pathlib, sys
from headrace.pipeline.spark_session.local_spark import local_spark
with local_spark("test", pathlib.Path(sys.argv[1]), java=sys.argv[2]) as spark:
    print(spark.range(3).count())
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)


def java_version() -> int:
    """Return the version of the Java of the PATH: 17."""
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "(\d+)', said)
    assert found is not None, said
    return int(found[1])


@pytest.mark.whole
@pytest.mark.slow
def test_a_jvm_maps_the_classes_that_another_one_has_written(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "spark.jsa"
    done = run(WRITE, str(path))
    if java_version() >= 21 and done.returncode:
        assert "does not use prepared classes" in done.stderr
        assert list(path.parent.iterdir()) == [], "no file that every start would read in vain"
        return
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert list(path.parent.iterdir()) == [path]
    # With -Xshare:on a JVM that cannot map the file does not start.
    done = run(START, str(tmp_path / "log"), f"{java_options(path)} -Xshare:on")
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


@pytest.mark.whole
@pytest.mark.slow
def test_a_file_that_does_not_fit_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "spark.jsa"
    path.write_bytes(b"not such a file")
    done = run(START, str(tmp_path / "log"), java_options(path))
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_only_a_file_of_this_user_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "spark.jsa"
    assert java_options(None) == java_options(path) == ""
    path.touch()
    assert java_options(path).startswith(f"-XX:SharedArchiveFile={path} ")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert java_options(path) == ""


def test_each_java_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for name in ("one", "two"):
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.touch()
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / name))
        found.add(shared_classes_file())
    assert len(found) == 2 and None not in found
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "missing"))
    assert shared_classes_file() is None
