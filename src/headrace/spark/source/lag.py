"""How far a streaming query is behind, out of its own progress report: nothing is asked of a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.spark.source.offsets import START, parse_id
from headrace.spark.source.positions import parse_position


@dataclass(frozen=True)
class StreamProgress:
    """One stream of a query, when its last micro-batch was planned.

    read_to  up to this ID the query has read, that micro-batch included
    last     the last ID there was
    lag      how many entries lie between; None if that is not known
    bytes    about how many bytes those take in the server; None if not known
    seconds  the time between the two IDs; of a stream of which nothing is read, None
    """

    read_to: str
    last_id: str
    lag: int | None
    lag_bytes: int | None
    lag_seconds: float | None


@dataclass(frozen=True)
class QueryProgress:
    """A query's last micro-batch: entries read, and as a rate, and the streams by name."""

    entries: int
    entries_per_second: float
    streams: dict[str, StreamProgress]

    @property
    def lag(self) -> int | None:
        """The lag of all streams together; None if that of one is not known."""
        lags = [each.lag for each in self.streams.values() if each.lag is not None]
        return sum(lags) if len(lags) == len(self.streams) else None


def progress(query: Any) -> QueryProgress | None:
    """The progress of a StreamingQuery, or of what its lastProgress or a listener's event.progress.json says.

    None before the first report. Sources other than headrace are left out.
    """
    report = getattr(query, "lastProgress", query)
    if isinstance(report, str):
        report = json.loads(report)
    if not report:
        return None
    sources = [each for each in map(_as_dict, report["sources"]) if _is_ours(each["latestOffset"])]
    streams = {}
    for source in sources:
        ends = _as_dict(source["endOffset"])
        for stream, latest in _as_dict(source["latestOffset"]).items():
            streams[stream] = _stream(ends.get(stream, START), latest)
    return QueryProgress(
        sum(int(source["numInputRows"]) for source in sources),
        sum(float(source["processedRowsPerSecond"]) for source in sources),
        streams,
    )


def _stream(offset: str, latest: Mapping[str, Any]) -> StreamProgress:
    read_to = parse_position(offset).id
    seconds = max(0, parse_id(latest["id"])[0] - parse_id(read_to)[0]) / 1000 if read_to != START else None
    return StreamProgress(read_to, latest["id"], latest["lag"], latest["lagBytes"], seconds)


def _as_dict(value: Any) -> Any:
    """What Spark gives as an object, a dict or JSON."""
    if isinstance(value, str):
        return json.loads(value)
    return value if isinstance(value, Mapping) else {}


def _is_ours(latest: Any) -> bool:
    streams = _as_dict(latest).values()
    return bool(streams) and all(isinstance(each, Mapping) and "lag" in each for each in streams)
