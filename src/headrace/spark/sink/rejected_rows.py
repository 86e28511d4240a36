"""Correct the marker of a transaction some of whose rows were rejected: Redis does not undo the others."""

from __future__ import annotations

from headrace.errors import CommandError
from headrace.spark.sink.at_least_once import RowChunk
from headrace.spark.sink.marker import Marker


def rejection_message(chunk: RowChunk, errors: list[str]) -> str:
    """Return the error for rows that the server has rejected."""
    name = chunk.stream.decode(errors="surrogateescape")
    return (
        f"{errors[0]} (adding entries to the stream {name!r}; {len(errors)} of {chunk.row_count} were "
        "rejected)"
    )


def marker_correction(marker: Marker, chunk: RowChunk, errors: list[str]) -> list[bytes]:
    """Return a command that restores the old marker, or, if some rows were added, records the error in it."""
    key, ttl = marker.key(chunk.stream), b"%d" % marker.ttl_ms
    if len(errors) < chunk.row_count:
        rows = f"rows {chunk.first_row} to {chunk.end_row - 1}"
        reason = f"{len(errors)} of {rows} were rejected, {errors[0]}"
        error = marker.error_value(chunk.end_row, chunk.digest_after, reason)
        return [b"SET", key, error, b"PX", ttl]
    if chunk.marker_before is None:
        return [b"DEL", key]
    return [b"SET", key, chunk.marker_before, b"PX", ttl]


def not_corrected_message(rejected: str, correction: list[bytes], failure: CommandError) -> str:
    """Return the error for rejected rows whose marker could not be corrected."""
    shown = b" ".join(correction).decode(errors="backslashreplace")
    return (
        f"{rejected}. The marker counts them as written, and could not be corrected: {failure}. "
        f"Before the batch is written again, send {shown}"
    )
