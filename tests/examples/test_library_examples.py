"""The examples of the library, run unchanged, and their results."""

from __future__ import annotations

import importlib
import io
import logging
import pathlib
from collections import Counter
from typing import Any

import pytest
from rich.console import Console

import headrace


def example(name: str) -> Any:
    return importlib.import_module(name)


def test_each_job_is_done_once_and_failing_jobs_become_dead_letters(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "headrace.consumer")
    shown = io.StringIO()
    service, letters = example("job_queue").main(tmp_path / "jobs", Console(file=shown, width=120))
    made = Counter(picture for pictures in service.made.values() for picture in pictures)
    assert made == {f"{who}-{n}.jpg": 1 for who in ("ann", "bob", "cyn", "dan") for n in range(1, 6)}
    # In order, except for the one that was repaired at the end.
    assert service.made["cyn"][-1] == "cyn-3.jpg"
    for who in ("ann", "bob", "dan"):
        assert service.made[who] == [f"{who}-{n}.jpg" for n in range(1, 6)]
    errors = {letter.value.picture: (letter.error, letter.deliveries) for letter in letters}
    assert errors["cyn-3.jpg"] == ("OSError: image file is truncated", 4)
    assert errors["notes.txt"] == ("not a picture", 1)
    assert service.attempts.total() > len(made), "the service never failed"
    assert "Repaired and retried: 1; dead letters left: 1." in shown.getvalue()
    with headrace.open(tmp_path / "jobs") as database:
        assert database.stream("jobs").group("studio").info().pending == 0


def test_both_readers_continue_at_their_positions(tmp_path: pathlib.Path) -> None:
    rows = example("event_log").main(tmp_path)
    assert [row[1:3] for row in rows] == [["48", "48"], ["96", "48"]]
    assert [row[4].count("takes 900.00") for row in rows] == [1, 1]
    assert rows[0][4] != rows[1][4]
    with headrace.open(tmp_path / "log") as database:
        log = example("event_log").open_log(database)
        assert f"ann {sum(e.value.cents for e in log if e.value.account == 'ann') / 100:.2f}" in rows[1][3]


def test_every_order_is_announced_once_although_the_relay_crashes(tmp_path: pathlib.Path) -> None:
    counts = example("outbox").main(tmp_path)
    assert counts["entries in the stream"] == counts["orders kept"]
    assert counts["adds by the relay"] > counts["orders kept"], "it never crashed before the deletion"
    assert counts["crashes of the relay"] > 0 and counts["orders rolled back"] > 0
