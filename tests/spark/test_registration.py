"""How Spark finds the format: by its module name, by register(), from a zip, with Connect."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
import redis
from pyspark.sql.datasource import DataSource

ROOT = pathlib.Path(__file__).parent.parent.parent
BIN = pathlib.Path(sys.executable).parent
OURS = ("headrace", "pyspark_headrace", "redis", "cython", "hiredis", "__editable__")

JOB = """
import sys
from pyspark.sql import SparkSession

url, how = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
if how == "register":
    import headrace.spark

    headrace.spark.register(spark)
    print("driver:", headrace.__file__)
rows = spark.read.format("headrace").option("url", url).option("subscribe", "s").schema("n LONG").load()
print("sum:", rows.agg({"n": "sum"}).first()[0])

rows.write.format("headrace").option("url", url).option("stream", "copy").mode("append").save()
"""

CONNECT = """
import sys
from pyspark.sql import SparkSession

url, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
options = {"url": url, "subscribe": "s", "startingOffsets": "earliest"}
rows = spark.read.format("headrace").options(**options).schema("n LONG").load()
print("sum:", rows.agg({"n": "sum"}).first()[0])
rows.write.format("headrace").option("url", url).option("stream", "copy").mode("append").save()
live = spark.readStream.format("headrace").options(**options).schema("n LONG").load()
sink = live.writeStream.format("headrace").option("url", url).option("stream", "again")
query = sink.option("checkpointLocation", folder).trigger(availableNow=True).start()
print("ended:", query.awaitTermination(60))
"""


def test_pyspark_finds_the_format_by_the_name_of_a_module() -> None:
    import pyspark_headrace

    assert issubclass(pyspark_headrace.DefaultSource, DataSource)
    assert pyspark_headrace.DefaultSource.name() == "headrace"


def test_without_pyarrow_or_pyspark_other_formats_are_still_found() -> None:
    code = "import sys; sys.modules['pyspark.sql.datasource'] = None; import pyspark_headrace"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)


def python_without_headrace(folder: pathlib.Path) -> pathlib.Path:
    """A Python that has all that is installed here but headrace and what its zip brings along."""
    packages = folder / "packages"
    packages.mkdir()
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    for path in pathlib.Path(spec.origin).parent.parent.iterdir():
        if not path.name.lower().startswith(OURS):
            (packages / path.name).symlink_to(path)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


OTHER_PYTHON = """
import os
import sys
from pyspark.sql import SparkSession
import headrace.spark

url, how, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
if how == "nothing":
    try:
        spark.read.format("headrace").load()
    except Exception as error:
        print("explained:", headrace.spark.explain(error))
    raise SystemExit
try:
    headrace.spark.register(spark)
except headrace.HeadraceError as error:
    raise SystemExit(f"rejected: {error}")
options = {"url": url, "subscribe": "s", "startingOffsets": "earliest"}
rows = spark.read.format("headrace").options(**options).schema("n LONG").load()
print("sum:", rows.agg({"n": "sum"}).first()[0])

def write(df, batch):
    headrace.spark.write_stream(df, batch, url=url, stream="copy", query_id="q")

live = spark.readStream.format("headrace").options(**options).schema("n LONG").load()
each = live.writeStream.foreachBatch(write).option("checkpointLocation", folder + "/each")
sink = live.writeStream.format("headrace").option("url", url).option("stream", "again")
for writer in (each, sink.option("checkpointLocation", folder + "/sink")):
    writer.trigger(availableNow=True).start().awaitTermination(120)
