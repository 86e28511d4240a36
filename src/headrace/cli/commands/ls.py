"""`headrace ls`: list the streams of a server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
from redis.exceptions import ResponseError

from headrace.archive.watermark import Watermark
from headrace.archive.watermark_release import iter_watermarks
from headrace.cli.options.completion import complete_streams
from headrace.cli.options.server_options import url_option
from headrace.cli.output.printing import bytes_to_json, id_time, print_json, print_table
from headrace.client.servers import Servers, servers_at
from headrace.client.stream_info import first_entry_id
from headrace.client.stream_names import stream_key, stream_name
from headrace.console import styles
from headrace.errors import UsageError
from headrace.pipeline.shared.stream_selection import compile_pattern, no_match_message, select_streams

STREAMS_PER_REQUEST = 100
COLUMN_DROP_ORDER = ("in files", "memory", "groups", "first", "last")
ARCHIVE_TITLES = ("stream", "archived up to", "archive", "archive ID")
TITLES = ("stream", "entries", "first", "last", "memory", "in files", "groups")
RIGHT_ALIGNED_TITLES = ("entries", "memory", "in files", "groups")


@dataclass(frozen=True)
class StreamSummary:
    """The values that `headrace ls` prints for a stream.

    Attributes:
        key: The name.
        length: Number of entries.
        first_id: ID of the first entry; None if the stream is empty.
        last_id: ID of the last entry; None if the stream is empty.
        memory_bytes: Bytes of memory; None if the server does not report it.
        group_count: Number of consumer groups.
        cold_entries: Number of entries in files instead of in memory.
        cold_bytes: Bytes of memory that these entries would take.
        cold_files: Number of the files.
    """

    key: bytes
    length: int
    first_id: str | None
    last_id: str | None
    memory_bytes: int | None
    group_count: int
    cold_entries: int = 0
    cold_bytes: int = 0
    cold_files: int = 0


@click.command(
    "ls",
    epilog="""\b
Examples:
  headrace ls
  headrace ls orders
  headrace ls --pattern 'orders:.*'
  headrace ls --archives
  headrace ls --json | jq -r 'select(.groups == 0).stream'
""",
)
@click.argument("streams", nargs=-1, metavar="[STREAM]...", shell_complete=complete_streams)
@click.option("--pattern", metavar="REGEX", help="List only streams whose whole name matches.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line.")
@click.option("--archives", is_flag=True, help="List up to which ID each archive has the streams.")
@url_option
def command(streams: tuple[str, ...], pattern: str | None, as_json: bool, archives: bool, url: str) -> None:
    """List all or the given streams: entries, times of the first and the last one (UTC), memory, groups.

    For streams larger than memory also list the entries in files, and the memory that they would take.
    """
    if streams and pattern:
        raise UsageError("name streams, or give --pattern")
    matches = compile_pattern(pattern or ".*").fullmatch
    chosen = select_streams(url, streams, None) if streams else None
    with servers_at(url) as servers:
        names = chosen or sorted({name for name in servers.iter_streams() if matches(name)})
        if archives:
            print_archives(list(iter_watermarks(servers, names)), as_json)
            return
        summaries = list(read_summaries(servers, names))
    if as_json:
        for each in summaries:
            print_json(summary_json_object(each))
        return
    rows = [
        [
            stream_name(each.key),
            each.length,
            None if each.first_id is None else id_time(each.first_id),
            None if each.last_id is None else id_time(each.last_id),
            None if each.memory_bytes is None else styles.format_size(each.memory_bytes),
            styles.format_cold_entries(each.cold_entries, each.cold_bytes) if each.cold_entries else None,
            each.group_count,
        ]
        for each in summaries
    ]
    if rows:
        print_table(
            TITLES, rows, right=RIGHT_ALIGNED_TITLES, dropped=COLUMN_DROP_ORDER, optional=("in files",)
        )
    else:
        click.echo("there are no streams" if pattern is None else no_match_message(pattern), err=True)


def print_archives(watermarks: list[tuple[str, Watermark]], as_json: bool) -> None:
    """Print up to which ID each archive has each stream."""
    if as_json:
        for stream, each in watermarks:
            print_json(
                {
                    "stream": bytes_to_json(stream_key(stream)),
                    "archive": each.location or None,
                    "archive_id": each.table_id or None,
                    "archived_id": each.position.id if each.has_entries else None,
                }
            )
    elif watermarks:
        rows = [
            [stream, each.position.id if each.has_entries else None, each.archive_name, each.table_id or None]
            for stream, each in watermarks
        ]
        print_table(ARCHIVE_TITLES, rows, dropped=("archive ID",))
    else:
        click.echo("no archive has a watermark of these streams", err=True)


def read_summaries(servers: Servers, names: list[str]) -> Iterator[StreamSummary]:
    """Yield the summaries of these streams; those deleted meanwhile are left out."""

    def add_requests(pipe: Any, name: str) -> None:
        pipe.xinfo_stream(stream_key(name))
        pipe.memory_usage(stream_key(name))

    for start in range(0, len(names), STREAMS_PER_REQUEST):
        page = names[start : start + STREAMS_PER_REQUEST]
        for name, (about, memory) in servers.request_many(page, add_requests).items():
            if isinstance(about, ResponseError) and "no such key" in str(about).lower():
                continue
            if isinstance(about, Exception):
                raise about
            first, last = first_entry_id(about), about["last-entry"]
            yield StreamSummary(
                stream_key(name),
                int(about["length"]),
                first.decode() if first else None,
                last[0].decode() if last else None,
                memory if isinstance(memory, int) else None,
                int(about["groups"]),
                int(about.get("cold-entries", 0)),
                int(about.get("cold-bytes", 0)),
                int(about.get("cold-files", 0)),
            )


def summary_json_object(stream: StreamSummary) -> dict[str, Any]:
    """Return a stream as a JSON object."""
    return {
        "stream": bytes_to_json(stream.key),
        "entries": stream.length,
        "first_id": stream.first_id,
        "last_id": stream.last_id,
        "first_time": None if stream.first_id is None else id_time(stream.first_id),
        "last_time": None if stream.last_id is None else id_time(stream.last_id),
        "memory_bytes": stream.memory_bytes,
        "groups": stream.group_count,
        "cold_entries": stream.cold_entries,
        "cold_bytes": stream.cold_bytes,
        "cold_files": stream.cold_files,
    }
