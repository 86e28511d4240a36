"""A server that may not use its directory says so, and does not claim that a file is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from headrace.errors import HeadraceError, UsageError
from headrace.server.main import serve
from support.unprivileged import in_unprivileged_child, open_to_all

CASES: dict[str, tuple[str, int]] = {
    "log directory": ("home/appendonlydir", 0),
    "log directory that cannot be listed": ("home/appendonlydir", 0o111),
    "manifest": ("home/appendonlydir/appendonly.aof.manifest", 0),
    "base": ("home/appendonlydir/appendonly.aof.1.base.rdb", 0),
    "lock": ("home/headrace.lock", 0),
    "data directory": ("home", 0),
    "data directory that cannot be listed": ("home", 0o111),
    "its parent": (".", 0),
}


@pytest.fixture(params=CASES)
def home(request, tmp_path: Path):
    home = tmp_path / "home"
    with headrace.open(home) as db:
        db.backend.add(b"s", b"1-1", {"f": "v"})
    open_to_all(tmp_path)
    for path in home.rglob("*"):
        path.chmod(0o777)
    name, mode = CASES[request.param]
    home.chmod(0o777)
    (tmp_path / name).chmod(mode)
    yield home
    (tmp_path / name).chmod(0o777)


def error_of(start: Callable[[], object], kind: type[HeadraceError]) -> str:
    try:
        start()
    except kind as error:
        return str(error)
    return "it started"


def test_missing_permission_is_reported_when_a_server_starts(home: Path):
    arguments = ["--port", "free", "--dir", str(home)]
    said = in_unprivileged_child(lambda: error_of(lambda: serve(arguments), UsageError))
    assert "permission denied" in said.lower() and str(home) in said and "\n" not in said


def test_missing_permission_is_reported_when_a_program_opens_a_database(home: Path):
    said = in_unprivileged_child(lambda: error_of(lambda: headrace.open(home), HeadraceError))
    assert "permission denied" in said.lower() and str(home) in said and "\n" not in said


def test_a_file_in_place_of_the_data_directory_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="it is not a directory"):
        serve(["--port", "free", "--dir", str(tmp_path / "file")])
