"""`headrace load` as a process, against a real server."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from headrace.cli.main import main
from support.waiting import wait_until

ROWS = "at,city,v\n2013-01-02,Rome,1\n2013-01-01,,2\n2013-01-03,NA,3\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return path


def load(file: Path, url: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace", "load", str(file), "--stream", "s", "--url", url, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_load_prints_a_report(file: Path, server_url: str, client: redis.Redis) -> None:
    done = load(file, server_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "IDs from column at (chosen)" in done.stdout
    assert "3 rows added to stream s" in done.stdout
    assert "IDs 1357084800000-0 to 1357171200000-0" in done.stdout
    assert "1 row got the later time of the previous row" in done.stdout
    assert client.xrange("s") == [
        ("1357084800000-0", {"at": "2013-01-02", "city": "Rome", "v": "1"}),
        ("1357084800000-1", {"at": "2013-01-01", "v": "2"}),
        ("1357171200000-0", {"at": "2013-01-03", "city": "NA", "v": "3"}),
    ]


def test_sort_orders_the_rows_and_null_marks_missing_values(
    file: Path, server_url: str, client: redis.Redis
) -> None:
    done = load(file, server_url, "--sort", "--null", "NA", "--time-column", "at")
    assert (done.returncode, done.stderr) == (0, "")
    assert "back in time" not in done.stdout
    assert [fields for _, fields in client.xrange("s")] == [
        {"at": "2013-01-01", "v": "2"},
        {"at": "2013-01-02", "city": "Rome", "v": "1"},
        {"at": "2013-01-03", "v": "3"},
    ]


def test_names_are_printed_literally(
    tmp_path: Path, server_url: str, client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("[/at]\n2013-01-02\n")
    words = ["--url", server_url, "--stream", "[/s]"]
    assert main(["load", str(tmp_path / "rows.csv"), *words]) == 0
    printed = capsys.readouterr().out
    assert "IDs from column [/at] (chosen)" in printed and "1 row added to stream [/s]," in printed
    assert main(["trim", *words]) == 0
    assert "[/s]: 0 entries removed, 1 left" in capsys.readouterr().out
    assert main(["replay", *words, "--into", "[/t]"]) == 0
    assert "1 entry added to stream [/t] with" in capsys.readouterr().out


def test_a_second_load_is_rejected_and_names_the_options(
    file: Path, server_url: str, client: redis.Redis
) -> None:
    assert load(file, server_url).returncode == 0
    again = load(file, server_url)
    assert again.returncode == 2
    assert again.stderr.startswith("headrace: stream 's' already has entries up to 1357171200000-0")
    assert "--append" in again.stderr and "--new-ids" in again.stderr and again.stderr.count("\n") == 1
    assert client.xlen("s") == 3

    resumed = load(file, server_url, "--resume")
    assert resumed.returncode == 0
    assert "The load was complete: all 3 rows were already in stream s" in resumed.stdout
    assert client.xlen("s") == 3

    assert load(file, server_url, "--append").returncode == 0
    assert client.xlen("s") == 6


@pytest.mark.whole
def test_an_unknown_spark_format_prints_one_line(file: Path, server_url: str) -> None:
    done = load(file, server_url, "--format", "nonsense")
    assert done.returncode == 1
    starting, message = done.stderr.splitlines()
    assert starting == "Starting Spark…" and message.startswith("headrace: Spark: [DATA_SOURCE_NOT_FOUND]")


@pytest.mark.whole
def test_ctrl_c_prints_how_to_resume(tmp_path: Path, server_url: str, client: redis.Redis) -> None:
    file = tmp_path / "many.csv"
    file.write_text("at\n" + "".join(f"{1_400_000_000 + n}\n" for n in range(2000)))
    words = ["load", str(file), "--stream", "s", "--url", server_url, "--time-column", "at"]
    command = [sys.executable, "-m", "headrace", *words]
    process = subprocess.Popen([*command, "--rate", "100"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: client.xlen("s") > 20, "some rows")
    process.send_signal(signal.SIGINT)
    output, error = process.communicate(timeout=60)
    assert (process.returncode, error.strip()) == (130, b"headrace: interrupted")
    assert b" rows loaded; the same command with --resume adds the others" in output
    assert subprocess.run([*command, "--resume"], timeout=60).returncode == 0
    assert client.xlen("s") == 2000


def test_a_bad_row_in_the_middle_prints_how_to_resume(
    tmp_path: Path, server_url: str, client: redis.Redis
) -> None:
    file = tmp_path / "bad.jsonl"
    good = "".join(f'{{"ts": {1_400_000_000_000 + n}, "pad": "{"x" * 1000}"}}\n' for n in range(12_000))
    file.write_text(good + "{\n")
    done = load(file, server_url)
    assert done.returncode == 2
    assert (
        "line 12001: not JSON" in done.stderr and "; --resume --skip-bad leaves out bad rows" in done.stderr
    )
    assert "12,000 rows loaded; the same command with --resume adds the others" in done.stderr
    assert client.xlen("s") == 12_000

    file.write_text(good + '{"ts": 1400000099999}\n')
    done = load(file, server_url, "--resume")
    assert done.returncode == 0
    assert (
        "1 row added to stream s" in done.stdout
        and "12,000 rows skipped: already in the stream" in done.stdout
    )
    assert client.xinfo_stream("s")["entries-added"] == 12_001
