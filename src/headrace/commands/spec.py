"""Declaration of commands: one row each, from which dispatch, COMMAND and the reference page derive.

    Command("getrange", 4, run_getrange, "readonly", keys=(1, 1, 1), group="string", since="2.4.0",
            summary="Return a part of a string.", syntax="key start end")

The arity counts the command's name; -3 means three or more. Keys are (first, last, step); a negative `last`
counts from the end. A command with movable keys has a function from argv to their positions instead. If it
can store a key in another database, it has a function from argv to that database and key (`stores_in`).
A container such as CONFIG has subcommands with full names: "config|get".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import cython

# The ACL category implied by a flag, and by a group.
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
    """One command or subcommand. Immutable."""

    name: bytes  # lower case; "config|get" for a subcommand
    word: bytes  # the last part of the name: b"get" of "config|get"
    name_length: cython.int  # number of arguments that form the name: 1, or 2 for a subcommand
    arity: cython.int
    run: Callable[..., object] | None  # None for a container, which has only subcommands
    flags: frozenset[str]
    first_key: cython.int
    last_key: cython.int
    key_step: cython.int
    movable_keys: Callable[[list[bytes]], list[int]] | None
    stores_in: Callable[[list[bytes]], tuple[int, bytes] | None] | None  # a key in another database
    group: str
    since: str
    summary: str
    syntax: str
    complexity: str
    categories: frozenset[str]
    subcommands: dict[bytes, Command]  # by their last part, in lower and upper case
    write: cython.bint
    readonly: cython.bint
    blocking: cython.bint
    denyoom: cython.bint
    noscript: cython.bint  # scripts may not call it
    queueable: cython.bint  # queued inside MULTI; MULTI, EXEC and a few others run at once

    def __init__(
        self,
        name: str,
        arity: cython.int,
        run: Callable[..., object] | None,
        flags: str = "",
        keys: tuple[int, int, int] | Callable[[list[bytes]], list[int]] = (0, 0, 0),
        group: str = "generic",
        since: str = "1.0.0",
        summary: str = "",
        syntax: str = "",
        complexity: str = "O(1)",
        categories: str = "",
        subcommands: Iterable[Command] = (),
        stores_in: Callable[[list[bytes]], tuple[int, bytes] | None] | None = None,
    ) -> None:
        self.name = name.encode()
        self.word = name.rpartition("|")[2].encode()
        self.name_length = 1 + name.count("|")
        self.arity = arity
        self.run = run
        self.flags = frozenset(flags.split())
        self.first_key, self.last_key, self.key_step = keys if isinstance(keys, tuple) else (0, 0, 0)
        self.movable_keys = None if isinstance(keys, tuple) else keys
        self.stores_in = stores_in
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
        self.noscript = "noscript" in self.flags
        self.denyoom = "denyoom" in self.flags
        self.queueable = "at_once" not in self.flags
        self.flags -= {"at_once"}

    @cython.ccall
    def accepts_argument_count(self, words: cython.Py_ssize_t) -> cython.bint:
        """Return whether a request may have so many arguments, the name included."""
        return words == self.arity if self.arity > 0 else words >= -self.arity

    @cython.ccall
    def subcommand(self, word: bytes) -> Command | None:
        """Return the subcommand of that name, ignoring case, or None."""
        found = self.subcommands.get(word)
        return found if found is not None else self.subcommands.get(word.lower())

    def unique_subcommands(self) -> list[Command]:
        """Return each subcommand once."""
        return [sub for word, sub in self.subcommands.items() if word == sub.word]

    def key_positions(self, argv: list[bytes]) -> list[int]:
        """Return the positions of keys in argv, which must fit the arity. May raise CommandError."""
        if self.movable_keys is not None:
            return self.movable_keys(argv)
        if not self.first_key:
            return []
        last = self.last_key if self.last_key >= 0 else len(argv) + self.last_key
        return [at for at in range(self.first_key, last + 1, self.key_step) if at < len(argv)]

    def keys_with_databases(self, database: int, argv: list[bytes]) -> list[tuple[int, bytes]]:
        """Return each key that the request names, with its database; `database` is the selected one.

        May raise CommandError.
        """
        found = [(database, argv[at]) for at in self.key_positions(argv)]
        other = None if self.stores_in is None else self.stores_in(argv)
        return found if other is None else [*found, other]


def _categories(flags: frozenset[str], group: str, more: str, runs: bool) -> frozenset[str]:
    """Return the ACL categories implied by flags and group, and the additional ones; `-name` drops one."""
    if not runs:
        return frozenset(more.split()) or frozenset({"slow"})
    found = set(more.split())
    found |= {FLAG_CATEGORIES[flag] for flag in flags if flag in FLAG_CATEGORIES}
    if "scripting" in found:
        found.discard("read")  # the commands of a script are checked themselves
    if "admin" in flags:
        found.add("dangerous")
    if group in GROUP_CATEGORIES:
        found.add(GROUP_CATEGORIES[group])
    found.add("fast" if "fast" in flags else "slow")
    return frozenset(name for name in found if name[0] != "-" and f"-{name}" not in found)
