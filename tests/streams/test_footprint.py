"""The measured memory of a stream is what the process has grown by."""

import subprocess
import sys

import pytest

from headrace.structures import footprint

CHILD = """
import sys
from headrace.streams.size import memory_bytes
from headrace.streams.stream import Stream

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def filled(n, size):
    stream = Stream()
    for i in range(n):
        words = [b"device", b"dev%d" % (100 + i % 900), b"text", b"%0*d." % (size, i)]
        stream.append(1_700_000_000_000 + i, 0, words, 0, 4096, 100)
    return stream

def grouped(groups, consumers, pending):
    stream = filled(1, 4)
    for g in range(groups):
        group = stream.make_group(b"group-%06d" % g, 0, 0, 0)
        owners = [group.make_consumer(b"consumer-%06d" % c, 1) for c in range(consumers)]
        for i in range(pending):
            group.pending.add(1_700_000_000_000 + i, 0, owners[i // 100 % consumers], 1, 1)
    return stream

MADE = {
    "entries": lambda: [filled(200_000, 4)],
    "long entries": lambda: [filled(10_000, 1000)],
    "small streams": lambda: [filled(2, 4) for _ in range(10_000)],
    "groups": lambda: [grouped(10_000, 0, 0)],
    "consumers": lambda: [grouped(2_000, 10, 0)],  # in one group, what its table outgrew stays behind
    "pending entries": lambda: [grouped(1, 3, 500_000)],
}[sys.argv[1]]

kept = [MADE()]  # from here on nothing fits into what was free
before = resident()
kept.append(MADE())
grown = resident() - before
print(sum(memory_bytes(stream) for stream in kept[1]) / grown)
print(sum(stream.memory.total for stream in kept[1]) / grown)
"""


@pytest.mark.whole
@pytest.mark.parametrize(
    "what", ["entries", "long entries", "small streams", "groups", "consumers", "pending entries"]
)
def test_both_counts_are_what_the_process_grows_by(what):
    said = subprocess.run([sys.executable, "-c", CHILD, what], capture_output=True, text=True, check=True)
    walked, weighed = map(float, said.stdout.split())
    assert 0.85 < walked < 1.15  # a few percent, and holes in the heap, which vary
    assert 0.8 < weighed < 1.2


@pytest.mark.parametrize(
    ("n", "taken"), [(0, 0), (1, 16), (16, 16), (17, 32), (512, 512), (513, 528), (520, 528), (521, 544)]
)
def test_blocks_come_in_sixteens_and_large_ones_with_their_length(n, taken):
    assert footprint.allocated_bytes(n) == taken


def test_a_list_counts_for_its_places_and_bytes_for_themselves():
    assert footprint.object_bytes([]) == footprint.instance_bytes(list)
    assert footprint.object_bytes([None] * 1000) >= footprint.object_bytes([]) + 8000
    assert footprint.object_bytes(b"x" * 1000) == footprint.allocated_bytes(1000 + sys.getsizeof(b""))
    assert footprint.object_bytes(bytearray(1000)) >= footprint.instance_bytes(bytearray) + 1000
