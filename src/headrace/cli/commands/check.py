"""`headrace check`: print what a snapshot, a log or an archive contains, and where it is damaged."""

from __future__ import annotations

import os
import time
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.archive.local_paths import SCHEME_PATTERN
from headrace.archive.location import LIBRARY_MISSING_MESSAGE, archive_location
from headrace.cli.check.paths import holds_archives
from headrace.cli.options.option_types import cold_store_option, storage_option, with_storage_options
from headrace.console.escaping import printable
from headrace.console.rich_text import line
from headrace.engine.engine import Engine
from headrace.engine.foreign_commands import SkippingReplayer
from headrace.errors import HeadraceError, UsageError, os_error_text
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.settings import Settings
from headrace.persistence.aof.reader import Execute
from headrace.persistence.check import CheckReport, FileReport, check_file, fix
from headrace.persistence.recovery import describe_skipped_counts
from headrace.plurals import plural

DATABASE_COUNT = 1024  # more than a server is usually configured with
KEY_TABLE_COLUMNS = ("keys", "expiring", "strings", "streams", "entries", "groups", "consumers", "pending")
STYLE_BY_FILE_STATE = {
    "good": "green",
    "cut": "yellow",
    "damaged": "red",
    "foreign": "yellow",
    "not read": "dim",
}


