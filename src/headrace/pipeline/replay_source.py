"""What a replay plays: the entries of one stream in order, from its archive, then from the live stream.

The batches have a column `id`, and `fields`, a map; of an archive of columns a column for each field instead,
and `_fields`, a map of all fields of an entry that these columns do not give back.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.ordered_archive_reader import entries_in_order
from headrace.pipeline.similar_streams import similar_stream
from headrace.server_url import without_password
from headrace.spark.archive.files import ArchivedFile, look
from headrace.spark.archive.local_paths import local_path
from headrace.spark.archive.partition_reader import CORRUPT, EXACT, as_map, is_map, whole_fields
from headrace.spark.decode.schema import Layout
from headrace.spark.options import parse_options
from headrace.spark.servers import Servers
from headrace.spark.source.arrow_reader import make_range_reader
from headrace.spark.source.history import identity_mismatch, observe_streams
from headrace.spark.source.offsets import START, U64_MAX, EntryId, format_id, parse_id
from headrace.spark.source.planner import OffsetRange
from headrace.spark.source.range_reader import DataLoss
from headrace.spark.source.stream_state import last_ids

PAIRS = pa.map_(pa.string(), pa.string())
ID = re.compile(r"\d+(-\d+)?")
LAST = format_id((U64_MAX, U64_MAX))

# Fields are copied byte by byte: they need not be text.
ENTRY = StructType(
    [
        StructField("_id", StringType()),
        StructField("_fields", MapType(BinaryType(), BinaryType())),
    ]
)


@dataclass(frozen=True)
class Source:
    """One stream: what an archive has of it, if one is given, then what the server has, if one is given."""

    stream: str
    url: str | None
    archive: Path | None = None

    def __post_init__(self) -> None:
        if self.archive is not None:
            object.__setattr__(self, "archive", local_path(self.archive))

    def end(self) -> str:
        """The last ID there is now; 0-0 if there is none. UsageError if there is no such stream anywhere."""
        files, _, last = self._archived()
        live, hint = None, ""
        if self.url is not None:
            with closing(Servers(self.url)) as servers:
                live = last_ids(servers, [self.stream]).get(self.stream)
                if live is None and not files:
                    hint = similar_stream(servers, self.stream)
        if live is None and not files:
            url = None if self.url is None else without_password(self.url)
            where = " and ".join(str(place) for place in (self.archive, url) if place)
            raise UsageError(f"there is no stream {self.stream!r} in {where}{hint}")
        return max(live or START, last, key=parse_id)

    def batches(self, after: str, upto: str, resumed: bool = False) -> Iterator[pa.RecordBatch]:
        """The entries after one ID, up to and including another. resumed: the first ID is an entry's.

        DataLoss if live entries are trimmed before they are read, which a slow replay may live to see, and
        one that was broken off, too.
        """
        files, seam, last = self._archived()
        if after != upto:
            self._check_history()
        anchored = resumed and parse_id(after) >= parse_id(seam)
        if parse_id(after) < parse_id(last):
            for batch in entries_in_order(files, after, min(upto, last, key=parse_id)):
                yield from restored(batch)
        after = max(after, seam, key=parse_id)
        if self.url is not None and parse_id(after) < parse_id(upto):
            options = parse_options({"url": self.url, "assign": json.dumps([self.stream])}, "batch")
            part = OffsetRange(self.stream, after, upto, anchored)
            try:
                for batch in make_range_reader(part, Layout(ENTRY, "epoch_ms"), options).batches():
                    yield batch.rename_columns(["id", "fields"])
            except DataLoss as loss:
                what = str(loss).partition(" Set failOnDataLoss")[0]
                raise DataLoss(f"{what} A replay --from there takes what is left.") from None

    def _archived(self) -> tuple[list[ArchivedFile], str, str]:
        """The files of the stream, the ID up to which it is archived, and the highest one in the files."""
        if self.archive is None:
            return [], START, START
        now = look(self.archive)
        files = [file for file in now.files if file.stream == self.stream]
        return files, now.seams.get(self.stream, START), now.ends.get(self.stream, START)

    def _check_history(self) -> None:
        """Fail if what the server has now is another stream than the archived one.

        Raises:
            DataLoss: if the stream was deleted and recreated.
        """
        position = look(self.archive).positions.get(self.stream) if self.archive else None
        if position is None or self.url is None:
            return
        with closing(Servers(self.url)) as servers:
            sight = observe_streams(servers, [self.stream], {self.stream: position}).get(self.stream)
        why = None if sight is None else identity_mismatch(position, sight)
        if why is not None:
            raise DataLoss(
                f"the stream {self.stream!r} was deleted and recreated, or a failover took entries back: it "
                f"is archived up to {position.id}, and {why}. Replay the archive with --archive-only, and "
                "what the server has without --archive."
            )


def restored(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows with the fields they had: what did not fit its columns was kept beside them, whole."""
    if EXACT in batch.schema.names:
        batch = with_exact(batch)
    if is_map(batch.schema) and batch.column("fields").null_count:
        missing = batch.column("id").filter(batch.column("fields").is_null())
        raise HeadraceError(
            f"entry {missing[0]} has no fields in the archive: they were not UTF-8, and the version that "
            "archived them kept only text. Replay the stream itself, or leave it out by --from and --to"
        )
    if CORRUPT not in batch.schema.names:
        yield batch
        return
    kept, columns = batch.column(CORRUPT), batch.drop_columns([CORRUPT])
    start = 0
    for corrupt, run in groupby(kept.is_valid().to_pylist()):
        stop = start + len(list(run))
        if not corrupt:
            yield columns.slice(start, stop - start)
        else:
            entries = [json.loads(text.as_py()) for text in kept[start:stop]]
            if lost := [entry["id"] for entry in entries if "fields" not in entry]:
                raise HeadraceError(f"entry {lost[0]} did not fit the archive's columns, nor beside them")
            pairs = pa.array([list(entry["fields"].items()) for entry in entries], PAIRS)
            ids = batch.column("id")[start:stop]
            yield pa.RecordBatch.from_arrays([ids, pairs], ["id", "fields"])
        start = stop


