"""What rules can speak of: commands by their whole names ("config|get" for a subcommand), and categories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Every category of Redis's, so that its rules are understood here; some have no command here.
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
    """The commands that there are, as rules see them: all names are lower case."""

    def __init__(self) -> None:
        self.members: dict[bytes, list[bytes]] = {}  # by name: itself, and its subcommands
        self.containers: set[bytes] = set()
        self.names_by_category: dict[bytes, list[bytes]] = {category: [] for category in CATEGORIES}
        self.members_by_category: dict[bytes, list[bytes]] = {category: [] for category in CATEGORIES}

    def add(self, name: bytes, categories: Iterable[str], subcommands: Mapping[bytes, Iterable[str]]) -> None:
        """A command, and its subcommands, each with its categories.

        A category that holds a container chooses all of its subcommands, although it names only itself.
        """
        self.members[name] = [name, *subcommands]
        if subcommands:
            self.containers.add(name)
        self._enter(name, categories)
        for sub, more in subcommands.items():
            self.members[sub] = [sub]
            self._enter(sub, more)

    def _enter(self, name: bytes, categories: Iterable[str]) -> None:
        for category in categories:
            key = category.encode()
            self.names_by_category[key].append(name)
            self.members_by_category[key] += self.members[name]