class FileOrURL(click.Path):
    """An existing file or directory, or a URL."""

    def __init__(self) -> None:
        super().__init__(exists=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value. Fail for a file that does not exist."""
        return value if SCHEME_PATTERN.match(str(value)) else super().convert(value, param, ctx)


@click.command(
    "check",
    epilog="""\b
Examples:
  headrace check dump.rdb
  headrace check appendonlydir
  headrace check --fix appendonlydir
  headrace check s3://lake/orders
""",
)
@click.argument("file", type=FileOrURL(), metavar="FILE|URL")
@storage_option
@click.option(
    "--fix", "fixing", is_flag=True, help="Cut off the damaged end of a log, and keep a copy of the file."
)
@cold_store_option
def command(file: str, fixing: bool, storage_options: tuple[str, ...], cold_store: str) -> int:
    """Check a snapshot or a log of Headrace, Redis or Valkey, or archives.

    FILE may also be a directory with a snapshot or a log. In a directory of archives all are checked.

    Prints what the files contain and where they are damaged. Nothing is changed without --fix. Data of types
    that Headrace does not support are reported, but --fix does not cut them off. The exit code is 1 if a file
    is damaged, has such data, or is in an object store and was not read. It is 2 if there is nothing to
    check, and 0 if all is good.
    """
    console = Console(highlight=False)
    if holds_archives(file):
        if fixing:
            raise UsageError("--fix is for logs: the files of an archive cannot be repaired")
        try:
            from headrace.cli.check.archives import check_archives  # needs pyarrow
        except ModuleNotFoundError as error:
            raise UsageError(LIBRARY_MISSING_MESSAGE) from error
        return check_archives(with_storage_options(archive_location(file), storage_options), console)
    if storage_options:
        raise UsageError("--storage-option is for an archive in an object store")
    report = read_report(file, console, cold_store)
    print_report(report, console)
    if report.damage is None:
        raise_if_foreign(report)
        raise_if_unread(report)
        console.print("[green]All is good[/]")
        return 0
    console.print(line((report.damage, "red")), soft_wrap=True)
    if report.obstacle:
        raise HeadraceError(f"{report.damage.file} is damaged and cannot be fixed: {report.obstacle}")
    size = report.damaged_file.size
    if not fixing:
        raise HeadraceError(
            f"{report.damage.file} is damaged: --fix would keep its first {report.valid_bytes:,} bytes,"
            f" cut off {size - report.valid_bytes:,} and keep a copy"
        )
    copy = fix(report)
    removed = plural(size - report.valid_bytes, "byte")
    console.print(line(f"Cut off the last {removed}; the original file is {copy}"), soft_wrap=True)
    again = read_report(file, console, cold_store)
    if again.damage is not None:
        raise HeadraceError(f"{file} is still damaged; run the check again")
    raise_if_foreign(again)
    raise_if_unread(again)
    console.print("[green]All is good now[/]")
    return 0


def raise_if_foreign(report: CheckReport) -> None:
    """Raise HeadraceError if the undamaged files have data of types that Headrace does not support."""
    if report.unreadable_data is not None:
        raise HeadraceError(f"{report.unreadable_data}; the file is not damaged, but headrace cannot read on")
    if report.foreign_counts:
        raise HeadraceError(
            f"{report.path} is not damaged, but headrace holds streams and strings only: a server starts with"
            " it only if `load-skip-foreign-types yes` leaves out"
            f" {describe_skipped_counts(report.foreign_counts)}"
        )


def raise_if_unread(report: CheckReport) -> None:
    """Raise HeadraceError if cold files of the log were not read, because they are in an object store."""
    if report.unread_count:
        files = plural(report.unread_count, "cold file")
        raise HeadraceError(
            f"nothing that was read is damaged, but {files} in an object store could not be read: give its"
            " URL, as in --cold-store s3://bucket/prefix"
        )


def read_report(file: str, console: Console, cold_store: str) -> CheckReport:
    """Return the report on a file or directory. cold_store: the URL of an object store, or ""."""
    try:
        with console.status(line(f"Reading {file}")):
            return check_file(file, new_keyspace_and_executor, time.time_ns() // 1_000_000, cold_store)
    except OSError as error:
        raise HeadraceError(f"{error.filename or file}: {os_error_text(error)}") from error


def new_keyspace_and_executor() -> tuple[Keyspace, Execute, dict[str, int]]:
    """Return an empty keyspace, the function that executes commands on it, and what it has skipped."""
    settings = Settings()
    settings.databases = DATABASE_COUNT
    engine = Engine(settings)
    replayer = SkippingReplayer(engine, time.time_ns() // 1_000_000)
    return engine.keyspace, replayer.replay, replayer.skipped_counts


def print_report(report: CheckReport, console: Console) -> None:
    """Print the contents of the files and notes about them."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("file", overflow="fold")
    table.add_column("bytes", justify="right")
    table.add_column("snapshot")
    table.add_column("records", justify="right")
    table.add_column("state")
    for file in report.files:
        records = f"{file.record_count:,}" if file.record_count or not file.version else ""
        state = Text(file.state, STYLE_BY_FILE_STATE[file.state])
        name, version = line(os.path.basename(file.path)), line(file.version)
        table.add_row(name, f"{file.size:,}", version, records, state)
    console.print(table)
    for file in report.files:
        print_origin(file, console)
    if report.databases:
        console.print(keys_table(report))
    if report.command_counts:
        names = (f"{name} {count:,}" for name, count in report.command_counts.most_common())
        console.print(line(("records of ", "dim"), ", ".join(names)), soft_wrap=True)
    if report.foreign_counts:
        console.print(
            line((f"not of Headrace: {describe_skipped_counts(report.foreign_counts)}", "yellow")),
            soft_wrap=True,
        )
    for note in report.notes:
        console.print(line((note, "yellow")), soft_wrap=True)


def print_origin(file: FileReport, console: Console) -> None:
    """Print the auxiliary fields of a snapshot: the program that wrote it, and when."""
    if file.aux:
        text = ", ".join(f"{printable(name)} {aux_text(name, v)}" for name, v in file.aux.items())
        console.print(line(("written with ", "dim"), text), soft_wrap=True)


def aux_text(name: bytes, value: bytes) -> str:
    """Return the value of an auxiliary field; a time as a date."""
    text = value.decode(errors="replace")
    if name == b"ctime" and value.isdigit() and int(value) < 1 << 33:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(int(value)))
    return text


def keys_table(report: CheckReport) -> Table:
    """Return a table with a row per database."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("db", justify="right")
    for name in KEY_TABLE_COLUMNS:
        table.add_column(name, justify="right", overflow="fold")
    for number, counts in sorted(report.databases.items()):
        table.add_row(str(number), *(f"{getattr(counts, name):,}" for name in KEY_TABLE_COLUMNS))
    return table
