"""KeyboardInterrupt in the midst of a write: the next goes on at once, nothing is lost, nothing is twice."""

import contextlib
import dis
import gc
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

import pytest

import headrace
from headrace.errors import CommandError, NotOnDisk
from support.waiting import wait_until

SOURCE = os.path.dirname(headrace.__file__)
WATCHED = (
    "storage.py",
    "background.py",
    "durable_log.py",
    "log.py",
    "records.py",
    "data_directory.py",
    "manifest.py",
)
# After these instructions the interpreter runs a signal handler: after calls, and where it loops.
CHECKING = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")


class Interrupt(BaseException):
    """As KeyboardInterrupt."""


@cache
def openings(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions before which the interpreter lets a signal handler run."""
    found, opened = set(), False
    for instruction in dis.get_instructions(code):
        if opened:
            found.add(instruction.offset)
        if instruction.opname != "EXTENDED_ARG":  # part of the next instruction: either may be reported
            opened = instruction.opname.partition("_IF_")[0] in CHECKING
    return frozenset(found)


def is_watched(code: CodeType) -> bool:
    path = code.co_filename
    return path.startswith(SOURCE) and os.path.basename(path) in WATCHED


@cache
def watched_code() -> set[CodeType]:
    """Return the code of every watched function, with the functions inside it.

    The first database that is opened imports all of them. They are found from their modules: the collector
    does not list objects that a server in this process has frozen.
    """
    cached = type(cache(len))
    holders = (dict, type, FunctionType, CellType, classmethod, staticmethod, property, tuple, cached)
    found: set[CodeType] = set()
    seen: set[int] = set()
    left: list[Any] = [vars(module) for name, module in sys.modules.items() if name.startswith("headrace.")]
    while left:
        thing = left.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, CodeType):
            found |= {thing} if is_watched(thing) else set()
            left += thing.co_consts
        elif isinstance(thing, FunctionType):
            left += [thing.__code__, thing.__dict__, thing.__closure__]
        elif isinstance(thing, holders):
            left += gc.get_referents(thing)
    return found


@contextlib.contextmanager
def traced(arrive: Callable[[CodeType, int], object]) -> Iterator[None]:
    """Call `arrive` before each watched instruction of this thread: by tracing, for Python 3.11."""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not is_watched(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            arrive(frame.f_code, frame.f_lasti)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def monitored(arrive: Callable[[CodeType, int], object]) -> Iterator[None]:
    """Call `arrive` before each watched instruction of this thread: by monitoring, from Python 3.12 on.

    There, tracing misses instructions: of the first call, or until another thread runs.
    """
    monitoring, tool = sys.monitoring, sys.monitoring.OPTIMIZER_ID
    instruction, thread = monitoring.events.INSTRUCTION, threading.get_ident()

    def report(code: CodeType, offset: int) -> None:
        if threading.get_ident() == thread:
            arrive(code, offset)

    codes = watched_code()
    monitoring.use_tool_id(tool, "interrupts")
    try:
        for code in codes:
            monitoring.set_local_events(tool, code, instruction)
        monitoring.register_callback(tool, instruction, report)
        yield
    finally:
        monitoring.register_callback(tool, instruction, None)
        for code in codes:
            monitoring.set_local_events(tool, code, 0)
        monitoring.free_tool_id(tool)


class Interrupter:
    """Raises at the n-th place, on the way to the disk, where a signal handler of this thread may run."""

    def __init__(self, place: int) -> None:
        self.left = place

    def _arrive(self, code: CodeType, offset: int) -> None:
        if offset in openings(code):
            self.left -= 1
            if self.left == 0:
                raise Interrupt

    def run(self, work: Callable[[], Any]) -> bool:
        """Return whether it came to that place."""
        try:
            with monitored(self._arrive) if sys.version_info >= (3, 12) else traced(self._arrive):
                work()
        except Interrupt:
            return True
        return False


def places(work: Callable[[int], bool]) -> int:
    """Do it with an interrupt at the first place, the second, and so on; how many there are.

    The keeper may be quicker and do it itself, so a place that was not reached may have others behind it.
    """
    last = 0
    for place in itertools.count(1):
        if work(place):
            last = place
        elif place > last + 5:
            return last
    raise AssertionError


def kept(path: Path) -> list[Any]:
    with headrace.open(path) as db:
        return [entry.id for entry in db.stream("s")]


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_write_that_is_broken_off_anywhere_is_done_again_at_once(tmp_path, caplog, fsync) -> None:
    with headrace.open(tmp_path, fsync=fsync) as db:
        stream = db.stream("s")
        ids = []

        def broken_off(place: int) -> bool:
            came = Interrupter(place).run(lambda: ids.append(stream.add({"n": place})))
            ids.extend(stream.add_many({"n": n} for n in (2, 3)))
            return came

        assert places(broken_off) > 10
        there = [entry.id for entry in stream]
        assert set(ids) <= set(there) and db.info().disk_error == ""
    assert kept(tmp_path) == there
    assert not caplog.records  # nothing of any log had to be mended


def test_an_interrupt_just_before_the_end_loses_nothing(tmp_path) -> None:
    """Nobody writes after it: the keeper, or close(), brings to the disk what was broken off."""

    def broken_off(place: int) -> bool:
        path = tmp_path / str(place)
        with headrace.open(path) as db:
            stream = db.stream("s")
            came = Interrupter(place).run(lambda: stream.add({"n": 1}))
            there = [entry.id for entry in stream]
        assert kept(path) == there
        return came

    assert places(broken_off) > 10


def test_a_rewrite_goes_on_when_the_one_who_waits_for_it_is_called_away(tmp_path) -> None:
    def broken_off(place: int) -> bool:
        path = tmp_path / str(place)
        with headrace.open(path) as db:
            stream = db.stream("s")
            ids = stream.add_many({"n": n} for n in range(10))
            came = Interrupter(place).run(db.compact)
            ids.append(stream.add({"n": 10}))
            assert db.info().disk_error == ""
        assert kept(path) == ids
        return came

    assert places(broken_off) > 3


def test_a_sync_that_fails_and_is_broken_off_is_not_taken_for_done(tmp_path, monkeypatch) -> None:
    """The kernel tells of it once."""

    def broken_off(place: int) -> bool:
        path = tmp_path / str(place)
        interrupter = Interrupter(0)  # counts on from the failure
        with headrace.open(path) as db:
            stream = db.stream("s")
            stream.add({"n": 0})
            log = db.backend.storage.log
            file = log._file

            def fail() -> None:
                monkeypatch.undo()
                interrupter.left = place
                raise OSError(5, "Input/output error")

            monkeypatch.setattr(file, "sync", fail)
            came = False
            with contextlib.suppress(NotOnDisk):
                came = interrupter.run(lambda: stream.add({"n": 1}))

            def is_taken() -> bool:
                with contextlib.suppress(NotOnDisk, CommandError):
                    stream.add({"n": 2})
                    return True
                return False

            wait_until(is_taken)
            assert log._file is not file  # it was given up, and the log written anew from memory
            there = [entry.id for entry in stream]
        assert kept(path) == there
        return came

    assert places(broken_off) > 5


@pytest.mark.skipif(
    "HEADRACE_COMPILED" not in os.environ, reason="the engine's lock is safe as compiled only"
)
@pytest.mark.skipif(
    sys.version_info >= (3, 14),
    reason="Python 3.14 may leave the lock of a with statement held after a signal",
)
@pytest.mark.parametrize(("fsync", "seed"), [("always", 1), ("everysec", 2)])
def test_real_signals_at_any_time_lose_and_double_nothing(tmp_path, monkeypatch, caplog, fsync, seed) -> None:
    armed = False

    def handler(number: int, frame: object) -> None:
        if armed:
            raise Interrupt

    def kill(over: threading.Event, random: Random) -> None:
        while not over.wait(random.choice((1e-5, 1e-4, 5e-4, 2e-3))):
            os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)  # it may be a finalizer, too
    before = signal.signal(signal.SIGUSR1, handler)
    over = threading.Event()
    killer = threading.Thread(target=kill, args=(over, Random(seed)))
    acknowledged: list[int] = []
    raised = 0
    db = headrace.open(tmp_path, fsync=fsync)
    db.backend.storage.rewrite_min_bytes = 50_000  # it is rewritten now and then, too
    try:
        db.compact()
        stream = db.stream("s")
        killer.start()
        for n in range(100_000):
            if raised == 200:
                break
            try:
                armed = True
                stream.add({"n": n})
                armed = False
                acknowledged.append(n)
            except Interrupt:
                armed = False
                raised += 1
    finally:
        armed = False
        over.set()
        killer.join()
        signal.signal(signal.SIGUSR1, before)
    assert raised == 200
    there = [int(entry["n"]) for entry in stream]
    db.close()
    with headrace.open(tmp_path) as db:
        numbers = [int(entry["n"]) for entry in db.stream("s")]
    assert numbers == there
    assert len(set(numbers)) == len(numbers)
    assert set(acknowledged) <= set(numbers)
    assert not caplog.records


def test_two_wakes_at_once_start_one_timer_thread(tmp_path) -> None:
    def keepers() -> Iterator[threading.Thread]:
        return (thread for thread in threading.enumerate() if thread.name == "headrace-timer")

    already = set(keepers())
    with headrace.open(tmp_path, fsync="everysec") as db:
        threads = [threading.Thread(target=db.backend.wake_timer) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        db.stream("s").add({"n": 1})
        assert db.execute("WAITAOF", 1, 0, 10_000) == [1, 0]
        wait_until(lambda: len(set(keepers()) - already) == 1)
