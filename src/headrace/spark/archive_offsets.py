"""Find where an archive ends, as the start of a stream query: a backfill reads the archive first.

    archive   |=================|                 a batch query up to the offsets (endingOffsets)
    stream         xxxxxxxxx|===|=======>         a stream query after them (startingOffsets)
                                ^ offsets

The offsets hold the identity of each stream. So the stream query detects from its first batch on whether the
stream was recreated, or trimmed after the archive's end; until then offsets_after_archive() itself checks it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from headrace.archive.files import Archive, read_archive
from headrace.archive.location import archive_location
from headrace.client.connection_errors import explain_connection_errors
from headrace.client.servers import Servers
from headrace.client.stream_names import normalize_name
from headrace.client.url import without_password
from headrace.errors import HeadraceError, UsageError
from headrace.positions.entry_ids import START, parse_id
from headrace.positions.position import Position
from headrace.positions.recreation import StreamObservation, identity_mismatch_reason, observe_streams
from headrace.positions.stream_state import count_trimmed_after
from headrace.spark.options import DEFAULT_URL
from headrace.spark.source.data_loss import DataLoss


def offsets_after_archive(
    archive: str | os.PathLike[str],
    streams: str | Sequence[str] | None = None,
    *,
    url: str = DEFAULT_URL,
    storage_options: Mapping[str, str] | None = None,
) -> str:
    """Return where an archive ends, as offsets of Spark: for a query that reads it, then follows the streams.

    Give them to a batch read of the archive as `endingOffsets`, with `archiveOnly`, and to a stream query as
    `startingOffsets`: no entry is missing, and none is read twice, even if the archive grows meanwhile. A
    stream of which nothing is archived begins with its first entry.

    Args:
        archive: The archive: a directory, or a URL such as `s3://lake/orders`.
        streams: The name of a stream, or several names; None for all streams of the archive.
        url: The server of the streams.
        storage_options: The options of the object store, such as `AWS_ENDPOINT_URL`.

    Returns:
        JSON by stream, such as `{"orders": "1763676000000-4:5:9af3c01e"}`: the ID of the last archived entry
        and the identity of the stream.

    Raises:
        DataLoss: if entries after the archive's end were trimmed, or the stream was deleted or recreated.
        UsageError: if there is no such archive or stream.
        HeadraceError: if the server or the store fails, or the archive has entries of an earlier stream of
            that name with higher IDs, so that no offset separates archive and stream.
    """
    location = archive_location(archive, storage_options)
    contents = read_archive(location)
    named = [streams] if isinstance(streams, str) else streams
    archived = contents.archived_through | contents.highest_ids
    names = sorted(archived if named is None else set(map(normalize_name, named)))
    positions = {name: end_position(contents, name) for name in names}
    with closing(Servers(url, reconnect_timeout=0)) as servers, explain_connection_errors(url):
        observed = observe_streams(servers, names, positions)
    for name in names:
        if name not in archived and name not in observed:
            raise UsageError(f"there is no stream {name!r} in {location} and {without_password(url)}")
        check_continues(name, positions[name], observed.get(name))
    return json.dumps({name: str(positions[name]) for name in names})


def end_position(contents: Archive, stream: str) -> Position:
    """Return the position up to which a stream is archived.

    Raises:
        HeadraceError: if the archive also has higher IDs, of an earlier stream of that name.
    """
    through = contents.archived_through.get(stream, START)
    highest = contents.highest_ids.get(stream, through)
    if parse_id(highest) > parse_id(through):
        raise HeadraceError(
            f"the stream {stream!r} was recreated: {contents.location} has entries of the earlier one up to "
            f"{highest}, and of the present one up to {through}, so no ID separates archive and stream. Read "
            "the archive without endingOffsets while no job writes to it, and the stream from "
            f'startingOffsets={{"{stream}": "{through}"}}'
        )
    return replace(contents.positions.get(stream, Position(through)), generation=0)


def check_continues(stream: str, position: Position, observation: StreamObservation | None) -> None:
    """Raise DataLoss if a stream no longer has all entries after the end of its archive."""
    if position.id == START:
        return
    ends = f"The archive of the stream {stream!r} ends at {position.id}, and"
    restart = f'Start the stream query at its beginning, with startingOffsets={{"{stream}": "earliest"}}'
    if observation is None:
        raise DataLoss(
            f"{ends} the stream was deleted: it is not known whether it had later entries. {restart}, if it "
            "is created again."
        )
    mismatch = identity_mismatch_reason(position, observation)
    if mismatch is not None:
        raise DataLoss(
            f"{ends} the stream was deleted and recreated, or a failover took entries back: {mismatch}. "
            f"{restart}, to read all of the present stream."
        )
    state = observation.state
    if state.first_id is not None and parse_id(state.first_id) <= parse_id(position.id):
        return
    number = position.entry_number if position.entry_number_is_exact else None
    lost = count_trimmed_after(position.id, number, state)
    if lost == 0:
        return
    many = "any entries" if lost is None else f"{lost:,} {'entry' if lost == 1 else 'entries'}"
    were = "was" if lost == 1 else "were"
    found = f"its first entry is {state.first_id}" if state.first_id else "it is empty"
    raise DataLoss(
        f"{ends} {found}: {many} between them {were} trimmed before they were archived. {restart}, to "
        "continue with the remaining entries."
    )
