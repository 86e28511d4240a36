"""A random simulation around a stream: producers, groups, archive runs, and trims with concurrent changes.

The simulation records which entries are archived and which each group still needs; trimming may remove no
other entries. `Disturbed` is a client: between any two of its commands others act, or its process dies.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import redis

from headrace.archive.watermark import published_watermarks
from headrace.pipeline.trimming.horizon import RetentionPolicy
from headrace.pipeline.trimming.trim_streams import trim_stream
from headrace.positions.entry_ids import EntryId, format_id, parse_id
from support.archives import publish

STREAM = "s"
GROUPS = ("billing", "mail", "audit")
CONSUMERS = ("ann", "bob")


class Crash(Exception):
    """Raised when the process that trims or archives dies."""


class _DisturbedPipeline(redis.client.Pipeline):
    disturb: Callable[[], None] = staticmethod(lambda: None)

    def immediate_execute_command(self, *words: Any, **options: Any) -> Any:
        self.disturb()
        return super().immediate_execute_command(*words, **options)

    def execute(self, raise_on_error: bool = True) -> Any:
        self.disturb()
        return super().execute(raise_on_error)


class Disturbed(redis.Redis):
    """A client that calls `disturb` before each command."""

    disturb: Callable[[], None] = staticmethod(lambda: None)

    def execute_command(self, *words: Any, **options: Any) -> Any:
        self.disturb()
        return super().execute_command(*words, **options)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        made = _DisturbedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made.disturb = self.disturb  # type: ignore[method-assign]
        return made


class World:
    """A stream and its users. step() does a random action; trim() trims and checks what was removed."""

    def __init__(self, port: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.client = redis.Redis(port=port)
        self.trimmer = Disturbed(port=port)
        self.client.flushall()
        self.life = 0  # which stream of that name this is
        self.clock = 0
        self.sequence = 0
        self.entries: set[EntryId] = set()
        self.archived: set[tuple[int, EntryId]] = set()
        self.checkpoint: EntryId = (0, 0)
        self.needed: dict[str, set[EntryId]] = {}  # by group: what it has not acknowledged yet
        self.passed: dict[str, EntryId] = {}  # by group: how far it has read
        self.removed = 0
        self.stops: set[str] = set()
        self.recreated = 0

    def close(self) -> None:
        self.client.close()
        self.trimmer.close()

    def step(self, disturbing: bool = False) -> None:
        """Do a random action."""
        acts: list[tuple[int, Callable[[], None]]] = [
            (6, self.produce), (2, self.make_group), (2, self.move_group), (8, self.read),
            (8, self.acknowledge), (1, self.claim), (1, self.destroy_group), (5, self.archive),
            (1, self.delete_entry),
        ]  # fmt: skip
        if disturbing:  # actions that invalidate what the trimming client has read
            acts += [(1, self.die), (15, self.make_group), (15, self.move_group), (25, self.claim)]
        if self.random.random() < (0.15 if disturbing else 0.01):
            acts = [(1, self.recreate)]
        weights = [weight for weight, _ in acts]
        self.random.choices([act for _, act in acts], weights)[0]()

    def produce(self) -> None:
        for _ in range(self.random.randint(1, 12)):
            self.clock += self.random.randint(0, 2)
            self.sequence += 1  # never reset: IDs are unique, also across recreated streams
            entry = (self.clock, self.sequence)
            self.client.xadd(STREAM, {"v": 1}, format_id(entry))
            self.entries.add(entry)
            for group in self.needed:
                self.needed[group].add(entry)

    def make_group(self) -> None:
        name = self.random.choice(GROUPS)
        if name not in self.needed and self.client.exists(STREAM):
            self.set_position(name, "CREATE")

    def move_group(self) -> None:
        name = self.random.choice(GROUPS)
        if name in self.needed:
            self.set_position(name, "SETID")

    def set_position(self, name: str, subcommand: str) -> None:
        """Set the position of a group, which then needs all later entries and its pending ones."""
        at = self.random.choice([(0, 0), *sorted(self.entries)[-30:]])
        pending = self.pending(name) if subcommand == "SETID" else set()
        self.client.execute_command("XGROUP", subcommand, STREAM, name, format_id(at))
        self.passed[name] = at
        self.needed[name] = pending | {entry for entry in self.entries if entry > at}

    def pending(self, name: str) -> set[EntryId]:
        """Return the entries that the group has read and not acknowledged."""
        return {entry for entry in self.needed[name] if entry in self.delivered.get(name, set())}

    @property
    def delivered(self) -> dict[str, set[EntryId]]:
        """The pending entries of each group according to the server."""
        return {
            name: {
                parse_id(each["message_id"].decode())
                for each in self.client.xpending_range(STREAM, name, "-", "+", 10_000)
            }
            for name in self.needed
        }

    def read(self) -> None:
        for name in self.some_group():
            answer = self.client.xreadgroup(
                name, self.random.choice(CONSUMERS), {STREAM: ">"}, count=self.random.randint(1, 20)
            )
            for _, entries in answer or []:
                self.passed[name] = parse_id(entries[-1][0].decode())

    def acknowledge(self) -> None:
        for name in self.some_group():
            pending = self.client.xpending_range(STREAM, name, "-", "+", self.random.randint(1, 25))
            for each in pending:
                if self.random.random() < 0.9:
                    self.client.xack(STREAM, name, each["message_id"])
                    self.needed[name].discard(parse_id(each["message_id"].decode()))

    def claim(self) -> None:
        """Claim an old entry again, which may already be acknowledged."""
        for name in self.some_group():
            there = sorted(self.entries)
            if there:
                entry = self.random.choice(there[:10])
                taken = self.client.xclaim(
                    STREAM, name, "ann", 0, [format_id(entry)], force=True, justid=True
                )
                if taken:
                    self.needed[name].add(entry)

    def destroy_group(self) -> None:
        for name in self.some_group():
            self.client.xgroup_destroy(STREAM, name)
            del self.needed[name]

    def some_group(self) -> list[str]:
        return [self.random.choice(sorted(self.needed))] if self.needed else []

    def delete_entry(self) -> None:
        if self.entries:
            entry = self.random.choice(sorted(self.entries))
            self.client.xdel(STREAM, format_id(entry))
            self.forget({entry})

    def recreate(self) -> None:
        """Delete the stream and make another one, whose IDs may begin earlier."""
        self.client.delete(STREAM)
        self.life += 1
        self.recreated += 1
        self.entries.clear()
        self.needed.clear()
        self.checkpoint = (0, 0)
        self.clock = self.random.choice([0, self.clock])
        if self.random.random() < 0.8:
            self.produce()

    def archive(self) -> None:
        """Archive a batch; the process may die before it is valid, or before the watermark is raised."""
        upto = sorted(entry for entry in self.entries if entry > self.checkpoint)[
            : self.random.randint(1, 40)
        ]
        if not upto:
            return
        if self.random.random() < 0.1:
            return  # died before the files were valid
        self.archived |= {(self.life, entry) for entry in upto}
        self.checkpoint = upto[-1]
        if self.random.random() < 0.9:
            publish(self.client, STREAM, format_id(self.checkpoint))

    def die(self) -> None:
        raise Crash

    def forget(self, entries: set[EntryId]) -> None:
        self.entries -= entries
        for needed in self.needed.values():
            needed -= entries

    def trim(self) -> None:
        """Trim while others act, and check what was removed."""
        budget = [self.random.choice([0, 1, 2, 4])]

        def disturb() -> None:
            self.check_removed()
            if budget[0] and self.random.random() < 0.4:
                budget[0] -= 1
                self.step(disturbing=True)

        self.trimmer.disturb = disturb  # type: ignore[method-assign]
        retention = RetentionPolicy(self.random.choice([0, 0, 5]), 0, self.random.random() < 0.5)
        watermarks = published_watermarks(self.client, STREAM)
        dry = self.random.random() < 0.2
        before = len(self.entries)
        calm = not budget[0]
        with suppress(Crash):
            try:
                done = trim_stream(self.trimmer, STREAM, watermarks, retention, dry)
            except redis.ResponseError as error:
                if "no such key" not in str(error):
                    raise
            else:
                self.stops.add(done.reasons[0])
                there = self.client.xlen(STREAM)
                if calm and not dry:
                    assert (done.removed, done.remaining) == (before - there, there)
                elif calm:
                    assert there == before
        self.check_removed()

    def check_removed(self) -> None:
        """Check that the entries removed by trimming were archived, and needed by no group."""
        there = {parse_id(each[0].decode()) for each in self.client.xrange(STREAM)}
        removed = self.entries - there
        for entry in removed:
            assert (self.life, entry) in self.archived, f"{entry} was not archived"
            for name, needed in self.needed.items():
                assert entry not in needed, f"{entry} was needed by {name}"
        if removed:
            kept = max(each for life, each in self.archived if life == self.life)
            assert kept not in removed, "the last archived entry was removed"
        self.removed += len(removed)
        self.forget(removed)
