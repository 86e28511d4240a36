"""The jobs trim and release: remove what is archived and acknowledged, and release unused archives."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence

from headrace.archive.location import archive_location
from headrace.archive.watermark_release import delete_watermarks
from headrace.pipeline.shared.arguments import checked_at_least, duration_ms
from headrace.pipeline.shared.stream_selection import select_streams
from headrace.pipeline.trimming.horizon import RetentionPolicy
from headrace.pipeline.trimming.trim_streams import TrimResult, trim_streams
from headrace.spark.options import DEFAULT_URL


def trim(
    streams: str | Sequence[str] | None = None,
    *,
    pattern: str | None = None,
    url: str = DEFAULT_URL,
    archive: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    keep: int | None = None,
    keep_for: str | datetime.timedelta | None = None,
    no_groups_ok: bool = False,
    dry_run: bool = False,
    on_progress: Callable[[str, int], None] = lambda stream, removed: None,
) -> list[TrimResult]:
    """Remove the entries that all archives of a stream have, and all its groups have acknowledged.

    It needs neither Spark nor PySpark. An interrupted trim has removed some of these entries, and no others.

    Args:
        streams: The name of a stream, or several names; None if a pattern is given.
        pattern: Trim all streams whose whole name matches this regular expression.
        url: The server.
        archive: Read the last archived IDs from this archive itself, and check its files; None for the IDs
            that are stored on the server.
        storage_options: The options of the archive's object store, such as `AWS_ENDPOINT_URL`.
        keep: Keep at least this number of newest entries.
        keep_for: Keep entries newer than this: a timedelta, or a text such as `"2h"`.
        no_groups_ok: Whether to trim streams that have no consumer group.
        dry_run: Whether to remove nothing, and return what would be removed.
        on_progress: Called after each step with the stream and the number of entries removed by the step.

    Returns:
        A result for each stream: names in the order given, matches of a pattern sorted by name.

    Raises:
        UsageError: if a stream does not exist, none matches, or an argument is wrong.
        HeadraceError: if the server is not reachable or rejects a command, or the archive lacks a file of
            entries that are still in a stream.
    """
    location = None if archive is None else archive_location(archive, storage_options)
    retention = RetentionPolicy(
        0 if keep is None else checked_at_least("--keep", keep, 1),
        0 if keep_for is None else duration_ms("--keep-for", keep_for),
        no_groups_ok,
    )
    return trim_streams(
        url,
        select_streams(url, streams, pattern),
        archive=location,
        retention=retention,
        dry_run=dry_run,
        on_progress=on_progress,
    )


def release(
    archive: str | os.PathLike[str],
    streams: str | Sequence[str] | None = None,
    *,
    pattern: str | None = None,
    url: str = DEFAULT_URL,
) -> list[str]:
    """Delete what an archive that is no longer used has published about streams, so that trim() ignores it.

    Nothing is deleted from the archive or from the streams.

    Args:
        archive: Where the archive is or was: a directory, or a URL; or its ID, as `headrace ls --archives`
            shows it.
        streams: The name of a stream, or several names; None if a pattern is given.
        pattern: Release all streams whose whole name matches this regular expression.
        url: The server.

    Returns:
        The streams about which the archive had published something.

    Raises:
        UsageError: if a stream does not exist, none matches, or no such archive has published anything.
        HeadraceError: if the server is not reachable or rejects a command.
    """
    return delete_watermarks(url, select_streams(url, streams, pattern), os.fspath(archive))
