"""The log's lines, its levels, and the file that is opened anew."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.server.config.config import Config
from headrace.server.config.log_levels import NOTICE
from headrace.server.observe.logs import apply_message_log_config, reopen_message_log, start_message_log

LOG = logging.getLogger("headrace")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    handlers, level, propagate = list(LOG.handlers), LOG.level, LOG.propagate
    LOG.handlers[:] = []
    yield
    for handler in LOG.handlers:
        handler.close()
    LOG.handlers[:] = handlers
    LOG.level, LOG.propagate = level, propagate
    LOG.setLevel(level)


def configured(*arguments: str) -> Config:
    config = Config()
    config.read_arguments(list(arguments))
    return config


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["D", "I", "N", "W", "E"]),
        ("verbose", ["I", "N", "W", "E"]),
        ("notice", ["N", "W", "E"]),
        ("warning", ["W", "E"]),
        ("nothing", []),
    ],
)
def test_levels(tmp_path: Path, level: str, shown: list[str]):
    path = tmp_path / "log"
    start_message_log(configured("--logfile", str(path), "--loglevel", level))
    for number, text in ((10, "D"), (20, "I"), (NOTICE, "N"), (30, "W"), (40, "E")):
        LOG.log(number, "%s", text)
    assert [line[-1] for line in path.read_text().splitlines()] == shown


def test_a_line_of_json_holds_whatever_was_said(tmp_path: Path):
    path = tmp_path / "log"
    config = configured("--logfile", str(path), "--log-format", "json")
    start_message_log(config)
    LOG.warning("client %s: %s", 7, 'a "word"\nand \udcff')
    try:
        raise ValueError("odd")
    except ValueError:
        LOG.exception("a bug")
    config.set([(b"log-format", b"text")])
    apply_message_log_config(config)
    LOG.log(NOTICE, "plain")
    first, second, third = path.read_text().splitlines()
    said = json.loads(first)
    assert said["message"] == 'client 7: a "word"\nand \\udcff'
    assert said["level"] == "warning"
    assert said["time"].endswith("Z") and said["time"][10] == "T" and len(said["time"]) == 24
    assert json.loads(second)["exception"].endswith("ValueError: odd")
    assert third.endswith(" NOTICE plain")


def said_in(path: Path) -> list[str]:
    """The last word of each line."""
    return [line.split()[-1] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_name_in_a_message_cannot_control_the_terminal_that_shows_the_log(tmp_path: Path, form: str):
    path = tmp_path / "log"
    start_message_log(configured("--logfile", str(path), "--log-format", form))
    LOG.warning("client %s was closed", "x\x1b[2J\x9b\u202e\u2028\nWARNING forged")
    (line,) = path.read_text().splitlines()
    assert line.isprintable() and "x\\" in line and "forged" in line


def test_a_file_that_was_moved_is_left_alone(tmp_path: Path):
    path, moved = tmp_path / "log", tmp_path / "log.1"
    start_message_log(configured("--logfile", str(path)))
    LOG.warning("one")
    path.rename(moved)
    LOG.warning("two")
    assert (said_in(moved), said_in(path)) == (["one"], ["two"])
    path.unlink()
    reopen_message_log()
    LOG.warning("three")
    assert said_in(path) == ["reopened", "three"]


def test_lines_that_have_no_file_are_told_of_once_until_there_is_one(tmp_path: Path, capsys):
    directory = tmp_path / "logs"
    directory.mkdir()
    path = directory / "log"
    start_message_log(configured("--logfile", str(path)))
    complaint = f"headrace: cannot write logfile {path}: No such file or directory\n"
    for _ in range(2):
        path.unlink()
        directory.rmdir()
        LOG.warning("one")
        LOG.warning("two")
        assert capsys.readouterr().err == complaint
        directory.mkdir()
        LOG.warning("three")
        assert said_in(path) == ["three"]


def test_if_it_cannot_be_opened_anew_the_old_file_goes_on(tmp_path: Path):
    directory, moved = tmp_path / "logs", tmp_path / "old"
    directory.mkdir()
    start_message_log(configured("--logfile", str(directory / "log")))
    directory.rename(moved)
    reopen_message_log()
    LOG.warning("two")
    first, second = (moved / "log").read_text().splitlines()
    assert "cannot reopen logfile" in first and first.endswith("No such file or directory")
    assert second.endswith("two")


def test_a_full_disk_is_told_of_once_and_a_wrong_line_is_a_bug(capsys):
    start_message_log(configured("--logfile", "/dev/full"))
    LOG.warning("one")
    LOG.warning("two")
    assert capsys.readouterr().err == "headrace: cannot write logfile /dev/full: No space left on device\n"
    LOG.warning("%d", "three")
    assert "TypeError" in capsys.readouterr().err
    with suppress(OSError):
        LOG.handlers.pop().close()


def test_a_file_that_cannot_be_written_is_refused_and_standard_error_needs_no_opening(tmp_path: Path, capsys):
    with pytest.raises(HeadraceError, match=r"cannot write logfile .*: Is a directory"):
        start_message_log(configured("--logfile", str(tmp_path)))
    start_message_log(configured())
    reopen_message_log()
    assert [handler.stream for handler in LOG.handlers] == [sys.stderr]
