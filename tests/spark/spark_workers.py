"""Find the Python workers of a Spark that a test has started, to kill or observe them.

Only workers that run tasks, which Spark retries. Workers that plan are not retried, and run another module.
"""

from __future__ import annotations

import pathlib


def workers_below(pid: int) -> list[int]:
    """Return the workers that the Python daemon of Spark, a descendant of pid, has forked for tasks."""
    parents: dict[int, int] = {}
    daemons = set()
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if b"pyspark.daemon\0pyspark.worker\0" in (entry / "cmdline").read_bytes():
                    daemons.add(int(entry.name))
            except OSError:
                continue

    def below(child: int) -> bool:
        while child in parents and child != pid:
            child = parents[child]
        return child == pid

    return [p for p in daemons if parents[p] in daemons and below(p)]
