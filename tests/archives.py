"""Archives as the archive job leaves them, made without Spark: files by day, and the log of what counts."""

from __future__ import annotations

import datetime
import json
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet

Entry = tuple[str, Mapping[str, object]]
MAP = pa.map_(pa.string(), pa.string())


class ArchiveMaker:
    """An archive that grows batch by batch. schema: the fields as columns of these types, or one map."""

    def __init__(self, directory: pathlib.Path, schema: pa.Schema | None = None) -> None:
        self.directory = directory
        self.schema = schema
        self.batches = 0
        self.log = directory / "_spark_metadata"
        self.log.mkdir(parents=True)

    def alone(self, stream: str) -> None:
        """Make it the archive of one stream, without a folder for it."""
        note = self.directory / "_headrace" / "stream.json"
        note.parent.mkdir()
        note.write_text(json.dumps({"stream": stream, "fields": None}))

    def add(
        self,
        stream: str | None,
        entries: Sequence[Entry],
        *,
        committed: bool = True,
        shift_hours: int = 0,
        group_rows: int = 1000,
    ) -> list[pathlib.Path]:
        """A batch: a file for each day (days may begin hours away from UTC's). stream None: alone()."""
        days: dict[str, list[Entry]] = {}
        for entry in entries:
            moment = datetime.datetime.fromtimestamp(int(entry[0].split("-")[0]) / 1000, datetime.UTC)
            moment += datetime.timedelta(hours=shift_hours)
            days.setdefault(moment.date().isoformat(), []).append(entry)
        files = []
        for day, theirs in days.items():
            folder = self.directory
            if stream is not None:
                folder /= f"stream={urllib.parse.quote(stream, safe='')}"
            file = folder / f"date={day}" / f"part-{self.batches:05}-{len(files)}.snappy.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            pa.parquet.write_table(
                self.table(theirs), file, row_group_size=group_rows, use_deprecated_int96_timestamps=True
            )
            files.append(file)
        if committed:
            self.commit([(file, "add") for file in files])
        return files

    def commit(self, files: Sequence[tuple[pathlib.Path, str]], *, compact: bool = False) -> None:
        """A batch of Spark's log: what was added and deleted; or a compact file, for all batches so far."""
        lines = [json.dumps({"path": file.as_uri(), "size": 1, "action": action}) for file, action in files]
        name = f"{self.batches}.compact" if compact else str(self.batches)
        (self.log / name).write_text("\n".join(["v1", *lines]))
        self.batches += 1

    def remember(self, offsets: Mapping[str, str]) -> None:
        """The checkpoint's offsets of the last batch."""
        folder = self.directory / "_headrace" / "checkpoint" / "offsets"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(self.batches - 1)).write_text("\n".join(["v1", "{}", json.dumps(offsets)]))

    def table(self, entries: Sequence[Entry]) -> pa.Table:
        """The entries as the columns of a file."""
        ids = [entry_id for entry_id, _ in entries]
        times = [int(each.split("-")[0]) for each in ids]
        columns = {
            "id": pa.array(ids, pa.string()),
            "timestamp": pa.array(times, pa.timestamp("ms")),
            "sequence": pa.array([int(each.split("-")[1]) for each in ids], pa.int64()),
        }
        if self.schema is None:
            pairs = [[(name, str(value)) for name, value in fields.items()] for _, fields in entries]
            columns["fields"] = pa.array(pairs, MAP)
        else:
            for column in self.schema:
                columns[column.name] = pa.array([f.get(column.name) for _, f in entries], column.type)
        return pa.table(columns)
