"""The Python workers of a Spark that a test has started: to be killed, or looked at.

Only those that do tasks, which are tried again; those that plan are not, and have another module's name.
"""

from __future__ import annotations

import pathlib


def workers_below(pid: int) -> list[int]:
    """The Python workers that Spark, a process below pid, has forked off its daemon for tasks."""
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