"""


def run_beside_another_python(
    job: str, folder: pathlib.Path, *words: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a program whose virtual environment is not activated: python3 of the PATH has no headrace."""
    other = folder / "bin"
    other.mkdir()
    (other / "python3").symlink_to(python_without_headrace(folder))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON"))}
    env |= {"PATH": f"{other}{os.pathsep}{env['PATH']}", **more}
    return subprocess.run(
        [sys.executable, *([job] if job == "-m" else ["-c", job]), *words],
        cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.whole
def test_register_makes_spark_run_the_python_of_the_program(
    client: redis.Redis, server_url: str, tmp_path: pathlib.Path
) -> None:
    for n in range(100):
        client.xadd("s", {"n": n})
    done = run_beside_another_python(OTHER_PYTHON, tmp_path, server_url, "register", str(tmp_path))
    assert f"sum: {sum(range(100))}" in done.stdout, done.stdout + done.stderr
    assert [client.xlen(name) for name in ("copy", "again")] == [100, 100], done.stderr


@pytest.mark.slow
@pytest.mark.whole
def test_without_register_the_error_is_explained_by_what_to_do(
    server_url: str, tmp_path: pathlib.Path
) -> None:
    done = run_beside_another_python(OTHER_PYTHON, tmp_path, server_url, "nothing", str(tmp_path))
    assert "explained: Spark does not find the format headrace" in done.stdout, done.stdout + done.stderr
    assert f"PYSPARK_PYTHON={sys.executable}" in done.stdout


@pytest.mark.slow
@pytest.mark.whole
def test_register_rejects_a_chosen_python_without_headrace_in_one_line(
    server_url: str, tmp_path: pathlib.Path
) -> None:
    chosen = str(tmp_path / "bin" / "python3")
    done = run_beside_another_python(
        OTHER_PYTHON, tmp_path, server_url, "register", str(tmp_path), PYSPARK_PYTHON=chosen
    )
    output = f"rejected: Spark runs {chosen} for its Python workers, which lacks headrace, redis: set"
    assert done.stderr.splitlines()[-1].startswith(output), done.stderr
    assert f"PYSPARK_PYTHON={sys.executable} in the environment" in done.stderr


@pytest.mark.slow
@pytest.mark.whole
def test_a_command_runs_the_python_of_the_program_and_announces_spark(
    client: redis.Redis, server_url: str, tmp_path: pathlib.Path
) -> None:
    client.xadd("s", {"n": 7})
    words = ("headrace", "query", "SELECT n FROM s", "--engine", "spark", "--csv", "--url", server_url)
    done = run_beside_another_python("-m", tmp_path, *words, PYSPARK_DRIVER_PYTHON="jupyter")
    assert (done.returncode, done.stdout) == (0, "n\n7\n"), done.stderr
    assert done.stderr.startswith("Starting Spark…\n")


@pytest.mark.slow
@pytest.mark.whole
def test_a_command_rejects_a_chosen_python_without_headrace_in_one_line(
    server_url: str, tmp_path: pathlib.Path
) -> None:
    words = ("headrace", "query", "SELECT n FROM s", "--engine", "spark", "--csv", "--url", server_url)
    chosen = str(tmp_path / "bin" / "python3")
    done = run_beside_another_python("-m", tmp_path, *words, PYSPARK_PYTHON=chosen)
    assert done.returncode == 2
    expected = f"headrace: PYSPARK_PYTHON is {chosen}, which has no headrace, redis: unset it, or set it to "
    assert done.stderr.splitlines()[1:] == [expected + sys.executable]


def submit(python: pathlib.Path | str, job: str, folder: pathlib.Path, *words: str, **env: str) -> str:
    """What a job says that spark-submit runs, out and error."""
    file = folder / "job.py"
    file.write_text(job)
    command = [
        str(BIN / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false",
        "--conf", "spark.log.level=WARN", *words[:-2], str(file), *words[-2:],
    ]  # fmt: skip
    env = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "PYTHONPATH": "", **env}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("zip") / "headrace.zip"
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "py-files", file], check=True, stdout=subprocess.DEVNULL
    )
    return file


def test_the_zip_contains_only_sources_and_third_party_licences(zipped: pathlib.Path) -> None:
    with zipfile.ZipFile(zipped) as archive:
        names = archive.namelist()
    assert {
        "headrace/spark/source/data_source.py",
        "headrace/scripting/sandbox/api.lua",
        "pyspark_headrace.py",
        "redis/client.py",
        "cython.py",
    } <= set(names)
    assert not [name for name in names if name.endswith((".so", ".pyd", ".c"))]
    assert [name for name in names if "redis" in name and "LICENSE" in name]


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_py_files_run_interpreted_with_one_warning_a_worker(
    zipped: pathlib.Path, client: redis.Redis, server_url: str, tmp_path: pathlib.Path
) -> None:
    for n in range(100):
        client.xadd("s", {"n": n})
    python = python_without_headrace(tmp_path)
    output = submit(python, JOB, tmp_path, "--py-files", str(zipped), server_url, "register")
    assert f"sum: {sum(range(100))}" in output
    assert "headrace.zip" in next(line for line in output.splitlines() if line.startswith("driver:"))
    assert 1 <= output.count("headrace is not compiled here") <= 2, "once in a worker, and there are two"
    assert client.xlen("copy") == 100


@pytest.mark.slow
@pytest.mark.whole
def test_an_installed_package_needs_no_registration_and_logs_nothing(
    client: redis.Redis, server_url: str, tmp_path: pathlib.Path
) -> None:
    for n in range(100):
        client.xadd("s", {"n": n})
    path = os.pathsep.join(each for each in sys.path if each)
    output = submit(sys.executable, JOB, tmp_path, server_url, "nothing", PYTHONPATH=path)
    assert f"sum: {sum(range(100))}" in output and "not compiled" not in output
    assert client.xlen("copy") == 100


@pytest.mark.slow
@pytest.mark.whole
def test_connect_reads_and_writes_by_batch_and_by_streaming(
    client: redis.Redis, server_url: str, tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("grpc_status", reason="pip install 'pyspark[connect]'")
    for n in range(100):
        client.xadd("s", {"n": n})
    env = os.environ | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    env |= {"PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}  # which takes a free port
    output = subprocess.run(
        [sys.executable, "-c", CONNECT, server_url, str(tmp_path / "checkpoint")],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert output.returncode == 0, output.stdout + output.stderr
    assert f"sum: {sum(range(100))}" in output.stdout and "ended: True" in output.stdout
    assert [client.xlen(name) for name in ("copy", "again")] == [100, 100]
