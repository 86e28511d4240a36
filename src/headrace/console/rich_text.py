"""Build text for rich from data."""

from __future__ import annotations

from rich.text import Text

from headrace.console.escaping import printable


def line(*parts: object | tuple[object, str]) -> Text:
    """Return a line for rich that shows its parts literally.

    Rich reads markup ([red]) and emoji codes (:smile:) in plain strings, and its `escape` misses some.

    Args:
        parts: Values, or pairs of a value and a style.
    """
    text = Text()
    for part in parts:
        value, style = part if isinstance(part, tuple) else (part, "")
        text.append(printable(value), style)
    return text
