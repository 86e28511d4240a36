"""How a command declares itself: one row, from which dispatch, COMMAND and the reference page derive.

    Command("getrange", 4, run_getrange, "readonly", keys=(1, 1, 1), group="string", since="2.4.0",
            summary="Return a part of a string.", syntax="key start end")

Arity counts the command's name; -3 means three or more. Keys are (first, last, step), last counted from
the end when negative; a command whose keys move gives a function from argv to their positions instead.
A container such as CONFIG gives subcommands, whose names are written out whole: "config|get".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import cython

# ACL category for each flag that implies one, and for each group.
FLAG_CATEGORIES = {
    "write": "write",
    "admin": "admin",
    "pubsub": "pubsub",
    "blocking": "blocking",
    "readonly": "read",
}
GROUP_CATEGORIES = {"string": "string", "stream": "stream", "generic": "keyspace", "connection": "connection"}
GROUP_CATEGORIES["transactions"] = "transaction"


@cython.final
@cython.cclass
class Command:
    """One command or subcommand. Never changed once made."""

    name: bytes  # lower case; "config|get" for a subcommand
    word: bytes  # what the client writes last: b"get" of "config|get"
    name_length: cython.int  # of the request that are its name: 1, or 2 for a subcommand
    arity: cython.int
    run: Callable[[Any], object] | None  # None for a container, which runs only through its subcommands
    flags: frozenset[str]
    first_key: cython.int
    last_key: cython.int
    key_step: cython.int
    movable_keys: Callable[[list[bytes]], list[int]] | None
    group: str
    since: str
    summary: str
    syntax: str
    complexity: str
    categories: frozenset[str]
    subcommands: dict[bytes, Command]  # by lower and upper case word
    write: cython.bint
    readonly: cython.bint
    blocking: cython.bint
    denyoom: cython.bint
    queueable: cython.bint  # inside MULTI it is queued; MULTI, EXEC and a few others run at once

    def __init__(
        self,
        name: str,
        arity: cython.int,
        run: Callable[[Any], object] | None,
        flags: str = "",
        keys: tuple[int, int, int] | Callable[[list[bytes]], list[int]] = (0, 0, 0),
        group: str = "generic",
        since: str = "1.0.0",
        summary: str = "",
        syntax: str = "",
        complexity: str = "O(1)",
        categories: str = "",
        subcommands: Iterable[Command] = (),
    ) -> None:
        self.name = name.encode()
        self.word = name.rpartition("|")[2].encode()
        self.name_length = 1 + name.count("|")
        self.arity = arity
        self.run = run
        self.flags = frozenset(flags.split())
        self.first_key, self.last_key, self.key_step = keys if isinstance(keys, tuple) else (0, 0, 0)
        self.movable_keys = None if isinstance(keys, tuple) else keys
        self.group = group
        self.since = since
        self.summary = summary
        self.syntax = syntax
        self.complexity = complexity
        self.categories = _categories(self.flags, group, categories, run is not None)
        self.subcommands = {}
        for sub in subcommands:
            self.subcommands[sub.word] = sub
            self.subcommands[sub.word.upper()] = sub
        self.write = "write" in self.flags
        self.readonly = "readonly" in self.flags
        self.blocking = "blocking" in self.flags
        self.denyoom = "denyoom" in self.flags
        self.queueable = "at_once" not in self.flags
        self.flags -= {"at_once"}

    @cython.ccall
    def accepts_argument_count(self, words: cython.Py_ssize_t) -> cython.bint:
        """Whether so many words, the name included, are a possible request."""
        return words == self.arity if self.arity > 0 else words >= -self.arity

    @cython.ccall
    def subcommand(self, word: bytes) -> Command | None:
        """The subcommand of that name, in any case; None when there is none."""
        found = self.subcommands.get(word)
        return found if found is not None else self.subcommands.get(word.lower())

    def unique_subcommands(self) -> list[Command]:
        """Every subcommand once."""
        return [sub for word, sub in self.subcommands.items() if word == sub.word]

    def key_positions(self, argv: list[bytes]) -> list[int]:
        """Where in argv the keys stand; argv fits the arity. Movable keys may raise CommandError."""
        if self.movable_keys is not None:
            return self.movable_keys(argv)
        if not self.first_key:
            return []
        last = self.last_key if self.last_key >= 0 else len(argv) + self.last_key
        return [at for at in range(self.first_key, last + 1, self.key_step) if at < len(argv)]


def _categories(flags: frozenset[str], group: str, more: str, runs: bool) -> frozenset[str]:
    """The ACL categories that flags and group imply, and those given besides."""
    if not runs:
        return frozenset(more.split()) or frozenset({"slow"})
    found = set(more.split())
    found |= {FLAG_CATEGORIES[flag] for flag in flags if flag in FLAG_CATEGORIES}
    if "admin" in flags:
        found.add("dangerous")
    if group in GROUP_CATEGORIES:
        found.add(GROUP_CATEGORIES[group])
    found.add("fast" if "fast" in flags else "slow")
    return frozenset(found)
