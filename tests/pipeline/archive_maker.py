"""Write archives as Spark does, without Spark: files, log and checkpoint."""

from __future__ import annotations

import datetime
import json
import uuid
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.spark.source.offsets import EntryId, format_id

DAY_MS = 24 * 3600 * 1000
ROW_NOTE = b"org.apache.spark.sql.parquet.row.metadata"


class ArchiveMaker:
    """Adds batches of entries to an archive; after every `interval` batches the log has a compact file."""

    def __init__(self, directory: Path, interval: int = 3) -> None:
        self.directory = directory
        self.interval = interval
        self.batch = 0
        self.offsets: dict[str, str] = {}
        self.lines: list[str] = []
        ours = directory / "_headrace"
        (ours / "checkpoint" / "offsets").mkdir(parents=True)
        (ours / "streams.json").write_text(json.dumps({"fields": None, "zone": "UTC"}))
        (directory / "_spark_metadata").mkdir()

    def add(self, entries: dict[str, list[EntryId]], files: int = 2, commit: bool = True) -> list[Path]:
        """Add a batch: each stream's entries, in `files` files per day; `commit`: whether they are valid."""
        written = []
        for stream, ids in entries.items():
            by_day: dict[str, list[EntryId]] = {}
            for each in ids:
                by_day.setdefault(
                    str(datetime.date(1970, 1, 1) + datetime.timedelta(each[0] // DAY_MS)), []
                ).append(each)
            for date, theirs in by_day.items():
                share = -(-len(theirs) // files)
                for start in range(0, len(theirs), share):
                    written.append(self.write(stream, date, theirs[start : start + share]))
            self.offsets[stream] = format_id(ids[-1])
        self.write_log(written, commit)
        return written

    def write(self, stream: str, date: str, ids: list[EntryId]) -> Path:
        folder = self.directory / f"stream={quote(stream, safe='')}" / f"date={date}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-00000-{uuid.uuid4()}.c000.snappy.parquet"
        table = pa.table(
            {
                "id": [format_id(each) for each in ids],
                "timestamp": pa.array([each[0] * 1000 for each in ids], pa.timestamp("us", "UTC")),
                "sequence": [each[1] for each in ids],
                "fields": pa.array([[("of", stream)] for _ in ids], pa.map_(pa.string(), pa.string())),
            }
        )
        with pq.ParquetWriter(
            path, table.schema, use_deprecated_int96_timestamps=True, store_schema=False
        ) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({ROW_NOTE: b"a note of Spark's"})
        return path

    def write_log(self, files: list[Path], commit: bool) -> None:
        offsets = self.directory / "_headrace" / "checkpoint" / "offsets" / str(self.batch)
        offsets.write_text("\n".join(["v1", "{}", json.dumps(self.offsets)]))
        if not commit:
            return
        lines = []
        for path in files:
            status = path.stat()
            line = {
                "path": f"file://{quote(str(path))}", "size": status.st_size, "isDir": False,
                "modificationTime": int(status.st_mtime * 1000), "blockReplication": 1,
                "blockSize": 33554432, "action": "add",
            }  # fmt: skip
            lines.append(json.dumps(line))
        log = self.directory / "_spark_metadata"
        if (self.batch + 1) % self.interval == 0:
            # As Spark does: the content of the last compact file, and the batches after it.
            begin = self.batch - self.interval
            before = [log / f"{begin}.compact", *(log / str(n) for n in range(begin + 1, self.batch))]
            lines = [
                line for each in before if each.exists() for line in each.read_text().splitlines()[1:]
            ] + lines
            (log / f"{self.batch}.compact").write_text("\n".join(["v1", *lines]))
        else:
            (log / str(self.batch)).write_text("\n".join(["v1", *lines]))
        self.batch += 1
