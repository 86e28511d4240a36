"""What an installation lacks is said in one line, before anything is compiled or written."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def load(path: Path) -> ModuleType:
    """Import a program as a module, without running it."""
    loader = SourceFileLoader(path.stem.replace("-", "_"), str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_a_build_without_a_compiler_or_headers_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    setup = load(ROOT / "setup.py")
    setup.check_tools()
    monkeypatch.setattr(setup.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"without the C compiler .*apt-get install gcc"):
        setup.check_tools()
    monkeypatch.undo()
    monkeypatch.setattr(setup.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(SystemExit, match=r"without .*Python\.h .*apt-get install python3-dev"):
        setup.check_tools()


def test_py_files_without_cython_writes_no_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    program = load(ROOT / "scripts" / "py-files")

    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(program, "distribution", missing)
    target = tmp_path / "headrace.zip"
    assert program.main([str(target)]) == 2
    assert capsys.readouterr().err == "py-files: needs the package cython: pip install cython\n"
    assert not target.exists()


@pytest.mark.parametrize("lacking", ["gcc", "redis-server"])
def test_a_user_is_told_what_to_install_and_stopped_if_it_is_needed(lacking: str, tmp_path: Path) -> None:
    for name in ("bash", "env", "gcc", "java", "redis-server", "valkey-server", "php", "ruby", "grep"):
        found = shutil.which(name)
        (tmp_path / name).symlink_to(found or "/bin/true")
    (tmp_path / lacking).unlink()
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / "system-packages"],
        env=os.environ | {"PATH": str(tmp_path), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == (1 if lacking == "gcc" else 0), done.stderr
    kind = "needed" if lacking == "gcc" else "optional"
    line = next(line for line in done.stderr.splitlines() if line.startswith(kind))
    assert f"sudo apt-get install {lacking}" in line
