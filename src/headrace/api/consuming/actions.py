"""The actions that a Worker requests. The driver performs the action and reports the result.

Delivery, Batch  call the handler with it                then ack(), record_failure(), retry() or fail()
SendRequests     backend.request_all()                     then handle_replies() or handle_request_error()
BlockingRead     backend.execute_blocking_read()           then handle_replies() or handle_request_error()
Idle             wait for `seconds`, or until a change
Finished         end this thread
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.api.batch import DeliveryOrBatch
from headrace.api.consuming.requests import Argv

Replies: TypeAlias = list[Any]


@dataclass(slots=True, eq=False)
class SendRequests:
    """Requests to send in one round trip.

    on_replies() receives the replies and may return further requests. undo() is called instead if there are
    no replies, or one is an error that on_replies() does not handle.
    """

    requests: Sequence[Argv]
    on_replies: Callable[[Replies], SendRequests | None]
    undo: Callable[[], None]
    atomic: bool = False
    handles_errors: bool = False  # on_replies() handles error replies itself


@dataclass(slots=True, eq=False)
class BlockingRead:
    """Wait for new entries, at most `seconds`; None: no limit. `worker_revision` as in Idle."""

    argv: Argv
    seconds: float | None
    worker_revision: int
    on_replies: Callable[[Replies], SendRequests | None]
    undo: Callable[[], None]
    handles_errors: bool = False


@dataclass(slots=True, eq=False)
class Idle:
    """Wait for `seconds` (None: no limit), unless the Worker's `worker_revision` has changed."""

    seconds: float | None
    worker_revision: int


class Finished:
    """This thread has nothing more to do."""


FINISHED = Finished()
Action: TypeAlias = DeliveryOrBatch | SendRequests | BlockingRead | Idle | Finished
