"""`headrace inspect`: draw a stream as stored in memory."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from headrace.cli.options.server_options import url_option
from headrace.client import stream_names
from headrace.client.servers import servers_at
from headrace.client.url import without_password
from headrace.console import styles
from headrace.console.cold_run_picture import cold_run_table, cold_text
from headrace.console.escaping import printable
from headrace.console.group_picture import group_picture, rules_text
from headrace.console.listpack_picture import NodePicture
from headrace.console.stream_snapshot import ColdStats, StreamSnapshot, from_file, from_payload
from headrace.console.tree_picture import tree_picture
from headrace.errors import UsageError, os_error_text
from headrace.pipeline.shared.stream_selection import no_such_stream_error
from headrace.plurals import plural

FETCHED_BYTES_MAX = 64 << 20  # of a stream that is fetched without --large
SVG_WIDTH = 118  # characters
PARTS = ("tree", "node", "groups")


@click.command(
    "inspect",
    epilog="""\b
Examples:
  headrace inspect --url redis://127.0.0.1:7777 orders
  headrace inspect orders --file dump.rdb --node -1 --entries 10
  headrace inspect orders --only node --svg orders.svg
""",
)
@click.argument("key", metavar="STREAM")
@url_option
@click.option("--file", type=click.Path(path_type=Path), help="Read this snapshot (RDB) instead of a server.")
@click.option(
    "--db",
    "database",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="Read this database of the --file.",
)
@click.option(
    "--node", metavar="N|ID", default="-1", show_default=True, help="Draw the node of this number or ID."
)
@click.option(
    "--entries",
    type=click.IntRange(min=0),
    default=3,
    metavar="N",
    show_default=True,
    help="Draw at most N entries of the node.",
)
@click.option(
    "--pending",
    type=click.IntRange(min=0),
    default=12,
    metavar="N",
    show_default=True,
    help="Draw at most N entries per group.",
)
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Draw only this part; may be repeated.")
@click.option("--svg", type=click.Path(path_type=Path), help="Also write the drawing to this file.")
@click.option("--large", is_flag=True, help="Allow a stream of more than 64 MiB.")
def command(
    key: str, url: str, file: Path | None, database: int, node: str, entries: int, pending: int,
    only: tuple[str, ...], svg: Path | None, large: bool,
) -> None:  # fmt: skip
    """Draw a stream as stored in memory: the radix tree, a node's listpack byte by byte, the pending lists.

    Works with any Redis or Valkey server, because DUMP returns the stored bytes. The server copies the whole
    stream for that, also entries in files. The --file may be the base of a log: cold runs are drawn as such.
    """
    snapshot = from_file(key, file, database) if file else fetch_stream_snapshot(key, url, large)
    picture = draw(snapshot, node, entries, pending, only or PARTS)
    Console(highlight=False).print(picture)
    if svg is not None:
        save_svg(picture, svg, f"headrace inspect {printable(key)}")


def save_svg(picture: RenderableType, path: Path, title: str) -> None:
    """Write the drawing to an SVG file. UsageError if it cannot be written."""
    console = Console(record=True, width=SVG_WIDTH, file=io.StringIO(), highlight=False, force_terminal=True)
    console.print(picture)
    try:
        path.write_text(console.export_svg(title=title), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {os_error_text(error)}") from None


def fetch_stream_snapshot(key: str, url: str, large: bool) -> StreamSnapshot:
    """Return a snapshot of a stream of the server.

    Raises:
        UsageError: if the key does not exist or is not a stream, or the stream is too large without `large`.
        HeadraceError: if it cannot be read.
    """
    where = without_password(url)
    name = stream_names.stream_key(key)
    with servers_at(url) as servers:
        client = servers.client()
        kind = client.type(name)
        if kind != b"stream":
            if kind == b"none":
                raise no_such_stream_error(servers, key)
            raise UsageError(f"{where}: {key!r} is not a stream but a {kind.decode()}")
        used = client.memory_usage(name) or 0
        if used > FETCHED_BYTES_MAX and not large:
            raise UsageError(
                f"{where}: {key!r} takes {styles.format_size(used)} of memory, which the server would copy; "
                "use --large"
            )
        about = client.xinfo_stream(name)
        cold = ColdStats(*(int(about.get(f"cold-{what}", 0)) for what in ("entries", "bytes", "files")))
        if cold.memory_bytes > FETCHED_BYTES_MAX and not large:
            raise UsageError(
                f"{where}: {key!r} takes {styles.format_size(cold.memory_bytes)} in files, which the server "
                "would copy; use --large"
            )
        payload = client.dump(name)
        if payload is None:
            raise UsageError(f"{where}: stream {key!r} was deleted meanwhile")
        snapshot = from_payload(key, where, payload, cold if cold.entries else None)
        if cold.entries:
            snapshot.cold_file_names = cold_file_names(client.xinfo_stream(name, full=True))
        return snapshot


def cold_file_names(about: Mapping[str, Any]) -> list[str]:
    """Return the names of the cold files in a reply of XINFO STREAM FULL; those of the oldest runs first."""
    names = about.get("cold-file-names", [])
    return [name.decode(errors="backslashreplace") for name in names]


def draw(
    snapshot: StreamSnapshot, node: str, entries: int, pending: int, only: tuple[str, ...]
) -> RenderableType:
    """Return the drawing: a summary, then the requested parts."""
    parts: list[RenderableType] = [summary(snapshot)]
    chosen = snapshot.node_index(node) if snapshot.packed_nodes else None
    if "tree" in only:
        tree = snapshot.stream.nodes
        title = f"radix tree: {plural(tree.key_count, 'key')} in {plural(tree.node_count, 'node')}"
        parts.append(framed(tree_picture(snapshot, chosen), title))
    if "node" in only and chosen is not None:
        pack = snapshot.packed_nodes[chosen]
        what = (
            "a cold run"
            if pack.cold_run is not None
            else f"a listpack of {styles.format_size(len(pack.data))}"
        )
        title = (
            f"node {chosen} of {len(snapshot.packed_nodes)}, {pack.id}: {what}, {plural(pack.live, 'entry')}"
        )
        picture = (
            NodePicture(pack.parse(), entries) if pack.cold_run is None else cold_run_table(pack.cold_run)
        )
        parts.append(framed(picture, title))
    if "groups" in only:
        count = plural(snapshot.stream.group_count, "group")
        parts.append(framed(group_picture(snapshot, pending), count))
    return Group(*parts)


def framed(picture: RenderableType, title: str) -> Panel:
    """Return a part of the drawing in a frame."""
    heading = Text.assemble((title, "bold default"))
    return Panel(picture, title=heading, title_align="left", border_style=styles.FAINT, padding=(1, 2))


def summary(snapshot: StreamSnapshot) -> Text:
    """Return the stream's name, size, last ID and counters."""
    stream = snapshot.stream
    hot = [pack for pack in snapshot.packed_nodes if pack.cold_run is None]
    data, length = sum(len(pack.data) for pack in hot), sum(pack.live for pack in hot)
    text = Text.assemble(
        (printable(snapshot.name), "bold"),
        (f" at {printable(snapshot.source_name)}\n", styles.GREY),
        (plural(stream.length, "entry"), "bold"),
        (f" in {plural(len(snapshot.packed_nodes), 'node')} of {styles.format_size(data)}", styles.GREY),
    )
    if length:
        text.append(f", {data / length:.1f} bytes an entry", styles.GREY)
    text.append(f"; last ID {stream.last_id()}, {stream.entries_added:,} added in all", styles.GREY)
    if snapshot.cold_stats is not None:
        text.append("\n").append_text(cold_text(snapshot.cold_stats, snapshot.cold_file_names))
    if stream.rules is not None:
        text.append("\n").append_text(rules_text(stream.rules))
    return text
