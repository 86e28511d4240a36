"""What tasks tell of values that their columns cannot hold: a warning in the log, and a file for a job.

Spark gives a data source no accumulators. So a job that wants the counts names a directory in the environment
before it starts its Spark; each task leaves one small file there when it has read its range:

    <digest of the range and its columns>.json    {"stream": "orders", "counts": {"price": 3}}

A task that is tried again, or a range that a query reads twice, writes the same file: it is counted once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.arrow.malformed import READ_WITHOUT as READ_WITHOUT
from headrace.spark.decode.schema import ColumnLayout

DIRECTORY_VARIABLE = "HEADRACE_MISFITS"  # the environment variable
MAP = "fields"  # what the map of all fields is called in the counts

log = logging.getLogger(__name__)

MisfitCounts = dict[tuple[str, str], int]


def report_misfits(stream: str, where: str, layout: ColumnLayout, counts: list[int], mode: str) -> None:
    """Log, and leave for the job, how many values of each column did not fit.

    Args:
        stream: the stream that was read.
        where: which part of it, so that the same part is known again.
        layout: the columns.
        counts: a number for each column that the decoder makes.
        mode: what became of such values; unless PERMISSIVE, their entries are reported elsewhere.
    """
    specs = layout.decoded_specs()
    found = {
        MAP if spec.kind == "fields" else spec.name: count
        for spec, count in zip(specs, counts, strict=True)
        if count
    }
    if mode != "PERMISSIVE" or not found:
        return
    for column, count in found.items():
        log.warning("%s", describe_misfits(stream, column, count))
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory:
        key = "\0".join([stream, where, layout.schema.simpleString()])
        path = Path(directory) / f"{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()}.json"
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"stream": stream, "counts": found}))
        draft.replace(path)


def describe_misfits(stream: str, column: str, count: int) -> str:
    """What is said of so many values of a column."""
    if column == MAP:
        entries = "entry has" if count == 1 else "entries have"
        return (
            f"{stream}: {count:,} {entries} bytes that are not UTF-8; the map shows each as \\xNN "
            "(fieldsType=binary gives the bytes)"
        )
    values = "value does" if count == 1 else "values do"
    return f"{stream}: {count:,} {values} not fit the column {column} and became null"


@contextmanager
def collecting_misfits(directory: Path) -> Iterator[None]:
    """Within, a Spark that is started leaves its counts in the directory."""
    before = os.environ.get(DIRECTORY_VARIABLE)
    os.environ[DIRECTORY_VARIABLE] = str(directory)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(DIRECTORY_VARIABLE, None)
        else:
            os.environ[DIRECTORY_VARIABLE] = before


def collected_misfits(directory: Path) -> MisfitCounts:
    """The counts that are in the directory, by stream and column."""
    counts: MisfitCounts = {}
    for path in sorted(directory.glob("*.json")):
        found = json.loads(path.read_text())
        for column, count in found["counts"].items():
            key = (found["stream"], column)
            counts[key] = counts.get(key, 0) + count
    return counts
