"""SHOW TABLES and DESCRIBE on redis-server and Headrace, and misspelt names in queries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.main import main
from headrace.queries.catalog_statements import CatalogStatement, parse_catalog_statement
from support.archives import ArchiveMaker
from support.stream_server import StreamServer


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("show tables", CatalogStatement(None)),
        (" SHOW  TABLES LIKE 'or*|b*' ; ", CatalogStatement(None, "or*|b*")),
        ("SHOW TABLES 'or*'", CatalogStatement(None, "or*")),
        ("DESCRIBE orders", CatalogStatement("orders")),
        ("desc table `orders:``eu`;", CatalogStatement("orders:`eu")),
        ("DESCRIBE EXTENDED orders", CatalogStatement("orders")),
        ("DESCRIBE FUNCTION sum", None),
        ("SELECT 'SHOW TABLES'", None),
    ],
)
def test_show_tables_and_describe_are_parsed(sql: str, statement: CatalogStatement | None) -> None:
    assert parse_catalog_statement(sql) == statement


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[list[object]]:
    assert main(["query", *words, "--json"]) == 0
    return [list(json.loads(line).values()) for line in capsys.readouterr().out.splitlines()]


def test_tables_are_shown_and_described(
    stream_server: StreamServer, capsys: pytest.CaptureFixture[str]
) -> None:
    stream_server.add("orders", [("1-0", {"item": "pear", "n": 1}), ("2-0", {"item": "fig", "n": 2})])
    stream_server.add("bids:eu", [("1-0", {"x": 1.5})])
    url = ["--url", stream_server.url]
    assert rows(capsys, "SHOW TABLES", *url) == [["bids:eu", 1], ["orders", 2]]
    assert rows(capsys, "SHOW TABLES LIKE 'O*'", *url) == [["orders", 2]]
    described = rows(capsys, "DESCRIBE orders", *url)
    assert described[:2] == [["_stream", "string", "of every entry"], ["_id", "string", "of every entry"]]
    assert described[4:] == [
        ["item", "string", "inferred from 2 entries"],
        ["n", "bigint", "inferred from 2 entries"],
    ]
    assert rows(capsys, "DESC `bids:eu`", *url)[4:] == [["x", "double", "inferred from 1 entry"]]


def test_tables_of_any_name_are_shown_with_their_entries(
    stream_server: StreamServer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [b"", b"a\xff", b"a\\xff", b"b\0c"]
    for name in names:
        stream_server.add(name, [("1-0", {"n": 1}), ("2-0", {"n": 2})])
    url = ["--url", stream_server.url]
    shown = ["", "a\\x5cxff", "a\\xff", "b\0c"]
    assert rows(capsys, "SHOW TABLES", *url) == [[name, 2] for name in shown]
    for name in shown[1:]:
        assert rows(capsys, f"DESCRIBE `{name}`", *url)[4:] == [["n", "bigint", "inferred from 2 entries"]]


def test_archived_tables_are_shown_too(
    stream_server: StreamServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream_server.add("orders", [("9-0", {"item": "pear"})])
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("past", [("1577836800000-0", {"n": 1})])
    words = ["--url", stream_server.url, "--archive", str(maker.directory)]
    assert rows(capsys, "SHOW TABLES", *words) == [
        ["orders", 1, 0, None],
        ["past", 0, 1, "1577836800000-0"],
    ]
    assert ["n", "bigint", "inferred from 1 entry"] in rows(capsys, "DESCRIBE past", *words)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["DESCRIBE ordrs"], "there is no stream 'ordrs'; did you mean 'orders'?"),
        (["DESCRIBE xyzzy"], "there is no stream 'xyzzy'\n"),
        (["SHOW TABLES", "--follow"], "--follow is for SELECT"),
        (["INSERT INTO orders VALUES (1)"], "a query only reads, so INSERT is not possible"),
    ],
)
def test_usage_errors_are_one_line_with_exit_code_2(
    words: list[str], complaint: str, stream_server: StreamServer, capsys: pytest.CaptureFixture[str]
) -> None:
    stream_server.add("orders", [("1-0", {"n": 1})])
    assert main(["query", *words, "--url", stream_server.url]) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1
