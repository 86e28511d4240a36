"""Steps of a Worker (see actions.py) carried out on a link, and the Worker told how they went.

perform(link, worker, ask)           requests, and what follows from the answers
wait(link, worker, step, stop)       for entries, or for nothing: until `stop` at the latest
"""

from __future__ import annotations

from headrace.api.backend import Link, Stop
from headrace.api.consuming.actions import Ask, Idle, Read
from headrace.api.consuming.worker import Worker
from headrace.errors import HeadraceError

LONG_S = 3600.0  # for want of a pause without an end


def perform(link: Link, worker: Worker, ask: Ask) -> None:
    """Ask, and what follows from the answers. Raises what the worker will not live with."""
    step: Ask | None = ask
    while step is not None:
        try:
            replies = link.execute_all(step.requests, step.atomic)
        except HeadraceError as error:
            worker.refused(step, error)
            return
        except BaseException:  # a KeyboardInterrupt: nobody will hear the answers
            step.undo()
            raise
        step = worker.answered(step, replies)


def wait(link: Link, worker: Worker, step: Read | Idle, stop: Stop) -> None:
    """Read what comes, or idle; not at all if `stop` is set. Raises what the worker will not live with."""
    if isinstance(step, Idle):
        if not stop.is_set():
            link.pause(LONG_S if step.seconds is None else step.seconds, stop)
        return
    try:
        reply = None if stop.is_set() else link.wait(step.words, step.seconds, stop)
    except HeadraceError as error:
        worker.refused(step, error)
        return
    except BaseException:
        step.undo()
        raise
    worker.answered(step, [reply])
