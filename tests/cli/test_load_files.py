"""`headrace load` with files and standard input, delimiters, encodings and bad rows."""

from __future__ import annotations

import datetime
import gzip
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import redis

from headrace.cli.main import main
from headrace.pipeline.file_formats.file_readers import FileProgress, FileReader
from headrace.pipeline.loading.rejects import RejectsFile


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fields(client: redis.Redis, stream: str = "s") -> list[dict[str, str]]:
    return [fields for _, fields in client.xrange(stream)]


def piped(data: bytes, url: str, *more: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "headrace", "load", "-", "--stream", "s", "--url", url, *more]
    return subprocess.run(command, input=data, capture_output=True, timeout=60)


def test_the_orders_of_the_readme_are_loaded_into_a_stream_with_an_entry(
    here: Path, server_url: str, client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    client.xadd("orders", {"item": "pear", "count": 3})
    Path("orders.csv").write_text("item,count\npear,3\nplum,5\n")
    assert main(["load", "orders.csv", "--stream", "orders", "--url", server_url]) == 0
    printed = capsys.readouterr().out
    assert "IDs from the server; no column looks like a time" in printed
    assert "2 rows added to stream orders" in printed
    assert fields(client, "orders") == [
        {"item": "pear", "count": "3"},
        {"item": "pear", "count": "3"},
        {"item": "plum", "count": "5"},
    ]


def test_new_ids_come_from_the_server_despite_a_time_column(
    here: Path, server_url: str, client: redis.Redis
) -> None:
    client.xadd("s", {"a": "1"})
    Path("x.csv").write_text("at,n\n2013-01-01,1\n")
    words = ["load", "x.csv", "--stream", "s", "--url", server_url]
    assert main(words) == 2
    assert main([*words, "--new-ids"]) == 0
    assert fields(client)[1] == {"at": "2013-01-01", "n": "1"}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input_is_csv_or_json_lines(pack: Any, server_url: str, client: redis.Redis) -> None:
    for data in (b"a,b\n1,2\n", b'{"a": 1, "b": "2"}\n'):
        done = piped(pack(data), server_url)
        assert (done.returncode, done.stderr) == (0, b"")
    assert fields(client) == [{"a": "1", "b": "2"}] * 2
    assert client.keys() == ["s"]


def test_standard_input_is_resumed_under_its_job(server_url: str, client: redis.Redis) -> None:
    done = piped(b"a,b\n1,2\n3\n5,6\n", server_url, "--job", "orders-1")
    assert done.returncode == 2
    assert b"line 3: expected 2 columns, found 1: '3'; 1 row loaded; the same" in done.stderr
    done = piped(b"a,b\n1,2\n3,4\n5,6\n", server_url, "--job", "orders-1", "--resume")
    assert (done.returncode, done.stderr) == (0, b"")
    assert [row["a"] for row in fields(client)] == ["1", "3", "5"]


def test_standard_input_that_is_parquet_is_rejected(server_url: str, client: redis.Redis) -> None:
    done = piped(b"PAR1xxxx", server_url)
    assert done.returncode == 2 and b"holds Parquet" in done.stderr


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("x.csv", b"a;b\n\xe4;1,5\n", ["--delimiter", ";", "--encoding", "latin-1"]),
        ("x.csv", "a\tb\nä\t1,5\n".encode("utf-16"), ["--delimiter", "tab", "--encoding", "utf-16"]),
        ("x.tsv", "a\tb\nä\t1,5\n".encode(), []),
        ("X.TSV", "a\tb\nä\t1,5\n".encode(), []),
        ("x.csv.gz", gzip.compress("a|b\nä|1,5\n".encode(), mtime=0), ["--delimiter", "|"]),
        ("x.jsonl", '{"a": "ä", "b": "1,5"}\n'.encode("cp1252"), ["--encoding", "cp1252"]),
    ],
)
def test_delimiter_and_encoding_are_options(
    here: Path, server_url: str, client: redis.Redis, name: str, data: bytes, options: list[str]
) -> None:
    Path(name).write_bytes(data)
    assert main(["load", name, "--stream", "s", "--url", server_url, *options]) == 0
    assert fields(client) == [{"a": "ä", "b": "1,5"}]


