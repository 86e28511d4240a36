"""No command prints a character from data that a terminal would execute."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import redis

from cli.hostile import NAME, VALUE, unsafe
from cli.terminal import in_terminal
from headrace.archive.watermark import Watermark, raise_watermark
from headrace.cli.main import main
from headrace.cli.query import output as query_output
from headrace.positions.position import Position


@pytest.fixture
def hostile(server_url: str, client: redis.Redis) -> str:
    """The URL of a server with a stream whose name, group, consumer, fields and values are hostile."""
    with redis.Redis.from_url(server_url) as raw:
        for n in range(1, 21):
            raw.xadd(NAME, {VALUE: VALUE, NAME: NAME, "n": n}, f"{n}-0")
        raw.xgroup_create(NAME, NAME, "0")
        raw.xreadgroup(NAME, NAME, {NAME: ">"}, count=3)
        raw.xgroup_createconsumer(NAME, NAME, VALUE)
        raise_watermark(raw, NAME, Watermark(Position("10-0"), "id", NAME))
    client.xadd("empty", {"n": 1})
    return server_url


COMMANDS = [
    ["trim", "--stream", NAME, "--dry-run"],
    ["trim", "--stream", NAME + "x"],
    ["trim", "--pattern", NAME + "("],
    ["inspect", NAME, "--entries", "20"],
    ["inspect", NAME + "x"],
    ["inspect", NAME, "--file", NAME],
    ["top", "--once", "--every", "0.1"],
    ["replay", "--stream", NAME, "--into", NAME + "2"],
    ["replay", "--stream", NAME + "x", "--into", NAME + "2"],
    ["load", NAME, "--stream", NAME],
    ["archive", "--stream", NAME + "x", "--to", "archive"],
    ["ls"],
    ["ls", "--json"],
    ["ls", "--archives"],
    ["trim", "--stream", NAME, "--release", NAME + "x"],
    ["ls", "--pattern", NAME],
    ["tail", NAME],
    ["tail", "--json", NAME],
    ["tail", NAME, "empty"],
    ["tail", "--group", NAME, "-n", "2", NAME],
    ["tail", "--group", NAME, "--json", NAME],
    ["tail", "--group", NAME + "x", NAME],
    ["tail", "--from", NAME, NAME],
    ["tail", NAME + "x"],
    ["groups", NAME],
    ["groups", "--consumers", NAME],
    ["groups", "--json", NAME],
    ["pending", NAME, NAME],
    ["pending", "--json", NAME, NAME],
    ["pending", NAME, NAME + "x"],
    ["pending", "--consumer", NAME + "x", NAME, NAME],
    ["pending", "--idle", "9d", NAME, NAME],
    ["ack", NAME, NAME, "1-0", "99-0"],
    ["ack", NAME, NAME, NAME],
    ["add", NAME, NAME],
    ["add", NAME + "x", NAME, NAME],
    ["trim", "--stream", NAME, "--profile", NAME],
    ["check", NAME],
    [NAME],
    ["trim", "--" + NAME],
]


@pytest.mark.parametrize("words", COMMANDS, ids=range(len(COMMANDS)))
def test_no_control_character_is_printed(
    words: list[str],
    hostile: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if words[0] not in ("check", NAME):
        words = [*words, "--url", hostile]
    main(words)
    printed = capsys.readouterr()
    assert printed.out + printed.err and not unsafe(printed.out + printed.err)


@pytest.mark.parametrize("words", [*COMMANDS[:7], *COMMANDS[14:-4:2]], ids=lambda words: words[0])
def test_no_control_character_is_printed_on_a_terminal(words: list[str], hostile: str) -> None:
    _, output = in_terminal(*words, "--url", hostile)
    assert "owned" in output and not unsafe(output, terminal=True)


def test_hostile_column_names_of_a_file_are_escaped(
    hostile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([[NAME, "v"], ["2013-01-01", NAME]])
    assert main(["load", str(path), "--stream", NAME + "2", "--time-column", NAME, "--url", hostile]) == 0
    printed = capsys.readouterr()
    assert "row added to stream" in printed.out and not unsafe(printed.out + printed.err)


def test_an_svg_of_hostile_data_is_well_formed(
    hostile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "orders.svg"
    assert main(["inspect", NAME, "--entries", "20", "--svg", str(path), "--url", hostile]) == 0
    text = path.read_text(encoding="utf-8")
    assert not unsafe(text)
    drawn = "".join(ElementTree.fromstring(text).itertext()).replace("\xa0", " ")
    assert "or\\x1b]0;owned" in drawn and "[red]:smile:[/]" in drawn


def test_query_escapes_tables_and_keeps_csv_and_json_exact(capsys: pytest.CaptureFixture[str]) -> None:
    value = VALUE.decode(errors="replace")
    query_output.Console(file=None).print(query_output.grid([NAME], [(value,)]))
    assert not unsafe(capsys.readouterr().out)
    query_output.write_rows("json", [NAME], [(value,)])
    printed = capsys.readouterr().out
    assert json.loads(printed) == {NAME: value} and not unsafe(printed)
    query_output.write_rows("csv", [NAME], [(value,)])
    assert list(csv.reader(io.StringIO(capsys.readouterr().out, newline=""))) == [[NAME], [value]]


def test_csv_on_a_terminal_is_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    query_output.write_rows("csv", [NAME], [(VALUE.decode(errors="replace"),), (None,)])
    assert not unsafe(capsys.readouterr().out)
