"""Every block of Python in docs/library.md, and of the library in README.md, runs and prints what it says."""

from __future__ import annotations

import logging
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

import headrace
from examples import guide

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "library.md"
SECTIONS = list(guide.sections(PAGE))
IN_SHORT = [each for each in guide.sections(ROOT / "README.md") if each.title == "Inside a Python program"]


def test_the_page_is_what_the_others_expect() -> None:
    assert len(SECTIONS) >= 9
    shown = sum(block.count("# → ") for section in SECTIONS for _, block in section.blocks)
    assert shown >= 25
    assert len(IN_SHORT) == 1


@pytest.mark.parametrize("section", [*SECTIONS, *IN_SHORT], ids=lambda section: section.title)
def test_a_section_runs(
    section: guide.Section,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    server_url: str,
) -> None:
    caplog.set_level(logging.CRITICAL, "headrace.consumer")
    monkeypatch.chdir(tmp_path)
    here = section.on(server_url)
    assert guide.run(here, {}) == sum(block.count("# → ") for _, block in section.blocks)


def test_a_handler_of_the_readme_that_always_fails_leads_to_a_dead_letter(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "headrace.consumer")
    monkeypatch.chdir(tmp_path)
    (line, block), *_ = IN_SHORT[0].blocks
    failing = block.replace('print("billed", entry.text)', 'raise ValueError("no address")')
    assert failing != block
    names: dict[str, Any] = {}
    guide.run(guide.Section("failing", ((line, failing),)), names)
    assert names["billing"].info().pending == 0
    assert [letter.deliveries for letter in names["billing"].dead_letters] == [5]
    names["db"].close()


def test_the_tests_on_the_page_pass(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (section,) = [section for section in SECTIONS if section.title == "Tests"]
    (tmp_path / "test_shop.py").write_text("\n".join(block for _, block in section.blocks))
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(headrace.__file__).parents[1]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "headrace.testing", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


def test_what_a_second_process_is_told_stands_on_the_page(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(headrace.__file__).parents[1]))
    with headrace.open("shop"):
        command = [sys.executable, "-c", 'import headrace; headrace.open("shop")']
        said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    last = said.strip().splitlines()[-1].replace(str(tmp_path), "/srv")
    told = re.sub(r"by process \d+ \([^,]*,", "by process 4711 (app.py,", last)
    assert told in PAGE.read_text()
