"""A stream that is deleted is freed, although its rules have work at a later time."""

from __future__ import annotations

import sys

import pytest

from support.engine_talk import Talk


@pytest.mark.parametrize("removal", ["DEL s", "RENAME other s", "FLUSHALL"])
def test_a_deleted_stream_is_freed_before_its_rules_are_due(removal: str) -> None:
    talk = Talk()
    talk("XADD other 1-1 f v")
    talk("XADD s 1-1 f v")
    assert talk("XCFGSET s MAX-AGE 100000") == "OK"
    talk("XADD s 2-1 f v")
    talk.tick(talk.now)
    keyspace = talk.engine.keyspace
    assert keyspace.rule_registry.next_due() > talk.now
    stream = keyspace.databases[0].values[b"s"]
    talk(removal)
    fresh = object()
    assert sys.getrefcount(stream) == sys.getrefcount(fresh), "something else refers to it"
