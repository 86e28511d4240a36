"""A world around a stream, by seed: producers, groups, archives, and trims that are disturbed.

The world keeps its own books of what is archived and what each group has acknowledged; what trimming removes
is held against them. `Disturbed` is a client: between any two of its commands others act, or it dies.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import redis

from headrace.pipeline.trim import trim_stream
from headrace.pipeline.trim_horizon import RetentionPolicy
from headrace.pipeline.watermark import published_id, raise_watermark
from headrace.spark.source.offsets import EntryId, format_id, parse_id

STREAM = "s"
GROUPS = ("billing", "mail", "audit")
CONSUMERS = ("ann", "bob")


class Crash(Exception):
    """The process that trims, or archives, is dead."""


class _DisturbedPipeline(redis.client.Pipeline):
    disturb: Callable[[], None] = staticmethod(lambda: None)

    def immediate_execute_command(self, *words: Any, **options: Any) -> Any:
        self.disturb()
        return super().immediate_execute_command(*words, **options)

    def execute(self, raise_on_error: bool = True) -> Any:
        self.disturb()
        return super().execute(raise_on_error)


class Disturbed(redis.Redis):
    """A client before each command of which something else happens."""

    disturb: Callable[[], None] = staticmethod(lambda: None)

    def execute_command(self, *words: Any, **options: Any) -> Any:
        self.disturb()
        return super().execute_command(*words, **options)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        made = _DisturbedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made.disturb = self.disturb  # type: ignore[method-assign]
        return made


class World:
    """One stream and all who use it. step() does something; trim() trims and checks what is gone."""

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
        self.reborn = 0

    def close(self) -> None:
        self.client.close()
        self.trimmer.close()

    def step(self, disturbing: bool = False) -> None:
        """Something happens to the stream."""
        acts: list[tuple[int, Callable[[], None]]] = [
            (6, self.produce), (2, self.make_group), (2, self.move_group), (8, self.read),
            (8, self.acknowledge), (1, self.claim), (1, self.destroy_group), (5, self.archive),
            (1, self.delete_entry),
        ]  # fmt: skip
        if disturbing:  # what is worst for whoever has looked already
            acts += [(1, self.die), (15, self.make_group), (15, self.move_group), (25, self.claim)]
        if self.random.random() < (0.15 if disturbing else 0.01):
            acts = [(1, self.make_anew)]
        weights = [weight for weight, _ in acts]
        self.random.choices([act for _, act in acts], weights)[0]()

    def produce(self) -> None:
        for _ in range(self.random.randint(1, 12)):
            self.clock += self.random.randint(0, 2)
            self.sequence += (
                1  # never starts anew: no two entries have one ID, in whatever life of the stream
            )
            entry = (self.clock, self.sequence)
            self.client.xadd(STREAM, {"v": 1}, format_id(entry))
            self.entries.add(entry)
            for group in self.needed:
                self.needed[group].add(entry)

    def make_group(self) -> None:
        name = self.random.choice(GROUPS)
        if name not in self.needed and self.client.exists(STREAM):
            self.place(name, "CREATE")

    def move_group(self) -> None:
        name = self.random.choice(GROUPS)
        if name in self.needed:
            self.place(name, "SETID")

    def place(self, name: str, word: str) -> None:
        """Puts a group somewhere: it then needs what comes after, and what it has pending."""
        at = self.random.choice([(0, 0), *sorted(self.entries)[-30:]])
        pending = self.pending(name) if word == "SETID" else set()
        self.client.execute_command("XGROUP", word, STREAM, name, format_id(at))
        self.passed[name] = at
        self.needed[name] = pending | {entry for entry in self.entries if entry > at}

    def pending(self, name: str) -> set[EntryId]:
        """What the group has read and not acknowledged."""
        return {entry for entry in self.needed[name] if entry in self.delivered.get(name, set())}

    @property
    def delivered(self) -> dict[str, set[EntryId]]:
        """By group what it has pending, as the server lists it; only for groups that are moved."""
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
        """Somebody takes an entry that was read long ago, and acknowledged perhaps, once more."""
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

    def make_anew(self) -> None:
        """The stream is deleted; its successor begins earlier perhaps, but it is another."""
        self.client.delete(STREAM)
        self.life += 1
        self.reborn += 1
        self.entries.clear()
        self.needed.clear()
        self.checkpoint = (0, 0)
        self.clock = self.random.choice([0, self.clock])
        if self.random.random() < 0.8:
            self.produce()

    def archive(self) -> None:
        """A batch of an archive, which may die after it is committed and before it is told."""
        upto = sorted(entry for entry in self.entries if entry > self.checkpoint)[
            : self.random.randint(1, 40)
        ]
        if not upto:
            return
        if self.random.random() < 0.1:
            return  # dead before the files counted
        self.archived |= {(self.life, entry) for entry in upto}
        self.checkpoint = upto[-1]
        if self.random.random() < 0.9:
            raise_watermark(self.client, STREAM, format_id(self.checkpoint))

    def die(self) -> None:
        raise Crash

    def forget(self, entries: set[EntryId]) -> None:
        self.entries -= entries
        for needed in self.needed.values():
            needed -= entries

    def trim(self) -> None:
        """Trims, with others acting in between, and asserts that what it removed was free to go."""
        budget = [self.random.choice([0, 1, 2, 4])]

        def disturb() -> None:
            self.settle()
            if budget[0] and self.random.random() < 0.4:
                budget[0] -= 1
                self.step(disturbing=True)

        self.trimmer.disturb = disturb  # type: ignore[method-assign]
        wishes = RetentionPolicy(self.random.choice([0, 0, 5]), 0, self.random.random() < 0.5)
        mark = published_id(self.client, STREAM)
        archived = None if mark is None else parse_id(mark)
        dry = self.random.random() < 0.2
        before = len(self.entries)
        calm = not budget[0]
        with suppress(Crash):
            try:
                done = trim_stream(self.trimmer, STREAM, archived, wishes, dry)
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
        self.settle()

    def settle(self) -> None:
        """Finds what is gone that nobody but the trimmer can have removed, and holds it against the books."""
        there = {parse_id(each[0].decode()) for each in self.client.xrange(STREAM)}
        gone = self.entries - there
        for entry in gone:
            assert (self.life, entry) in self.archived, f"{entry} was not archived"
            for name, needed in self.needed.items():
                assert entry not in needed, f"{entry} was needed by {name}"
        if gone:
            kept = max(each for life, each in self.archived if life == self.life)
            assert kept not in gone, "the archive's last entry went"
        self.removed += len(gone)
        self.forget(gone)
