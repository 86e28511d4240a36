"""The checker of histories finds every class of error, and accepts what is right."""

from __future__ import annotations

import pytest

from simulation.history_checker import FAIL, INFO, OK, Entry, OperationHistory, Report

FINAL: list[Entry] = [((1, 0), b"a"), ((2, 0), b"b"), ((3, 0), b"c")]


def history(**outcomes: str) -> OperationHistory:
    """Values added one after the other, with the IDs of FINAL."""
    made = OperationHistory()
    ids = {value: found for found, value in FINAL}
    for name, outcome in outcomes.items():
        append = made.invoke(name.encode())
        if outcome != INFO:
            made.complete(append, outcome, ids.get(append.value) if outcome == OK else None)
    return made


def classes(report: Report) -> dict[str, object]:
    return {name: values for name, values in vars(report).items() if values}


def test_a_complete_history_has_no_errors():
    made = history(a=OK, b=OK, c=OK)
    made.reader("r").entries += FINAL
    made.reader("late", after=(1, 0)).entries += FINAL[1:2]
    assert classes(made.check(FINAL)) == {}


@pytest.mark.parametrize(
    ("outcomes", "final", "found"),
    [
        ({"a": OK, "b": OK, "c": OK}, FINAL[:2], {"lost": [b"c"]}),
        ({"a": OK, "b": INFO, "c": INFO}, FINAL[:2], {"recovered": [b"b"]}),
        ({"a": OK, "b": FAIL, "c": OK}, FINAL, {"unexpected": [b"b"]}),
        ({"a": OK, "b": OK}, FINAL, {"unexpected": [b"c"]}),
        ({"a": OK, "b": OK}, [FINAL[0], ((9, 9), b"b")], {"unexpected": [b"b"]}),
        ({"a": INFO}, [*FINAL[:1], ((2, 0), b"a")], {"duplicated": [b"a"], "recovered": [b"a"]}),
        ({"b": OK, "a": OK, "c": OK}, FINAL, {"reordered": [b"b"]}),
        ({"a": INFO, "b": INFO}, FINAL[1::-1], {"reordered": [b"a"], "recovered": [b"a", b"b"]}),
    ],
)
def test_errors_of_writers_are_classified(outcomes, final, found):
    assert classes(history(**outcomes).check(final)) == found


def test_lost_values_that_were_confirmed_are_an_error():
    made = history(a=OK, b=OK)
    made.appends[b"b"].confirmed = True
    report = made.check(FINAL[:1])
    assert report.errors == {"lost_confirmed": [b"b"]}
    assert made.check([]).lost == [b"a", b"b"]


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ([FINAL[0], FINAL[2]], {"skipped": [("r", b"b")]}),
        ([FINAL[0], FINAL[1], FINAL[0]], {"backward": [("r", b"a")]}),
        ([*FINAL, ((4, 0), b"d")], {"vanished": [("r", b"d")]}),
    ],
)
def test_errors_of_readers_are_classified(seen, found):
    made = history(a=OK, b=OK, c=OK)
    made.reader("r").entries += seen
    assert classes(made.check(FINAL)) == found


def test_concurrent_values_may_have_any_order():
    made = OperationHistory()
    one, other = made.invoke(b"a"), made.invoke(b"b")
    made.complete(other, OK, (1, 0))
    made.complete(one, OK, (2, 0))
    assert classes(made.check([((1, 0), b"b"), ((2, 0), b"a")])) == {}