def with_exact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without the column `_exact`: what that has of an entry stands for all other columns of it."""
    ids = batch.column("id")
    if is_map(batch.schema):
        return pa.RecordBatch.from_arrays([ids, whole_fields(batch)], ["id", "fields"])
    kept = batch.column(EXACT)
    rest = batch.drop_columns([EXACT])
    if kept.null_count == len(kept):
        return rest
    columns = [
        column if name == "id" else pc.if_else(kept.is_valid(), pa.scalar(None, column.type), column)
        for name, column in zip(rest.schema.names, rest.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays([*columns, as_map(kept)], [*rest.schema.names, "_fields"])


def before(text: str) -> str:
    """The ID just before the first that `text`, an ID or a time, lets in. UsageError if it is neither."""
    ms, seq = first_of(text)
    if (ms, seq) == (0, 0):
        return START
    return format_id((ms, seq - 1) if seq else (ms - 1, U64_MAX))


def until(text: str) -> str:
    """The last ID that `text` lets in: an ID itself, but a time not. UsageError if it is neither."""
    if ID.fullmatch(text):
        return format_id(as_id(text)) if "-" in text else format_id((as_id(text)[0], U64_MAX))
    return before(text)


def first_of(text: str) -> EntryId:
    """An ID as numbers, or the first one of a time."""
    if ID.fullmatch(text):
        return as_id(text)
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is neither an ID, such as 1357081200000-0, nor a time, such as 2013-01-01T23:00"
        ) from error
    ms = time.replace(tzinfo=time.tzinfo or datetime.UTC).timestamp() * 1000
    if ms < 0:
        raise UsageError(f"{text} lies before 1970, where no ID is")
    return round(ms), 0


def as_id(text: str) -> EntryId:
    """An ID as numbers."""
    try:
        return parse_id(text)
    except ValueError as error:
        raise UsageError(str(error)) from error
