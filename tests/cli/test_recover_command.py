"""headrace recover: lists what a former primary has saved, and adds it once, also to redis-server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from headrace.cli.commands import recover
from headrace.cli.main import main
from support.headrace_server import headrace_server
from support.speaking import encoded

COUNT = 250


@pytest.fixture(scope="module")
def headrace_url() -> Iterator[str]:
    with headrace_server() as port:
        yield f"redis://127.0.0.1:{port}"


@pytest.fixture(params=["redis", "headrace"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty server, of each kind in turn."""
    url: str = request.getfixturevalue("server_url" if request.param == "redis" else "headrace_url")
    with redis.Redis.from_url(url) as client:
        client.flushall()
    return url


@pytest.fixture
def file(tmp_path: Path) -> str:
    """250 entries of orders, two that may have been removed, one of another stream in database 1."""
    requests = [["SELECT", "0"]]
    requests += [["XADD", "orders", f"{n}-0", "n", str(n), "n", "twice"] for n in range(1, COUNT + 1)]
    requests += [["XADD", "queue", "NOMKSTREAM", f"{n}-0", "job", str(n)] for n in (1, 2)]
    requests += [["SELECT", "1"], ["XADD", b"o\xff", "5-1", "f", b"\xfe"]]
    path = tmp_path / "divergent-entries-20260101T000000Z.resp"
    path.write_bytes(b"".join(encoded(*words) for words in requests))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Return the exit code and everything printed."""
    code = main(["recover", *words])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_the_streams_and_entries_of_a_file_are_listed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, file)
    rows = [line.split() for line in text.splitlines()]
    assert code == 0 and rows[1:] == [
        ["0", "orders", "250", "0", "1-0", "250-0"],
        ["0", "queue", "2", "2", "1-0", "2-0"],
        ["1", "o\\xff", "1", "0", "5-1", "5-1"],
    ]
    code, text = run(capsys, file, "--show")
    entries = [json.loads(line) for line in text.splitlines()]
    assert len(entries) == 253
    assert entries[0]["fields"] == [["n", "1"], ["n", "twice"]] and entries[0]["id"] == "1-0"
    assert [entry["maybe_removed"] for entry in entries[-3:]] == [True, True, False]


def test_entries_are_added_once(file: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, file, "--add", "--url", url)
    assert code == 0 and "251 entries added" in text and "2 entries not added" in text
    assert run(capsys, file, "--add", "--url", url) == (
        0,
        "0 entries added\n2 entries not added: removed by the new primary, maybe (--removed)\n",
    )
    assert run(capsys, file, "--add", "--removed", "--url", url) == (0, "2 entries added\n")
    with redis.Redis.from_url(url) as client, redis.Redis.from_url(url, db=1) as other:
        added = [fields[b"n"] for _, fields in client.xrange("orders")]
        assert added == [b"twice"] * COUNT
        assert client.xlen("queue") == 2 and [f for _, f in other.xrange(b"o\xff")] == [{b"f": b"\xfe"}]


def test_an_interrupted_run_continues(
    file: str, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis.Redis.from_url(url) as client:
        client.set("queue", "not a stream")
        code, text = run(capsys, file, "--add", "--removed", "--url", url)
        assert code == 1 and "rejected an entry of queue: WRONGTYPE" in text and "250 entries added" in text
        client.delete("queue")
        assert run(capsys, file, "--add", "--removed", "--url", url) == (0, "3 entries added\n")
        assert client.xlen("orders") == COUNT


def test_a_batch_whose_count_was_lost_is_not_added_twice(
    file: str, headrace_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis.Redis.from_url(headrace_url) as client:
        client.flushall()
        store = recover.EntryAdder._store_progress
        monkeypatch.setattr(recover.EntryAdder, "_store_progress", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(capsys, file, "--add", "--url", headrace_url)
        assert client.xlen("orders") == 100
        monkeypatch.setattr(recover.EntryAdder, "_store_progress", store)
        assert run(capsys, file, "--add", "--url", headrace_url)[0] == 0
        assert client.xlen("orders") == COUNT


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"nothing of the kind", 2, "is not a file of saved entries"),
        (encoded("SET", "k", "v"), 2, "is not a file of saved entries"),
        (encoded("XADD", "s", "1-0", "f", "v")[:-3], 1, "ends within an entry, at byte 0"),
        (b"", 0, "stream"),
    ],
)
def test_other_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, code: int, message: str
) -> None:
    path = tmp_path / "file.resp"
    path.write_bytes(content)
    assert run(capsys, str(path))[0] == code
    main(["recover", str(path)])
    printed = "".join(capsys.readouterr())
    assert message in printed and "--fix" not in printed


def test_options_that_exclude_each_other_are_rejected(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, file, "--removed") == (2, "headrace: --removed is an option for --add\n")
    assert run(capsys, file, "--show", "--add")[0] == 2
