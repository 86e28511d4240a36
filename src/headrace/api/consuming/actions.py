"""What a Worker wants done next. Who drives it carries that out and says how it went.

Delivery    call the handler with it             then ack(), failed(), retry() or fail() of the Worker
Ask         link.execute_all(requests, atomic)   then answered(step, replies), or refused(step, error)
Read        link.wait(words, seconds)            then answered(step, [reply]), or refused(step, error)
Idle        nothing, for so many seconds or until something changes
Finished    nothing any more, in this thread
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.api.consuming.requests import Words
from headrace.api.delivery import Delivery

Replies: TypeAlias = list[Any]


@dataclass(slots=True, eq=False)
class Ask:
    """Requests to send in one go. done() takes the replies and may want more; undo() is for none."""

    requests: Sequence[Words]
    done: Callable[[Replies], Ask | None]
    undo: Callable[[], None]
    atomic: bool = False
    judges: bool = False  # done() looks at refusals itself


@dataclass(slots=True, eq=False)
class Read:
    """Wait for new entries, at most for so long; None for ever. `changes` as of Idle."""

    words: Words
    seconds: float | None
    changes: int
    done: Callable[[Replies], Ask | None]
    undo: Callable[[], None]
    judges: bool = False


@dataclass(slots=True, eq=False)
class Idle:
    """Wait, but not if the Worker's `changes` are no longer these; None for ever."""

    seconds: float | None
    changes: int


class Finished:
    """This thread has no more to do."""


FINISHED = Finished()
Step: TypeAlias = Delivery[Any] | Ask | Read | Idle | Finished
