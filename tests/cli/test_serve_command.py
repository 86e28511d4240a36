"""`headrace serve` during its start-up."""

import os
import signal

import pytest

from headrace.cli.commands.serve import signals_blocked
from headrace.cli.main import main


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_start_up_exits_with_0(
    number: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headrace.server.main.serve", lambda words: os.kill(os.getpid(), number))
    assert main(["serve"]) == 0
    assert capfd.readouterr() == ("", "")


def test_a_blocked_signal_is_delivered_at_the_end_of_the_block() -> None:
    done = []

    def interrupted() -> None:
        with signals_blocked():
            signal.raise_signal(signal.SIGINT)  # to this thread: others of the tests' might take it
            done.append("all")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["all"]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
