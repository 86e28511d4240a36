"""Errors and other objects that programs pass between processes, as in a pool of processes."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import headrace
from headrace.errors import (
    CodecError,
    ConnectionLost,
    DamagedColdRun,
    HeadraceError,
    InvalidID,
    LastIdMismatch,
    NotReplicated,
    UnknownSubcommand,
    WrongArgumentCount,
    WrongType,
)
from headrace.positions.stream_state import StreamReadError


@pytest.mark.parametrize(
    "error",
    [
        CodecError("no text", entry="1-0"),
        ConnectionLost("lost", maybe_executed=True),
        DamagedColdRun("1.cold", 7, "wrong checksum", "1-0 to 5-3"),
        InvalidID("not an ID"),
        LastIdMismatch("orders", "5-0"),
        NotReplicated([b"1-0"], 0, 1, "no reply"),
        StreamReadError("orders", WrongType()),
        UnknownSubcommand("XINFO", b"NONE"),
        WrongArgumentCount("xadd"),
        WrongType(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_pickled_and_copied(error: HeadraceError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert (str(other), other.args) == (str(error), error.args)
        assert vars(other) == vars(error) | ({"entry": None} if isinstance(error, CodecError) else {})


def add_after_a_wrong_id() -> None:
    with headrace.open() as db:
        db.stream("orders").add({"n": 1}, if_last="5-0")


def test_an_error_in_a_pool_of_processes_reaches_the_program() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(LastIdMismatch, match="the last ID of 'orders' is not 5-0"),
    ):
        pool.submit(add_after_a_wrong_id).result(timeout=60)


def test_a_stop_cannot_be_passed_to_another_process() -> None:
    with pytest.raises(TypeError, match="a Stop cannot be pickled or copied: it works in one process"):
        pickle.dumps(headrace.Stop())
