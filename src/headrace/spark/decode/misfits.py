"""Report values that do not fit their columns: by a warning in the log, or by a file for a job.

Spark gives a data source no accumulators. So a job that needs the counts sets a directory in the environment
before it starts Spark. Each task writes one small file there after it has read its range:

    <digest of the range and its columns>.json    {"stream": "orders", "counts": {"price": 3}}

A repeated task, or a range that a query reads twice, writes the same file, so it is counted once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.arrow.malformed import SPARK_ID_PART_ADVICE as SPARK_ID_PART_ADVICE
from headrace.spark.decode.schema import ColumnLayout

DIRECTORY_VARIABLE = "HEADRACE_MISFITS"  # the environment variable
FIELDS_MAP_NAME = "_fields"  # the name of the map of all fields in the counts

log = logging.getLogger(__name__)

MisfitCounts = dict[tuple[str, str], int]


def report_misfits(stream: str, where: str, layout: ColumnLayout, counts: list[int], mode: str) -> None:
    """Log how many values of each column did not fit, or write the counts to the job's directory.

    Args:
        stream: the stream that was read.
        where: which part of it was read; identifies repeated reads.
        layout: the columns.
        counts: the number of misfits in each column of layout.decoded_specs(), in order.
        mode: the mode of the read. Only PERMISSIVE is reported here.
    """
    specs = layout.decoded_specs()
    found = {
        spec.name or f"_{spec.kind}": count  # a column of the entry has no field's name
        for spec, count in zip(specs, counts, strict=True)
        if count
    }
    if mode != "PERMISSIVE" or not found:
        return
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
        for column, count in found.items():
            log.warning("%s", describe_misfits(stream, column, count))
    else:
        key = "\0".join([stream, where, layout.arrow_schema.to_string()])
        path = Path(directory) / f"{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()}.json"
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"stream": stream, "counts": found}))
        draft.replace(path)


def describe_misfits(stream: str, column: str, count: int) -> str:
    """Return the warning that `count` values became null; for `_fields`, that entries were escaped."""
    if column == FIELDS_MAP_NAME:
        entries = "entry has" if count == 1 else "entries have"
        return (
            f"{stream}: {count:,} {entries} bytes that are not UTF-8; the map shows each as \\xNN "
            "(fieldsType=binary gives the bytes)"
        )
    values = "value does" if count == 1 else "values do"
    return f"{stream}: {count:,} {values} not fit the column {column} and became null"


@contextmanager
def set_misfits_directory(directory: Path) -> Iterator[None]:
    """Set the environment variable with the directory for counts, for a Spark started in the block."""
    before = os.environ.get(DIRECTORY_VARIABLE)
    os.environ[DIRECTORY_VARIABLE] = str(directory)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(DIRECTORY_VARIABLE, None)
        else:
            os.environ[DIRECTORY_VARIABLE] = before


def read_misfit_counts(directory: Path) -> MisfitCounts:
    """Return the counts in the directory, by stream and column."""
    counts: MisfitCounts = {}
    for path in sorted(directory.glob("*.json")):
        found = json.loads(path.read_text())
        for column, count in found["counts"].items():
            key = (found["stream"], column)
            counts[key] = counts.get(key, 0) + count
    return counts
