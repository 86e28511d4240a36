"""How to go on with long work that was broken off: said together with why."""

from __future__ import annotations

from rich.console import Console

from headrace.console.rich_text import line
from headrace.errors import HeadraceError


def add_hint(console: Console, stop: HeadraceError | KeyboardInterrupt, hint: str) -> None:
    """Put the hint behind an error's text; after Ctrl-C, which has none, print it."""
    if isinstance(stop, HeadraceError):
        stop.args = (f"{stop}; {hint}",)
    else:
        console.print(line(hint), soft_wrap=True)
