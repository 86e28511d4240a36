"""Runs of streams in a dictionary instead of in files."""

from headrace.errors import DamagedColdRun
from headrace.keyspace.cold_storage import RunStore
from headrace.streams import cold_selection
from headrace.streams.cold_run import ColdRun, RunCache


class RunsInMemory(RunStore):
    """A RunStore whose places are numbers."""

    def __init__(self):
        self.stored = {}
        self.places = self.loads = self.removals = 0
        self.error = None
        self.stale = set()

    def add(self, nodes):
        self.stored[self.places] = nodes
        self.places += 1
        return self.places - 1

    def write(self, runs):
        if self.error is not None:
            raise self.error
        return [self.add(run) for run in runs]

    def load(self, place):
        self.loads += 1
        if place not in self.stored:
            raise DamagedColdRun("lost.cold", place, "it is lost")
        return [(key, bytearray(data)) for key, data in self.stored[place]]

    def file_of(self, place):
        return place // 3

    def remove_unreferenced(self):
        self.removals += 1
        return 0

    def is_stale(self, place):
        return place in self.stale

    def has_stale_files(self):
        return bool(self.stale)

    def file_count(self):
        return 1 if self.stored else 0

    def stored_bytes(self):
        return sum(len(data) for run in self.stored.values() for _, data in run)


def cool(stream, cache, size):
    """Move the oldest nodes, about size bytes, out of memory; return how many."""
    nodes = cold_selection.oldest_nodes_in_memory(stream, size)
    if nodes:
        place = cache.source.add(cold_selection.copy_keys_and_listpacks(nodes))
        stream.make_cold(nodes, ColdRun(place, cache, len(nodes)))
    return len(nodes)


def small_cache():
    """Return a cache that has room for one run at a time."""
    return RunCache(RunsInMemory(), 1)
