"""Runs the Python blocks of a guide, as a reader would who types them in, section by section.

A line `expression  # → text` is compared: the text is what the interpreter would print. Blocks of one section
(between two `##` headings) share their names, and what the section before left behind is gone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVER = "redis://127.0.0.1:7777"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Section:
    """What stands between two headings, and the line where each block begins."""

    title: str
    blocks: tuple[tuple[int, str], ...]

    def on(self, url: str) -> Section:
        """The same, with that server in the place of the one on the page."""
        return Section(self.title, tuple((line, block.replace(SERVER, url)) for line, block in self.blocks))


def sections(page: Path) -> Iterator[Section]:
    """Those that have a block of Python."""
    text = page.read_text()
    begins = [found.start() for found in re.finditer(r"^##? ", text, re.MULTILINE)]
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        blocks = tuple(
            (text.count("\n", 0, found.start(1)), found[1]) for found in FENCE.finditer(text, begin, end)
        )
        if blocks:
            yield Section(text[begin : text.index("\n", begin)].lstrip("# "), blocks)


def run(section: Section, names: dict[str, Any]) -> int:
    """Every statement in turn; how many printed values were compared."""
    compared = 0
    for line, block in section.blocks:
        lines = block.splitlines()
        for node in ast.parse(block).body:
            ast.increment_lineno(node, line)  # a traceback shows the line of the page
            _, arrow, shown = lines[(node.end_lineno or 0) - line - 1].partition("# → ")
            if arrow and isinstance(node, ast.Expr):
                value = eval(compiled(ast.Expression(node.value), "eval"), names)
                assert repr(value) == shown.strip(), f"{ast.unparse(node)} (line {node.lineno})"
                compared += 1
            else:
                exec(compiled(ast.Module([node], []), "exec"), names)
    return compared


def compiled(tree: ast.Module | ast.Expression, mode: str) -> Any:
    """Without the __future__ of this file."""
    return compile(tree, "library.md", mode, dont_inherit=True)
