"""The library without PySpark, PyArrow or DuckDB: what works, and what the errors say."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Makes importing the named packages fail, as if they were not installed.
BLOCK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import headrace
db = headrace.open()
orders = db.stream("orders")
orders.add({{"customer": "ann", "cents": 5}})
"""


def run(missing: tuple[str, ...], program: str) -> str:
    """Run a program in a process without these packages; return what it prints."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    code = BLOCK.format(names=set(missing)) + program
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_tables_and_sql_need_no_pyspark() -> None:
    program = """
import pyarrow as pa
schema = pa.schema([("cents", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us"))])
orders.add({"day": "2026-03-01", "at": "2026-03-01"})
print(db.sql("SELECT sum(cents)::INT AS cents FROM orders").to_pylist())
print(orders.to_arrow(schema).num_rows, pa.table(orders.arrow_batches()).num_rows)
print([name for name in sys.modules if name.startswith(("pyspark", "headrace.spark", "headrace.pipeline"))])
"""
    assert run(("pyspark", "py4j"), program) == "[{'cents': 5}]\n2 2\n[]"


def test_sql_over_an_archive_needs_no_pyspark() -> None:
    program = """
import tempfile
from support.archives import ArchiveMaker
maker = ArchiveMaker(tempfile.mkdtemp())
maker.add("orders", [("1-0", {"customer": "ann", "cents": 2})], reached={"orders": "1-0"})
print(db.sql("SELECT sum(cents)::INT AS cents FROM orders", archive=maker.directory).to_pylist())
print([name for name in sys.modules if name.startswith(("pyspark", "headrace.spark", "headrace.pipeline"))])
"""
    assert run(("pyspark", "py4j"), program) == "[{'cents': 7}]\n[]"


def test_without_deltalake_an_error_says_what_to_install() -> None:
    program = """
try:
    db.sql("SELECT * FROM orders", archive="archive")
except headrace.HeadraceError as error:
    print(error)
"""
    assert (
        run(("deltalake",), program)
        == "archives need the packages deltalake and pyarrow: pip install deltalake pyarrow"
    )


@pytest.mark.parametrize("call", ["to_arrow()", "arrow_batches()"])
def test_without_pyarrow_an_error_says_what_to_install(call: str) -> None:
    program = f"""
try:
    orders.{call}
except headrace.HeadraceError as error:
    print(error)
"""
    assert run(("pyarrow",), program) == "Arrow tables need pyarrow: pip install 'headrace[arrow]'"


@pytest.mark.parametrize("package", ["duckdb", "pyarrow"])
def test_without_duckdb_an_error_says_what_to_install(package: str) -> None:
    program = """
try:
    db.sql("SELECT * FROM orders")
except headrace.HeadraceError as error:
    print(error)
"""
    shown = "SQL on streams needs duckdb and pyarrow: pip install 'headrace[sql]'"
    assert run((package,), program) == shown