def test_bad_rows_are_skipped_counted_and_written_in_the_format_of_the_file(
    here: Path, server_url: str, client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["2020-01-01,a", "2020-01-02", "soon,c", '2020-01-04,"d', "2020-01-05,e", "2020-01-06,f,g"]
    Path("x.csv").write_bytes("\n".join(["at,n", *lines]).encode() + b"\n2020-01-07,\xff\n2020-01-08,h\n")
    words = ["load", "x.csv", "--stream", "s", "--url", server_url, "--skip-bad", "--time-column", "at"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "3 rows added to stream s" in printed and "5 bad rows skipped, see x.rejects.csv" in printed
    assert "line 3: expected 2 columns, found 1: '2020-01-02'" in printed and "and 2 more" in printed
    assert [row["n"] for row in fields(client)] == ["a", "e", "h"]
    rejected = Path("x.rejects.csv").read_bytes()
    wrong = ["2020-01-02", '2020-01-04,"d', "2020-01-06,f,g"]
    assert rejected == "\n".join(["at,n", wrong[0], "soon,c", *wrong[1:]]).encode() + b"\n2020-01-07,\xff\n"
    assert main([*words, "--append"]) == 2
    assert "x.rejects.csv: already exists" in capsys.readouterr().err


def test_a_resumed_load_writes_each_rejected_row_once(
    here: Path, server_url: str, client: redis.Redis
) -> None:
    lines = [f'{{"n": {n}}}' if n % 5 else "oops" for n in range(1, 100)]
    Path("x.jsonl").write_text("\n".join(lines) + "\n")
    words = ["load", "x.jsonl", "--stream", "s", "--url", server_url, "--skip-bad", "--batch", "4"]
    client.config_set("maxmemory", "1")
    try:
        assert main(words) == 1
    finally:
        client.config_set("maxmemory", "0")
    for _ in range(2):
        assert main([*words, "--resume"]) == 0
    assert [int(row["n"]) for row in fields(client)] == [n for n in range(1, 100) if n % 5]
    assert Path("x.rejects.jsonl").read_text() == "oops\n" * 19


def test_a_resumed_load_writes_the_rejected_rows_that_a_killed_one_did_not(
    here: Path, server_url: str, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("x.csv").write_text('n,m\n1,1\nbad\n2,2\nbad\n"b\n\nc"\n3,3\n4\n')
    words = ["load", "x.csv", "--stream", "s", "--url", server_url, "--skip-bad", "--batch", "1"]
    rejects = Path("x.rejects.csv")

    def killed(*ignored: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RejectsFile, "_write", killed)
        assert main(words) == 130
    assert client.xlen("s") >= 2 and not rejects.exists()
    every = b'n,m\nbad\nbad\n"b\n\nc"\n4\n'
    rejects.write_bytes(b"n,m\nbad\n")
    for _ in range(2):
        assert main([*words, "--resume"]) == 0
        assert rejects.read_bytes() == every
    assert [row["n"] for row in fields(client)] == ["1", "2", "3"]


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_rejected_rows_are_not_written_into_the_file_that_is_loaded(
    resume: list[str], here: Path, server_url: str, client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.csv").write_text("n,m\n1,1\nbad\n2,2\n")
    Path("y.csv").symlink_to("x.csv")
    words = ["load", "x.csv", "--stream", "s", "--url", server_url, "--skip-bad", "--rejects", "y.csv"]
    assert main([*words, *resume]) == 2
    assert "y.csv: is the file to load; give another file with --rejects" in capsys.readouterr().err
    assert Path("x.csv").read_text() == "n,m\n1,1\nbad\n2,2\n" and not client.exists("s")


def test_a_rejects_file_that_cannot_be_written_ends_the_load_before_its_first_row(
    here: Path, server_url: str, client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.csv").write_text("n,m\n1,1\nbad\n2,2\n")
    words = ["load", "x.csv", "--stream", "s", "--url", server_url, "--skip-bad", "--rejects"]
    for path in ("nowhere/y.csv", "."):
        assert main([*words, path, "--resume"]) == 2
        assert "cannot write the rejected rows: " in capsys.readouterr().err
    assert not client.exists("s")


def test_values_of_json_lines_and_parquet_have_the_same_text(
    here: Path, server_url: str, client: redis.Redis
) -> None:
    plain = {
        "int": 7, "big": 2**62, "half": 0.5, "whole": 1.0, "large": 1e300, "small": 1e-05, "yes": True,
        "no": False, "none": None, "text": 'ä "x"',
        "list": [[1, None], [], [3]], "struct": {"x": None, "y": ["ü", None], "z": {"w": 1.5}},
        "empty": {"l": []},
    }  # fmt: skip
    Path("x.jsonl").write_text(json.dumps(plain) + "\n")
    pyarrow.parquet.write_table(pa.Table.from_pylist([plain]), "x.parquet")
    for kind in ("jsonl", "parquet"):
        assert main(["load", f"x.{kind}", "--stream", kind, "--url", server_url]) == 0
    [lines], [parquet] = fields(client, "jsonl"), fields(client, "parquet")
    assert lines == parquet
    assert parquet["struct"] == '{"x":null,"y":["ü",null],"z":{"w":1.5}}'
    assert (parquet["list"], parquet["whole"], parquet["yes"]) == ("[[1,null],[],[3]]", "1.0", "true")


def test_times_and_decimals_of_parquet_are_iso_8601_and_exact_when_nested(
    here: Path, server_url: str, client: redis.Redis
) -> None:
    at = datetime.datetime(2020, 1, 2, 3, 4, 5, 600_000, tzinfo=datetime.UTC)
    plain = {"at": at, "day": at.date(), "price": Decimal("1.50"), "raw": b"x", "f": 0.25}
    row = {**plain, "inside": plain}
    pyarrow.parquet.write_table(pa.Table.from_pylist([row]), "x.parquet")
    assert main(["load", "x.parquet", "--stream", "s", "--url", server_url, "--new-ids"]) == 0
    [found] = fields(client)
    inside = json.loads(found.pop("inside"), parse_float=str)
    assert inside == found
    assert found == {
        "at": "2020-01-02T03:04:05.600000Z", "day": "2020-01-02", "price": "1.50", "raw": "x", "f": "0.25"
    }  # fmt: skip


def test_json_numbers_that_no_double_holds_keep_their_digits(
    here: Path, server_url: str, client: redis.Redis
) -> None:
    Path("x.jsonl").write_text('{"a": 0.1234567890123456789, "b": [12345678901234567890.5], "c": 1.50}\n')
    assert main(["load", "x.jsonl", "--stream", "s", "--url", server_url]) == 0
    assert fields(client) == [{"a": "0.1234567890123456789", "b": "[12345678901234567890.5]", "c": "1.5"}]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ('{"a": "\\ud800"}', "half a surrogate pair"),
        ('{"a": ' + "[" * 100_000, "line 1: "),
    ],
)
def test_json_that_would_lose_data_is_a_bad_row(
    here: Path, server_url: str, client: redis.Redis, line: str, reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    Path("x.jsonl").write_text(line + "\n")
    assert main(["load", "x.jsonl", "--stream", "s", "--url", server_url]) == 2
    error = capsys.readouterr().err
    assert reason in error and error.count("\n") == 1 and client.keys() == []


def test_what_the_first_lines_show_is_printed(
    here: Path, server_url: str, client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("people.csv").write_bytes("name;born\r\nx;1985-10-26\r\ny;1969-07-20\r\n".encode("utf-16"))
    assert main(["load", "people.csv", "--stream", "s", "--url", server_url]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "Values are separated by ';', as the first line shows (--delimiter)",
        "column 'born' is not used: it holds '1969-07-20', before 1970",
        "IDs from the server; no column looks like a time (--time-column names one)",
    ]
    assert fields(client) == [{"name": "x", "born": "1985-10-26"}, {"name": "y", "born": "1969-07-20"}]


def test_ids_in_the_future_need_an_option(
    here: Path, server_url: str, client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("plans.csv").write_text("plan,ends\na,2026-02-01\nb,9999-12-31\n")
    words = ["load", "plans.csv", "--stream", "s", "--url", server_url, "--time-column", "ends"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "row 2: column 'ends' holds '9999-12-31', which is later than now" in error
    assert "--allow-future" in error and error.count("\n") == 1
    assert main([*words, "--resume", "--allow-future"]) == 0
    assert [row["plan"] for row in fields(client)] == ["a", "b"]
    assert client.xrange("s")[1][0] == "253402214400000-0"


def test_rejected_rows_of_parquet_are_json_lines_whatever_their_values(
    here: Path, server_url: str, client: redis.Redis
) -> None:
    table = pa.table(
        {
            "d": pa.array([0, 2_932_897, 1], pa.date32()),
            "n": [1, 2, 3],
            "far": pa.array([0, 2**63 - 1, 0], pa.timestamp("us")),
            "raw": [[b"a"], [b"\xff"], [b"b"]],
        }
    )
    pyarrow.parquet.write_table(table, "X.PARQUET")
    words = ["load", "X.PARQUET", "--stream", "s", "--url", server_url, "--time-column", "d", "--skip-bad"]
    assert main(words) == 0
    assert [row["n"] for row in fields(client)] == ["1", "3"]
    [line] = Path("X.rejects.jsonl").read_text().splitlines()
    rejected = json.loads(line)
    assert (rejected["d"], rejected["n"]) == ("+10000-01-01", 2)
    assert rejected["far"] == "+294247-01-10T04:00:54.775807"


def test_a_record_of_several_lines_is_not_split(here: Path, server_url: str, client: redis.Redis) -> None:
    values = ["two\nlines", 'a "quoted" word', "a,comma", "", "\n"]
    text = "n,v\n" + "".join(f'{n},"{v.replace(chr(34), chr(34) * 2)}"\n' for n, v in enumerate(values))
    Path("x.csv").write_text(text)
    assert main(["load", "x.csv", "--stream", "s", "--url", server_url]) == 0
    assert [row["v"] for row in fields(client)] == values


@pytest.mark.parametrize("packed", [False, True])
def test_progress_counts_loaded_rows_not_rows_read_ahead(here: Path, packed: bool) -> None:
    data = b"n\n" + b"".join(b"%d\n" % (n + 1_000_000) for n in range(20_000))
    path = Path("x.csv.gz" if packed else "x.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    with FileReader(path) as table:
        progress = FileProgress(table)
        rows = progress.track(table.batches_and_bad_rows())
        next(rows)  # the whole file is read
        assert table.position == table.size
        assert progress.position_after(800) == pytest.approx(table.size * 0.04, rel=0.01)
        assert progress.position_after(20_000) == table.size
