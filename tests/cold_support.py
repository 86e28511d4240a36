"""Runs of streams in a dictionary instead of in files."""

from headrace.streams import cooling
from headrace.streams.cold_run import ColdRun, RunCache, RunSource


class RunsInMemory(RunSource):
    """A RunSource whose places are numbers."""

    def __init__(self):
        self.stored = []
        self.loads = 0

    def add(self, nodes):
        self.stored.append(nodes)
        return len(self.stored) - 1

    def load(self, place):
        self.loads += 1
        return [(key, bytearray(data)) for key, data in self.stored[place]]


def cool(stream, cache, size):
    """Move the oldest nodes, about size bytes, out of memory; return how many."""
    nodes = [node for node in cooling.oldest_in_memory(stream, size) if node.live]
    if nodes:
        place = cache.source.add(cooling.contents(nodes))
        stream.make_cold(nodes, ColdRun(place, cache, len(nodes)))
    return len(nodes)


def small_cache():
    """Return a cache that has room for one run at a time."""
    return RunCache(RunsInMemory(), 1)
