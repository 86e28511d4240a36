"""`headrace check`: the report, the exit code, the one-line error."""

from pathlib import Path

import pytest

from headrace.cli.main import main


def record(*words: str) -> bytes:
    return f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words)


GOOD = (
    record("SELECT", "2") + record("XADD", "s", "1-1", "f", "v") + record("XGROUP", "CREATE", "s", "g", "0")
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "appendonly.aof.1.incr.aof"
    path.write_bytes(GOOD)
    return path


def test_a_good_file_is_reported(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(log)]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "All is good" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["appendonly.aof.1.incr.aof", f"{len(GOOD)}", "3", "good"] in lines
    #       database, keys, expiring, strings, streams, entries, groups, consumers, pending
    assert ["2", "1", "0", "0", "1", "1", "1", "0", "0"] in lines
    assert "SELECT 1" in out and "XADD 1" in out and "XGROUP 1" in out


def test_a_damaged_file_prints_one_line_and_exits_with_1(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_bytes(GOOD + b"\0" * 1000)
    assert main(["check", str(log)]) == 1
    out, err = capsys.readouterr()
    assert f"at byte {len(GOOD)}" in " ".join(out.split()) and "1000 zero bytes" in " ".join(out.split())
    assert err.count("\n") == 1 and "cut off 1,000 and keep a copy" in err and str(log) in err
    assert log.read_bytes() == GOOD + b"\0" * 1000


def test_fix_cuts_off_the_damaged_end_and_keeps_a_copy(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_bytes(GOOD + b"\0" * 1000)
    assert main(["check", str(log), "--fix"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "All is good now" in out and "Cut off the last 1,000 bytes" in out
    assert log.read_bytes() == GOOD
    assert Path(f"{log}.before-fix").read_bytes() == GOOD + b"\0" * 1000
    assert main(["check", str(log), "--fix"]) == 0


def test_fix_rejects_a_snapshot_and_gives_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dump.rdb"
    path.write_bytes(b"REDIS0010\xfe\x00\xfb\x01")
    assert main(["check", str(path), "--fix"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "a snapshot cannot be truncated" in err
    assert path.read_bytes() == b"REDIS0010\xfe\x00\xfb\x01" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("arguments", [["nowhere.aof"], ["."], [], ["nowhere.aof", "--nonsense"]])
def test_nothing_to_check_exits_with_2(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_unreadable_file_prints_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.manifest").write_text("file x seq 1 type i\n")
    (tmp_path / "x").mkdir()
    assert main(["check", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "is a directory" in err
