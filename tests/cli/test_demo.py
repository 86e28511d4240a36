"""The demo as a process: its files, and that it always cleans up."""

import csv
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

ROWS = 20_000
STARTING = "Starting Spark…\n"

pytestmark = pytest.mark.whole


@contextmanager
def demo(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The demo in a process session of its own, with a directory for temporary files of its own."""
    scratch = directory / "scratch"
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "headrace", "demo", "--output", str(directory / "output"), *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for survivor in processes_of_session(process.pid):
            os.kill(survivor, signal.SIGKILL)
        process.wait(10)


def processes_of_session(session: int) -> list[int]:
    """Every process, however deep, that a process session's leader has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def test_the_demo_makes_an_exact_archive_a_table_and_a_chart(tmp_path: Path) -> None:
    with demo(tmp_path, "--rows", str(ROWS)) as process:
        output, error = process.communicate(timeout=500)
        assert (process.returncode, error) == (0, STARTING)
        assert processes_of_session(process.pid) == []
    assert list((tmp_path / "scratch").iterdir()) == []
    assert f"{ROWS:,} flights, {ROWS:,} in the stream, {ROWS:,} in the archive" in output
    assert "0 duplicates, 23 days: exact" in output
    assert output.count(" entries ") >= 5
    in_files = re.search(r"([\d,]+) of them \(([\d.]+) MB\) in files", output)
    assert in_files is not None and int(in_files[1].replace(",", "")) > ROWS // 2
    assert "JetBlue Airways" in output and "Try next" in output

    made = tmp_path / "output"
    assert (made / "delays.png").read_bytes().startswith(b"\x89PNG")
    with (made / "delays-by-hour.csv").open(newline="") as file:
        assert sum(int(row["flights"]) for row in csv.DictReader(file)) == ROWS
    assert "5 SQL" in output and f"{ROWS:,} flights of" in output
    archive = DeltaTable(made / "archive").to_pyarrow_table()
    assert archive.num_rows == ROWS
    assert len(set(archive["id"].to_pylist())) == ROWS
    assert archive.schema.field("dep_delay").type == "int32"
    assert archive["time_hour"].null_count == 0 < archive["dep_delay"].null_count


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """Read the demo's output up to a line with the text; return the line."""
    assert process.stdout is not None
    while text not in (line := process.stdout.readline()):
        assert line, f"the demo ended early: {process.communicate()[1]}"
    return line


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["2 Load", "batch 1"])
def test_an_interrupted_demo_leaves_no_process_and_no_temporary_file(moment: str, tmp_path: Path) -> None:
    with demo(tmp_path, "--rows", str(ROWS)) as process:
        line_with(process, moment)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert (process.returncode, error.removeprefix(STARTING).strip()) == (130, "headrace: interrupted")
        assert processes_of_session(process.pid) == []
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.slow
def test_a_demo_whose_server_is_killed_prints_one_line(tmp_path: Path) -> None:
    with demo(tmp_path, "--rows", str(ROWS)) as process:
        server = int(line_with(process, "process").rpartition("process")[2])
        line_with(process, "batch 0")
        os.kill(server, signal.SIGKILL)
        _, error = process.communicate(timeout=400)
        assert process.returncode == 1
        assert error.startswith(f"{STARTING}headrace: ") and error.count("\n") == 2
        assert processes_of_session(process.pid) == []
    assert list((tmp_path / "scratch").iterdir()) == []
