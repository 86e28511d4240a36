"""Read the sample of entries from which a query infers columns: from a stream and its archive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.archive.files import Archive
from headrace.archive.sampling import sample_and_unread_count
from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key

SAMPLE_ENTRIES = 400  # of a stream, from both its ends


@dataclass(frozen=True)
class FieldSample:
    """A sample of a stream.

    Attributes:
        entries: The fields of its entries.
        unread_file_count: The number of archived files from which it has no entry.
    """

    entries: list[Mapping[bytes, bytes]] = field(default_factory=list)
    unread_file_count: int = 0


def sample_fields(servers: Servers | None, contents: Archive | None, stream: str) -> FieldSample:
    """Return a sample of a stream and of its archived files.

    Args:
        servers: The servers; None to read only the archive.
        contents: The archive; None to read only the stream.
        stream: The stream's name, which may be only in one of them.

    Raises:
        HeadraceError: if an archived file cannot be read.
    """
    live = sample_both_ends(servers, [stream], SAMPLE_ENTRIES)[stream] if servers else []
    found = [] if isinstance(live, Exception) else live  # the stream may be only in the archive
    files = [file for file in contents.files if file.stream == stream] if contents else []
    archived, unread = sample_and_unread_count(files)
    return FieldSample([*found, *archived], unread)


def sample_both_ends(
    servers: Servers, streams: Iterable[str], entries: int
) -> dict[str, list[Mapping[bytes, bytes]] | Exception]:
    """Read a sample of each stream: half of the entries from its beginning, half from its end, none twice.

    Args:
        servers: The servers.
        streams: The streams' names.
        entries: The number of entries to read from each stream.

    Returns:
        By stream the fields of its sampled entries, or the error of a stream that cannot be read.
    """
    half = -(-entries // 2)

    def enqueue(pipe: Any, stream: str) -> None:
        pipe.xrange(stream_key(stream), count=half)
        pipe.xrevrange(stream_key(stream), count=half)

    found: dict[str, list[Mapping[bytes, bytes]] | Exception] = {}
    for stream, (first, last) in servers.request_many(streams, enqueue).items():
        error = next((reply for reply in (first, last) if isinstance(reply, Exception)), None)
        found[stream] = error or list(dict([*first, *reversed(last)]).values())
    return found
