"""The fuzzer: bytes at random into whatever reads bytes from outside, and what must not happen does not.

A round begins with the corpus of its target and a seed, and knows nothing else: the same seed comes to the
same inputs in the same order. An input that shows something new (what Target.run returns, or the text of its
refusal; traced, the lines it reaches) joins the pool that further inputs are made from. What fails is made as
small as it can be. Rounds for hours, in processes that may die, are rounds.py's.
"""

from __future__ import annotations

import mmap
import re
import resource
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from mutations import Mutator

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
POOL_MAX = 3000  # inputs of a round that others are made from
RAW = 0.1  # how probably a change is left as it is, its seal broken
TOO_MUCH = "takes too much memory"
GROWTH_KIB_MAX = 256 * 1024  # memory that one execution may take
FILLS_MEMORY_S = 0.01  # in less than that nobody can have taken so much
NAMES = re.compile(r"0x[0-9a-f]+|[^A-Za-z ]+")  # what makes one message look like many


@dataclass(frozen=True)
class Target:
    """What reads bytes. run(data) raises one of refusals, or returns what was new about it, if it was new.

    finish: seals changed bytes as their format wants them; words: what that is made of; executions: of a
    test, interpreted and compiled.
    """

    name: str
    run: Callable[[bytes], Iterable[Hashable]]
    refusals: tuple[type[Exception], ...]
    words: Sequence[bytes] = ()
    finish: Callable[[bytes], bytes] = bytes
    executions: tuple[int, int] = (500, 5000)
    size_max: int = 2000

    def corpus(self) -> list[Path]:
        """What is kept to begin with, in a fixed order."""
        return sorted((CORPUS / self.name).iterdir())


class Failed(Exception):
    """An input did what none may do. what tells one failure from another; the cause is its cause."""

    def __init__(self, data: bytes, what: str) -> None:
        super().__init__(f"{what}: {data[:200]!r}")
        self.data = data
        self.what = what


class Memory:
    """How far the memory of this process has grown. Asking costs more than most executions do."""

    def __init__(self) -> None:
        self.peak_kib = 0

    def grown(self) -> bool:
        """Whether by too much since the last time."""
        was, self.peak_kib = self.peak_kib, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return self.peak_kib - was > GROWTH_KIB_MAX


MEMORY = Memory()


def attempt(target: Target, data: bytes) -> Iterable[Hashable]:
    """Run it once: what is new about it, or Failed."""
    since = time.perf_counter()
    try:
        found = target.run(data)
    except target.refusals as refusal:
        found = (type(refusal).__name__ + NAMES.sub("#", str(refusal)[:150]),)
    except Exception as error:
        raise Failed(data, signature(error)) from error
    if time.perf_counter() - since > FILLS_MEMORY_S and MEMORY.grown():
        raise Failed(data, TOO_MUCH)
    return found


def signature(error: BaseException) -> str:
    """The kind of an error and where it was raised, in our code if possible."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{type(error).__name__} at {frames[-1]}"


def minimised(target: Target, data: bytes, what: str, tries: int = 2000) -> bytes:
    """The smallest input found that fails in the same way: pieces taken out, then bytes made plain."""

    def fails(candidate: bytes) -> bool:
        try:
            attempt(target, candidate)
        except Failed as failed:
            return failed.what == what
        return False

    size = len(data) // 2
    while size and tries > 0:
        at = 0
        while at < len(data) and tries > 0:
            tries -= 1
            shorter = data[:at] + data[at + size :]
            if fails(shorter) or (shorter != (sealed := target.finish(shorter)) and fails(sealed)):
                data = shorter if fails(shorter) else sealed
            else:
                at += size
        size //= 2
    for at in range(min(len(data), tries)):
        plain = data[:at] + b"0" + data[at + 1 :]
        if data[at] != ord("0") and fails(plain):
            data = plain
    return data


@dataclass
class Round:
    """Executions of one target from one seed on."""

    target: Target
    seed: int
    note: mmap.mmap | None = None  # number, size and bytes of the input that is being tried
    tracing: bool = False
    pool: list[bytes] = field(default_factory=list)
    fresh: list[bytes] = field(default_factory=list)  # of the pool, what is not in the corpus
    seen: set[Hashable] = field(default_factory=set)
    number: int = 0
    slowest_s: float = 0.0

    def __post_init__(self) -> None:
        self.rng = Random(f"{self.target.name} {self.seed}")
        self.mutator = Mutator(self.rng, self.target.words, self.target.size_max)
        self.lines: set[Hashable] = set()

    def run(self, executions: int) -> None:
        """The corpus as it is, then so many changed inputs. Failed."""
        MEMORY.grown()  # what there is to begin with is nobody's
        for path in self.target.corpus():
            self.pool.append(path.read_bytes())
            self.try_one(self.pool[-1])
        for number in range(executions):
            if number % 100 == 0:
                MEMORY.grown()
            data = self.mutator.mutated(self.rng.choice(self.pool), self.rng.choice(self.pool))
            if self.rng.random() >= RAW:
                data = self.target.finish(data)
            self.number += 1
            if self.try_one(data):
                self.fresh.append(data)
                if len(self.pool) < POOL_MAX:
                    self.pool.append(data)

    def try_one(self, data: bytes) -> bool:
        """Whether it has shown anything new."""
        if self.note is not None:
            self.note[: 16 + len(data)] = (
                self.number.to_bytes(8, "little") + len(data).to_bytes(8, "little") + data
            )
        since = time.perf_counter()
        if self.tracing:
            self.lines.clear()
            sys.settrace(self.trace)
        try:
            found = attempt(self.target, data)
        finally:
            sys.settrace(None)
        self.slowest_s = max(self.slowest_s, time.perf_counter() - since)
        before = len(self.seen)
        self.seen.update(self.lines if self.tracing else found)
        return len(self.seen) > before

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Note the lines of the program, each with the one before it."""
        code = frame.f_code
        if "/headrace/" not in code.co_filename:
            return None
        last = 0

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal last
            if event == "line":
                self.lines.add((code, last, frame.f_lineno))
                last = frame.f_lineno
            return line

        return line
