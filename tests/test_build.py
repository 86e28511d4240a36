"""The build compiles a module again when a declaration file that it uses has changed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

SETUP = Path(__file__).resolve().parent.parent / "setup.py"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """setup.py as a module, in a source tree where `a` cimports `b`, and `b` cimports `a`."""
    spec = importlib.util.spec_from_file_location("headrace_setup", SETUP)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src/p").mkdir(parents=True)
    (tmp_path / "build/c/compiled/src/p").mkdir(parents=True)
    texts = {"a": "from p cimport b as other, d\n", "b": "from p.a cimport X  # from p cimport c\n", "c": ""}
    for name, text in texts.items():
        (tmp_path / f"src/p/{name}.pxd").write_text(text)
        (tmp_path / f"build/c/compiled/src/p/{name}.c").touch()
    return module


def test_declaration_files_include_a_module_cimported_from_its_package(build: ModuleType) -> None:
    assert build.declaration_files("p.a") == {Path("src/p/a.pxd"), Path("src/p/b.pxd")}
    assert build.declaration_files("p.c") == {Path("src/p/c.pxd")}
    assert build.declaration_files("p.missing") == set()


def test_c_older_than_a_declaration_file_is_made_again(build: ModuleType) -> None:
    made = Path("build/c/compiled/src/p")
    os.utime("src/p/b.pxd", (2e9, 2e9))
    build.remove_outdated_c("compiled", ["p.a", "p.b", "p.c", "p.missing"])
    assert sorted(path.name for path in made.iterdir()) == ["c.c"]
