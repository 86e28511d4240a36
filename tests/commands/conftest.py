"""Fixtures of the command tests: requests to an engine as lines of text."""

from __future__ import annotations

import pytest

from support.engine_talk import Talk


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.fixture
def grouped(talk: Talk) -> Talk:
    """A stream s with the entries 1-0 to 3-0, and the group g before them."""
    for i in range(1, 4):
        talk(f"XADD s {i}-0 f {i}")
    talk("XGROUP CREATE s g 0")
    talk.effects()
    return talk
