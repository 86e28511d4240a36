"""The names that ACL rules can use: commands ("config|get" for a subcommand) and categories.

A rule may also name a command that only Redis has: such a rule is kept and shown, and has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# All categories of Redis, so that its rules are accepted; some contain no command here.
CATEGORIES = (
    b"keyspace",
    b"read",
    b"write",
    b"set",
    b"sortedset",
    b"list",
    b"hash",
    b"string",
    b"bitmap",
    b"hyperloglog",
    b"geo",
    b"stream",
    b"pubsub",
    b"admin",
    b"fast",
    b"slow",
    b"blocking",
    b"dangerous",
    b"connection",
    b"transaction",
    b"scripting",
)


class CommandCatalogue:
    """The commands, by lower-case name, as ACL rules see them."""

    def __init__(self) -> None:
        self.members_by_name: dict[bytes, list[bytes]] = {}  # by name: the command itself and its subcommands
        self.container_commands: set[bytes] = set()
        self.absent_commands: set[bytes] = set()  # commands and subcommands of Redis that do not exist here
        self.names_by_category: dict[bytes, list[bytes]] = {category: [] for category in CATEGORIES}
        self.members_by_category: dict[bytes, list[bytes]] = {category: [] for category in CATEGORIES}

    def add(self, name: bytes, categories: Iterable[str], subcommands: Mapping[bytes, Iterable[str]]) -> None:
        """Add a command and its subcommands, each with its categories.

        A rule on a category that contains a container command applies to all subcommands of that command.
        """
        self.members_by_name[name] = [name, *subcommands]
        if subcommands:
            self.container_commands.add(name)
        self._enter(name, categories)
        for sub, more in subcommands.items():
            self.members_by_name[sub] = [sub]
            self._enter(sub, more)

    def add_absent(self, commands: Mapping[bytes, Iterable[bytes]]) -> None:
        """Add those of Redis's commands and subcommands that do not exist here.

        Call it after all add() calls: names that were added there are skipped.
        """
        for name, subcommands in commands.items():
            subs = set(subcommands)
            if subs:
                self.container_commands.add(name)
            self.absent_commands |= ({name} | subs) - self.members_by_name.keys()

    def _enter(self, name: bytes, categories: Iterable[str]) -> None:
        for category in categories:
            key = category.encode()
            self.names_by_category[key].append(name)
            self.members_by_category[key] += self.members_by_name[name]
