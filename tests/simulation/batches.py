"""Random requests for the simulation, in batches that arrive together (tests/grammars/crashes.txt)."""

from __future__ import annotations

from random import Random

from support.command_generator import Command, CommandGenerator

GROUPS = (b"g", b"h")


class Batches:
    """The requests of a client. It knows the time and the IDs of entries, so most requests have an effect."""

    def __init__(self, chance: Random, grammar: str = "crashes") -> None:
        self.chance = chance
        self.generator = CommandGenerator(grammar, chance)
        self.empty = True  # nothing exists yet
        self.first = ["append"] * 4 + ["read"]
        if grammar == "crashes_with_hot_rules":
            self.first += ["hot-rule"] * 3

    def set_known(self, ids: list[bytes]) -> None:
        """Set the IDs of entries that exist or are pending, the newest last."""
        self.generator.known = ids
        self.empty = False

    def next(self, now_ms: int) -> list[Command]:
        """Return some requests that arrive together; they may fail."""
        self.generator.now = now_ms
        requests = self.generator.commands(self.chance.choice((1, 1, 2, 3, 5)))
        if self.empty:
            create = [[b"XGROUP", b"CREATE", b"s", group, b"0", b"MKSTREAM"] for group in GROUPS]
            requests = [
                *create,
                *(self.generator.command(rule) for rule in self.first),
                *requests,
            ]
        if self.chance.random() < 0.2:
            requests = [[b"MULTI"], *requests, [b"EXEC"]]
        if self.chance.random() < 0.15:
            requests.insert(0, [b"SELECT", self.chance.choice((b"0", b"0", b"0", b"1", b"1", b"15"))])
        return requests
