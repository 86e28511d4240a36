"""`headrace export`: write all data, with those in cold files, into a snapshot for redis-server."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from headrace.cli.connections.snapshot_download import download_snapshot
from headrace.cli.options.option_types import cold_store_option
from headrace.client.servers import servers_at
from headrace.console.rich_text import line
from headrace.console.styles import format_size
from headrace.engine.engine import Engine
from headrace.engine.foreign_commands import log_replayer_and_skipped
from headrace.errors import HeadraceError, UsageError, os_error_text
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.settings import Settings
from headrace.memory_size import parse_memory
from headrace.persistence.aof.reader import Execute
from headrace.persistence.data_directory import DiskDirectory, File, write_file
from headrace.persistence.export import (
    check_received_snapshot,
    loaded_data,
    temporary_replacement,
    write_snapshot,
)
from headrace.persistence.gradual_writer import gradual_writer
from headrace.plurals import plural

DATABASE_COUNT = 1024  # more than a server is usually configured with


@click.command(
    "export",
    epilog="""\b
Examples:
  headrace export data orders.rdb
  headrace export --overwrite redis://127.0.0.1:7777 orders.rdb
""",
)
@click.argument("source", metavar="DIR|URL")
@click.argument("file", type=click.Path(), metavar="FILE")
@click.option("--overwrite", is_flag=True, help="Replace an existing FILE.")
@click.option(
    "--hot-memory",
    metavar="BYTES",
    default="256mb",
    show_default=True,
    help="Keep at most so much of the data in memory, the rest in files beside FILE.",
)
@cold_store_option
def command(source: str, file: str, overwrite: bool, hot_memory: str, cold_store: str) -> None:
    """Write all data into a snapshot that redis-server 7.0 and later versions load.

    The source is the data directory of a stopped server, or the URL of a running one. A running server sends
    its data as it does to a replica. Entries in cold files become part of the snapshot.

    FILE appears under its name only when it is complete and synced to the disk.
    """
    limit = parse_hot_memory(hot_memory)
    is_url = "://" in source
    if not is_url and not os.path.exists(source):
        raise UsageError(f"{source}: no such directory")
    with temporary_replacement(file, overwrite) as temporary, progress_display() as display:
        found = (
            export_server_and_describe(source, temporary, display)
            if is_url
            else export_directory_and_describe(source, temporary, limit, display, cold_store)
        )
        size = os.path.getsize(temporary)
    Console(highlight=False).print(line(f"{file}: {found}{plural(size, 'byte')}"), soft_wrap=True)


def parse_hot_memory(text: str) -> int:
    """Return a number of bytes. UsageError if the text is not one, or is 0."""
    try:
        limit = parse_memory(text)
    except ValueError:
        limit = 0
    if not limit:
        raise UsageError(f"--hot-memory: not a size: {text!r}; expected a number of bytes, such as 256mb")
    return limit


@contextlib.contextmanager
def progress_display() -> Iterator[Progress]:
    """Yield a display on standard error; silent without a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TextColumn("{task.fields[size]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as display:
        yield display


def export_directory_and_describe(
    source: str, temporary: str, hot_memory: int, display: Progress, cold_store: str = ""
) -> str:
    """Write the data of a directory to the file `temporary`; describe the number of keys and cold runs."""
    now_ms = time.time_ns() // 1_000_000
    reading: dict[str, TaskID] = {}

    def on_read(name: str, done: int, total: int) -> None:
        if name not in reading:
            reading[name] = display.add_task(f"reading {name}", total=total, size="")
        display.update(reading[name], completed=done, size=format_size(done))

    beside = os.path.dirname(os.path.abspath(temporary))
    with (
        tempfile.TemporaryDirectory(prefix="temp-export-", dir=beside) as scratch,
        loaded_data(
            source, scratch, new_keyspace_and_executor, hot_memory, now_ms, on_read, cold_store
        ) as data,
    ):
        for note in data.notes:
            logging.getLogger("headrace").warning("%s", note)
        cold = data.keyspace.cold_storage
        assert cold is not None
        runs = cold.cache.cold_run_totals.run_count
        writing = display.add_task("writing", total=runs or None, size="")
        keys = write_snapshot(
            data,
            temporary,
            now_ms,
            lambda done, read: display.update(writing, completed=read, size=format_size(done)),
        ).key_count
    return f"{plural(keys, 'key')}, {plural(runs, 'cold run')}, "


def new_keyspace_and_executor() -> tuple[Keyspace, Execute]:
    """Return an empty keyspace, and the function that executes commands on it."""
    settings = Settings()
    settings.databases = DATABASE_COUNT
    engine = Engine(settings)
    return engine.keyspace, log_replayer_and_skipped(engine, time.time_ns() // 1_000_000, False)[0]


def export_server_and_describe(url: str, temporary: str, display: Progress) -> str:
    """Write the data of a running server to the file `temporary`; return an empty description."""
    task = display.add_task("receiving", total=None, size="")
    directory, name = os.path.split(temporary)

    def on_received(done: int, total: int) -> None:
        display.update(task, completed=done, total=total or None, size=format_size(done))

    def receive(file: File) -> None:
        write = gradual_writer(file)

        def write_piece(data: memoryview) -> None:
            try:
                write(data)
            except OSError as error:  # an error of the connection would be explained as such
                raise HeadraceError(f"{temporary}: {os_error_text(error)}") from None

        with servers_at(url) as servers:
            download_snapshot(servers, write_piece, on_received)

    write_file(DiskDirectory(directory), name, receive)
    check_received_snapshot(temporary)
    return ""
