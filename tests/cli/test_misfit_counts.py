"""What `headrace archive` and `headrace query` print about values that do not fit their columns."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import redis

pytestmark = pytest.mark.whole


def headrace(*words: str) -> tuple[str, str]:
    """The output and the errors of a command that must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_values_that_do_not_fit_are_counted_by_archive_and_query(
    tmp_path: Path, server_url: str, client: redis.Redis
) -> None:
    for n in range(20):
        client.xadd("s", {"n": n, "at": f"2026-03-01T12:00:{n:02}Z", "b": "x"}, id=f"{n + 1}-0")
    client.xadd("s", {"n": "many", "at": "soon", "b": b"\xff"}, id="30-0")
    client.xadd("s", {b"\xfe": "1"}, id="31-0")
    directory = str(tmp_path / "archive")
    fields = "n INT, at TIMESTAMP COMMENT 'iso8601:T0Z', b STRING"
    output, errors = headrace(
        "archive", "--stream", "s", "--to", directory, "--url", server_url, "--fields", fields
    )
    assert errors == "Starting Spark…\n"
    assert "2 of 22 entries have fields that their columns cannot hold exactly" in output
    assert "are null there: s.n 1, s.at 1, s.b 1\n" in output

    options = ["--url", server_url, "--fields", "n INT, at TIMESTAMP, b BINARY", "--json"]
    output, errors = headrace("query", 'SELECT n, "at", b FROM s', *options)
    rows = [json.loads(line) for line in output.splitlines()]
    assert rows[3] == {"n": 3, "at": "2026-03-01 12:00:03", "b": "x"}
    assert rows[20:] == [{"n": None, "at": None, "b": "\\xff"}, {"n": None, "at": None, "b": None}]
    summary = "Values that do not fit their column, and are null there: s.n 1, s.at 1"
    assert errors.count("null") == 1 and errors.endswith(f"{summary} (--fields sets other types)\n")


def test_inferred_columns_parse_times_and_skipped_fields_are_named(
    tmp_path: Path, server_url: str, client: redis.Redis
) -> None:
    for n in range(5):
        client.xadd("s", {"at": f"2026-03-01T12:00:0{n}.250Z", b"\xfe": n, "Id": n})
    words = ["--stream", "s", "--to", str(tmp_path / "archive"), "--url", server_url, "--fields", "infer"]
    output, errors = headrace("archive", *words)
    assert errors == "Starting Spark…\n" and "Fields: `at` TIMESTAMP COMMENT 'iso8601:T3Z'\n" in output
    assert "No column: the field '\\xfe' is not printable text\n" in output
    assert "No column: the field 'Id' is the name of a column of the archive\n" in output
    assert "5 of 5 entries have fields that their columns cannot hold exactly" in output


def test_dates_with_slashes_are_dates_and_are_replayed_as_they_were(
    tmp_path: Path, server_url: str, client: redis.Redis
) -> None:
    days = ["2012/01/01", "2012/12/31", "2012/02/31", "2012-01-01", "0001/01/01", "NA"]
    for n, day in enumerate([*["2012/03/04"] * 5, *days]):
        client.xadd("s", {"n": n, "day": day}, id=f"{n + 1}-0")
    sample = "n BIGINT, day DATE COMMENT 'yyyy/mm/dd'"
    query = "SELECT typeof(day) AS kind, CAST(day AS VARCHAR) AS day FROM s ORDER BY n"
    output, errors = headrace("query", query, "--url", server_url, "--fields", sample, "--json")
    rows = [json.loads(line) for line in output.splitlines()]
    assert {row["kind"] for row in rows} == {"DATE"}
    assert [row["day"] for row in rows[5:]] == ["2012-01-01", "2012-12-31", None, None, "0001-01-01", None]
    assert "s.day 3" in errors
    directory = str(tmp_path / "archive")
    headrace("archive", "--stream", "s", "--to", directory, "--url", server_url, "--fields", sample)
    words = ["--archive", directory, "--archive-only", "--url", server_url]
    headrace("replay", "--stream", "s", "--into", "again", *words)
    assert client.xrange("again") == client.xrange("s")
    client.delete("s")
    client.xadd("s", {"n": 1, "day": "2012/03/04"}, id="100-0")
    inferred = "SELECT typeof(day) AS kind FROM s"
    output, _ = headrace("query", inferred, "--url", server_url, "--json")
    assert json.loads(output) == {"kind": "DATE"}
