"""Key specifications: where a command's keys are and what it does with them, in Redis's terms.

A row declares them in a short notation, which is parsed once:

    "1: RO access"                  the key is argument 1
    "1..-1: RM delete"              all arguments from the first to the last
    "1..-1/2: OW update"            every second one
    "1: RO access, 2: OW update"    two keys with different uses
    "numkeys 2: RW access update"   the keys follow their number, which is argument 2
    "numkeys 1/2: OW update"        the same; each key is followed by its value
    "STREAMS 4: RO access"          the keys follow this word, which is looked for from argument 4 on
    "1: not_key"                    a channel, which is shown so that a cluster can find its slot

The use begins with what happens to the key: RO (read only), RW (read and written), OW (overwritten), RM
(removed). `access`, `update`, `insert` and `delete` say what happens to the user's data in it; a command
without them only looks at metadata. These words determine which access rights the command needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.access.selector import READ, WRITE

KeyFlags = tuple[str, ...]

LOOKUP_ONLY = 0
# What a flag of a key specification lets the command do with the user's data; other flags do nothing.
_USE_OF_FLAG = {"access": READ, "insert": WRITE, "update": WRITE, "delete": WRITE}


class Span(NamedTuple):
    """A range of argument positions. A negative `last` counts from the end; with `first` 0 it is empty."""

    first: int = 0
    last: int = 0
    step: int = 0

    def positions(self, words: int) -> list[int]:
        """Return the positions in a request that has `words` arguments, the command's name included."""
        if not self.first:
            return []
        last = self.last if self.last >= 0 else words + self.last
        return [at for at in range(self.first, last + 1, self.step) if at < words]


class KeySpec(NamedTuple):
    """Where one or several keys of a command are, and how the command uses them."""

    flags: KeyFlags
    span: Span  # none if the keys are found by the row's function
    begin_search_map: dict[bytes, Any]  # begin_search and find_keys, as COMMAND shows them
    find_keys_map: dict[bytes, Any]


def parse_span(text: str) -> Span:
    """Parse `1`, `1..-1` or `1..-1/2`; an empty text is the empty span. Raises ValueError."""
    if not text:
        return Span()
    positions, _, step = text.partition("/")
    first, dots, last = positions.partition("..")
    return Span(int(first), int(last if dots else first), int(step or 1))


def parse_key_specs(text: str) -> tuple[KeySpec, ...]:
    """Parse the notation of a row. Raises ValueError."""
    return tuple(_parse_key_spec(part) for part in text.split(", ")) if text else ()


def _parse_key_spec(text: str) -> KeySpec:
    place, colon, flags = text.partition(": ")
    if not colon:
        raise ValueError(f"no use of a key: {text!r}")
    word, _, where = place.rpartition(" ")
    span = parse_span(where)
    if not word:
        last = span.last - span.first if span.last > 0 else span.last
        return KeySpec(
            tuple(flags.split()), span, _begin_search_index(span.first), _find_keys_range(last, span.step, 0)
        )
    if word == "numkeys":
        numbers = {b"keynumidx": 0, b"firstkey": 1, b"keystep": span.step}
        find: dict[bytes, Any] = {b"type": b"keynum", b"spec": numbers}
        return KeySpec(tuple(flags.split()), Span(), _begin_search_index(span.first), find)
    begin = {b"type": b"keyword", b"spec": {b"keyword": word.encode(), b"startfrom": span.first}}
    return KeySpec(tuple(flags.split()), Span(), begin, _find_keys_range(-1, 1, 2))


def _begin_search_index(first: int) -> dict[bytes, Any]:
    return {b"type": b"index", b"spec": {b"index": first}}


def _find_keys_range(last: int, step: int, limit: int) -> dict[bytes, Any]:
    """Return a range; its last key is `last` after the first one, or counted from the end if negative."""
    return {b"type": b"range", b"spec": {b"lastkey": last, b"keystep": step, b"limit": limit}}


def shown_span(specs: tuple[KeySpec, ...]) -> Span:
    """Return the first and last position and the step of all keys together, as COMMAND shows them."""
    if not specs:
        return Span()
    first, last = specs[0].span, specs[-1].span
    return Span(first.first, last.last, first.step)


def required_access(flags: KeyFlags) -> int:
    """Return what access rules must allow for a key with these flags: READ, WRITE, both, or LOOKUP_ONLY."""
    use = LOOKUP_ONLY
    for flag in flags:
        use |= _USE_OF_FLAG.get(flag, LOOKUP_ONLY)
    return use
