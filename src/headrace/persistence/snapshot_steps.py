"""Run the steps of a snapshot until a time slice is used up.

This module is compiled, so a slice runs without a switch to another thread of Python: a caller that holds a
lock holds it as briefly as possible.
"""

from __future__ import annotations

from collections.abc import Iterator

import cython

from headrace import system

NO_STEPS_LEFT = cython.declare(cython.longlong, -1)


@cython.ccall
@cython.exceptval(-2, check=True)
def run_steps(steps: Iterator[int], slice_ns: cython.longlong) -> cython.longlong:
    """Run steps for about slice_ns nanoseconds; return what the last one yielded, or -1 at the end."""
    until: cython.longlong = system.monotonic_ns() + slice_ns
    done: cython.longlong
    while True:
        done = next(steps, NO_STEPS_LEFT)
        if done == NO_STEPS_LEFT or system.monotonic_ns() >= until:
            return done
