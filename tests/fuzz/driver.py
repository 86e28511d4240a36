"""The fuzzer: random bytes into everything that parses outside input, and the checks of the outcome.

A round depends only on the corpus of its target and a seed: the same seed gives the same inputs in the same
order. An input with a new outcome (what Target.run returns, or the text of its error; if traced, the lines
that it reaches) is added to the pool from which further inputs are derived. A failing input is minimised.
rounds.py runs rounds for hours, in processes that may crash.
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

from fuzz.mutations import Mutator

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
POOL_MAX = 3000  # inputs in the pool of a round
RAW = 0.1  # probability that a mutation is not sealed: see Target.finish
TOO_MUCH = "takes too much memory"
GROWTH_KIB_MAX = 256 * 1024  # memory that one execution may take
FILLS_MEMORY_S = 0.01  # a shorter execution cannot have allocated that much
NAMES = re.compile(r"0x[0-9a-f]+|[^A-Za-z ]+")  # values in messages, which are ignored


@dataclass(frozen=True)
class Target:
    """A parser. run(data) raises one of refusals, or returns the features of the outcome.

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
        """Return the initial inputs, in a fixed order."""
        return sorted((CORPUS / self.name).iterdir())


class Failed(Exception):
    """An input caused a failure; `what` identifies the kind of failure."""

    def __init__(self, data: bytes, what: str) -> None:
        super().__init__(f"{what}: {data[:200]!r}")
        self.data = data
        self.what = what


class Memory:
    """Measures the memory of this process. A measurement costs more than most executions."""

    def __init__(self) -> None:
        self.peak_kib = 0

    def grown(self) -> bool:
        """Return whether it has grown by too much since the last call."""
        was, self.peak_kib = self.peak_kib, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return self.peak_kib - was > GROWTH_KIB_MAX


MEMORY = Memory()


def attempt(target: Target, data: bytes) -> Iterable[Hashable]:
    """Run an input once; return its features. Raises Failed."""
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
    """Return the type of an error and where it was raised, if possible in this project."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{type(error).__name__} at {frames[-1]}"


def minimised(target: Target, data: bytes, what: str, tries: int = 2000) -> bytes:
    """Return the smallest input found that fails in the same way: remove pieces, then simplify bytes."""

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
    """Executions of one target for one seed."""

    target: Target
    seed: int
    note: mmap.mmap | None = None  # number, size and bytes of the current input
    tracing: bool = False
    pool: list[bytes] = field(default_factory=list)
    fresh: list[bytes] = field(default_factory=list)  # inputs of the pool that are not in the corpus
    seen: set[Hashable] = field(default_factory=set)
    number: int = 0
    slowest_s: float = 0.0

    def __post_init__(self) -> None:
        self.rng = Random(f"{self.target.name} {self.seed}")
        self.mutator = Mutator(self.rng, self.target.words, self.target.size_max)
        self.lines: set[Hashable] = set()

    def run(self, executions: int) -> None:
        """Run the corpus, then so many mutated inputs. Raises Failed."""
        MEMORY.grown()  # do not count the memory so far
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
        """Run an input; return whether it has shown anything new."""
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
        """Record the executed lines, each with the one before it."""
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
