"""The program: help, version and errors."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from headrace import __version__
from headrace.cli.main import SUMMARY_BY_COMMAND, main
from headrace.server.config.directives import DIRECTIVES
from headrace.spark.options import DEFAULT_URL

OURS = sorted(set(SUMMARY_BY_COMMAND) - {"serve"})  # serve's words are the server's


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The program as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], capture_output=True, text=True, timeout=60
    )


def test_version_is_that_of_the_package() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"headrace {__version__}\n")


def test_help_lists_every_command_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, does in SUMMARY_BY_COMMAND.items():
        assert name in text and does.split(".")[0][:30] in text


@pytest.mark.parametrize("name", OURS)
def test_the_help_of_every_command_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"headrace {name} --" in capsys.readouterr().out.partition("Example")[2] or name == "load"


def test_the_help_of_serve_lists_the_directives(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example: headrace serve --port" in text and "--appendonly" in text


def test_without_a_command_the_help_is_printed_and_the_code_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Commands" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "unknown command 'nonsense'"),
        (["load"], "Missing option '--stream'"),
        (["load", "x.csv"], "Missing option '--stream'"),
        (["load", "x.csv", "--stream", "s", "--batch", "0"], "0 is not in the range"),
        (["load", "x.csv", "--stream", "s", "--nonsense"], "unknown option '--nonsense'"),
        (["trim", "s"], "unexpected extra argument (s); the option for a stream is --stream NAME"),
        (["load", "missing.csv", "--stream", "s"], "missing.csv: no such file"),
        (["load", "x.csv", "--stream", "s", "--new-ids", "--sort"], "exclude each other"),
        (["load", "x.csv", "--stream", "s", "--rejects", "r.csv"], "add --skip-bad"),
        (["load", "x.csv", "--stream", "s", "--delimiter", "ab"], "expected one ASCII character"),
        (["load", "x.csv", "--stream", "s", "--encoding", "klingon"], "unknown encoding"),
        (["load", "x.csv", "--stream", "s", "--encoding", "base64"], "unknown encoding"),
        (["load", "x.csv", "--stream", "s", "--format", "csv", "--batch", "7"], "--batch is for files"),
        (["load", "x.csv", "--stream", "s", "--job", ""], "the name is empty"),
        (["query", "SELECT 1", "--csv", "--json"], "--csv and --json exclude each other"),
        (["query", "SELECT 1", "--csv", "--rows", "5"], "--rows is for the terminal"),
        (["archive", "--stream", "s", "--to", "d", "--every", "5"], "--every is for --follow"),
        (["archive", "--stream", "s", "--to", "d", "--every", "0"], "0.0 is not in the range"),
        (["archive", "--stream", "s", "--to", "d", "--sample", "5"], "--sample is for --fields infer"),
        (["archive", "--to", "d"], "no streams given: use --stream"),
        (["trim", "--stream", "s", "--pattern", "s"], "--stream and --pattern exclude each other"),
        (["trim", "--stream", "s", "--keep", "0"], "0 is not in the range"),
        (["trim", "--stream", "s", "--keep-for", "-2h"], "not a duration: '-2h'"),
        (["trim", "--stream", "s", "--keep-for", "99999999999d"], "is too long: expected at most 1000 years"),
        (["load", "-", "--stream", "s", "--resume"], "needs the --job NAME"),
        (["load", "x.csv", "--stream", "s", "--format", "csv", "--skip-bad"], "--skip-bad is for files"),
        (["load", "x.csv", "--stream", "s", "--url", "nonsense"], "not a server's address"),
        (["load", "x.csv", "--stream", "s", "--time-column", "at"], "no column 'at'; the columns are a, b"),
        (["load", "x.csv", "--stream", "s", "--sort"], "no column looks like a time"),
        (["load", "empty.csv", "--stream", "s"], "has no rows"),
        (["archive", "--stream", "s"], "Missing option '--to'"),
        (
            ["archive", "--stream", "s", "--to", "d", "--time-zone", "Mars/Olympus"],
            "unknown time zone 'Mars/Olympus'",
        ),
        (["query", "SELECT 1", "--time-zone", "Mars/Olympus"], "unknown time zone 'Mars/Olympus'"),
        (["load", "x.csv", "--stream", "s", "--rate", "nan"], "nan is not a number"),
        (["archive", "--stream", "s", "--to", "d", "--every", "inf"], "inf is not a number"),
        (["top", "--every", "nan"], "nan is not a number"),
        (["top", "--every", "inf"], "inf is not in the range"),
        (["serve", "--port", "x"], "port x"),
        (["serve", "--nonsense", "x"], "nonsense"),
        (["demo", "--rows", "0"], "0 is not in the range"),
        (["demo", "--output", "."], "is not empty and not from an earlier demo"),
        (["demo", "--output", "x.csv"], "is a file"),
        (["demo", "--output", "x.csv/deeper"], "cannot write there"),
    ],
)
def test_bad_input_prints_one_line_and_exits_with_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("a,b\n1,2\n")
    Path("empty.csv").write_text("a,b\n")
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("headrace: ") and error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.csv", "x.csv"]


def test_a_missing_server_prints_one_line_and_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("at,v\n2013-01-01,1\n")
    done = run("load", str(tmp_path / "x.csv"), "--stream", "s", "--url", "redis://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("headrace: redis://127.0.0.1:1: ") and done.stderr.count("\n") == 1
    assert "headrace serve" in done.stderr


@pytest.mark.parametrize("words", [["top", "--once"], ["trim", "--stream", "s"], ["inspect", "s"]])
def test_a_missing_cluster_prints_one_line_and_exits_with_1(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    url = "sentinel://127.0.0.1:1/none" if words[0] == "top" else "cluster://127.0.0.1:1"
    assert main([*words, "--url", url]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"headrace: {url}: ") and error.count("\n") == 1


def test_a_missing_password_is_not_reported_as_a_missing_server(
    server_url: str, client: redis.Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    client.config_set("requirepass", "pw")
    try:
        assert main(["trim", "--stream", "s", "--url", server_url]) == 1
    finally:
        client.config_set("requirepass", "")
    error = capsys.readouterr().err
    assert ": the server rejected the request: NOAUTH Authentication required. Give the password: " in error


def test_a_full_disk_prints_one_line_and_exits_with_1() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "headrace", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (1, "headrace: the output: no space left on device\n")


def test_server_and_clients_have_the_same_default_port() -> None:
    port = next(d.default for d in DIRECTIVES if d.name == "port")
    assert urlsplit(DEFAULT_URL).port == int(port)
