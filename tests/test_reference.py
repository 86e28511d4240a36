"""The reference pages say what the code declares."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).parent.parent


def test_the_pages_are_current() -> None:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec and spec.loader
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    for name, page in reference.PAGES.items():
        assert (ROOT / "docs" / name).read_text() == page(), f"{name} is stale: python scripts/reference.py"


def test_every_command_has_a_summary_and_a_cost() -> None:
    from headrace.commands.table import COMMANDS

    for command in COMMANDS:
        for row in command.unique_subcommands() or [command]:
            assert row.summary and row.complexity and row.since, row.name
