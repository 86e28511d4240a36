"""Out of memory in the middle of a change: nothing is written outside allocated memory."""

import os

import pytest

from headrace.streams.pending_arena import PendingArena
from headrace.streams.pending_index import PendingIndex
from headrace.streams.stream import Stream

testcapi = pytest.importorskip("_testcapi")
pytestmark = pytest.mark.skipif(
    "HEADRACE_COMPILED" not in os.environ, reason="the interpreter allocates at every step itself"
)
NTH = range(12)  # more allocations than any change here makes


def succeeds(nth, change, *arguments):
    """Make a change whose nth allocation fails; whether it was made all the same."""
    testcapi.set_nomemory(nth, nth + 1)
    try:
        change(*arguments)
    except MemoryError:
        return False
    finally:
        testcapi.remove_mem_hooks()
    return True


@pytest.mark.parametrize("n", [0, 8, 16, 512, 1024])
@pytest.mark.parametrize("count", [1, 1 << 20])
def test_records_survive_an_out_of_memory_error(n, count):
    refused = 0
    for nth in NTH:
        records = PendingArena()
        for i in range(n):
            records.allocate(i, 0, 1, 1000, 1)
        refused += not succeeds(nth, records.allocate, n, 0, 1, 1000, count)
        records.check()
        for i in range(1500):
            records.allocate(i, 0, 1, 1000, 1)
        records.check()
    assert 0 < refused < len(NTH)


@pytest.mark.parametrize("n", [0, 4, 256, 512])
@pytest.mark.parametrize("at_the_end", [False, True])
def test_the_index_survives_an_out_of_memory_error(n, at_the_end):
    refused = 0
    for nth in NTH:
        records = PendingArena()
        slots = PendingIndex(records)
        for i in range(n):
            slots.insert(records.allocate(2 * i + 2, 0, 1, 1000, 1), 2 * i + 2, 0)
        ms = 2 * n + 2 if at_the_end else n + 1 + n % 2
        refused += not succeeds(nth, slots.insert, records.allocate(ms, 0, 1, 1000, 1), ms, 0)
        slots.check()
        for i in range(10_000, 11_000):
            slots.insert(records.allocate(i, 0, 1, 1000, 1), i, 0)
        slots.check()
    assert refused < len(NTH)


def test_an_entry_without_memory_leaves_the_stream_unchanged():
    refused = 0
    for size in (10, 20_000):
        for nth in range(4):
            stream = Stream()
            for i in range(1, 30):
                stream.append(i, 0, [b"f", b"v" * size], 0, 0, 29)
            refused += not succeeds(nth, stream.append, 30, 0, [b"f", b"v" * size], 0, 0, 29)
            stream.check()
    assert refused > 0
