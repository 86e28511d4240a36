"""Suggest a similar name in an error message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SIMILARITY_MIN = 0.6


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most similar to the name, ignoring case; None if none is similar."""
    by_folded: dict[str, str] = {}
    for candidate in candidates:
        by_folded.setdefault(candidate.casefold(), candidate)
    found = difflib.get_close_matches(name.casefold(), by_folded, 1, SIMILARITY_MIN)
    return by_folded[found[0]] if found else None


def suggestion_suffix(name: str, candidates: Iterable[str]) -> str:
    """Return the end of an error message such as "; did you mean 'orders'?", or an empty string."""
    found = nearest(name, candidates)
    return "" if found is None else f"; did you mean {found!r}?"
