"""The garbage collector visits hardly any object of the data, and frees an engine that was not closed."""

import gc
import weakref

import pytest

from headrace.streams import stream
from support.engine_talk import Talk

STREAMS = 200
COMPILED = stream.__file__.endswith(".so")
compiled = pytest.mark.skipif(not COMPILED, reason="interpreted, all objects are visited")


def fill(talk: Talk) -> None:
    """Store streams of several nodes, with groups, consumers and pending entries."""
    for number in range(STREAMS):
        for _ in range(3):
            talk.words("XADD", f"s{number}", "*", "field", "value" * 1000)
        talk(f"XGROUP CREATE s{number} g 0")
        talk(f"XREADGROUP GROUP g c STREAMS s{number} >")


@compiled
def test_a_stream_with_a_group_is_few_objects_for_the_collector():
    talk = Talk()
    talk.engine.set_effect_recording(False)
    talk("XADD s 1-1 f v")
    gc.collect()
    before = len(gc.get_objects())
    for number in range(STREAMS):
        talk(f"XADD s{number} 1-1 f v")
        talk(f"XGROUP CREATE s{number} g 0")
        talk(f"XREADGROUP GROUP g c STREAMS s{number} >")
    gc.collect()
    assert len(gc.get_objects()) - before < 1.5 * STREAMS  # the list of a group's consumers


def test_an_engine_that_is_not_closed_is_collected():
    talk = Talk()
    fill(talk)
    streams = weakref.ref(talk.engine.keyspace.evictable)
    assert len(talk.engine.keyspace.evictable) == STREAMS
    del talk
    gc.collect()
    assert streams() is None
