"""Compute the lag of a streaming query from its own progress report, without a request to a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.positions.entry_ids import START, parse_id
from headrace.positions.position import parse_position


@dataclass(frozen=True)
class StreamProgress:
    """One stream of a query, at the time when its last micro-batch was planned.

    Attributes:
        read_to: the ID up to which the query has read, including that micro-batch.
        last_id: the last ID of the stream.
        lag: the number of entries between these IDs; None if unknown.
        lag_bytes: about how many bytes those entries take in the server; None if unknown.
        lag_seconds: the time between the two IDs; None if the query has read nothing of the stream.
    """

    read_to: str
    last_id: str
    lag: int | None
    lag_bytes: int | None
    lag_seconds: float | None


@dataclass(frozen=True)
class QueryProgress:
    """The last micro-batch of a query.

    Attributes:
        entries: the number of entries read.
        entries_per_second: entries processed per second.
        streams: the progress in each stream, by its name.
    """

    entries: int
    entries_per_second: float
    streams: dict[str, StreamProgress]

    @property
    def lag(self) -> int | None:
        """The total lag of all streams, in entries; None if the lag of one is unknown."""
        lags = [each.lag for each in self.streams.values() if each.lag is not None]
        return sum(lags) if len(lags) == len(self.streams) else None


def progress(query: Any) -> QueryProgress | None:
    """Return the progress of a streaming query.

    Args:
        query: a StreamingQuery, its lastProgress, or a listener's event.progress.json.

    Returns:
        The progress in the sources of format headrace; None before the first report.
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
            streams[stream] = _stream_progress(ends.get(stream, START), latest)
    return QueryProgress(
        sum(int(source["numInputRows"]) for source in sources),
        sum(float(source["processedRowsPerSecond"]) for source in sources),
        streams,
    )


def _stream_progress(offset: str, latest: Mapping[str, Any]) -> StreamProgress:
    read_to = parse_position(offset).id
    seconds = max(0, parse_id(latest["id"])[0] - parse_id(read_to)[0]) / 1000 if read_to != START else None
    return StreamProgress(read_to, latest["id"], latest["lag"], latest["lagBytes"], seconds)


def _as_dict(value: Any) -> Any:
    """Return as a dict what Spark gives as a dict or as JSON; anything else as an empty dict."""
    if isinstance(value, str):
        return json.loads(value)
    return value if isinstance(value, Mapping) else {}


def _is_ours(latest: Any) -> bool:
    streams = _as_dict(latest).values()
    return bool(streams) and all(isinstance(each, Mapping) and "lag" in each for each in streams)
