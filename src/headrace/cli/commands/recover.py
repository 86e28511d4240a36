"""`headrace recover`: list the entries that a former primary has saved, and add them again."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table

from headrace.cli.connections.stream_client import clients_of
from headrace.cli.options.server_options import url_option
from headrace.cli.output.printing import bytes_to_json, fields_to_json, print_json
from headrace.client.connection import Words
from headrace.client.connection_errors import error_reply_text
from headrace.client.servers import Servers, servers_at
from headrace.client.stream_names import stream_name
from headrace.console.escaping import printable
from headrace.console.rich_text import line
from headrace.errors import HeadraceError, UsageError, os_error_text
from headrace.persistence.saved_entries import SavedEntry, read_saved_entries
from headrace.plurals import plural

BATCH_ENTRIES = 100  # entries; a server remembers as many idempotency IDs of a producer
IDEMPOTENCY_PRODUCER = b"headrace-recover"
PROGRESS_SUFFIX = ".added"  # of the file that says how many entries have been added


@dataclass
class SavedStreamSummary:
    """One stream in the file: numbers of entries, first and last ID."""

    entry_count: int = 0
    maybe_removed_count: int = 0
    first_id: bytes = b""
    last_id: bytes = b""


@click.command(
    "recover",
    epilog="""\b
Examples:
  headrace recover divergent-entries-20261125T202719Z.resp
  headrace recover --show divergent-entries-20261125T202719Z.resp
  headrace recover --add --url redis://10.0.0.2:6400 divergent-entries-20261125T202719Z.resp
""",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--show", is_flag=True, help="Print each entry as a line of JSON.")
@click.option("--add", "adding", is_flag=True, help="Add the entries to their streams, under new IDs.")
@click.option(
    "--removed",
    "with_removed",
    is_flag=True,
    help="With --add: add also those that the new primary may have had, and removed.",
)
@url_option
def command(file: str, show: bool, adding: bool, with_removed: bool, url: str) -> None:
    """List entries that a former primary had and its new primary lacks, or add them again.

    A former primary saves such entries in its data directory before it loads the data of its new primary. It
    logs the name of the file. FILE.added counts the entries that --add has added, so an interrupted run can
    be repeated.
    """
    if show and adding:
        raise UsageError("--show and --add exclude each other")
    if with_removed and not adding:
        raise UsageError("--removed is an option for --add")
    if show:
        read_saved_entries(file, print_entry)
    elif adding:
        with servers_at(url) as servers:
            adder = EntryAdder(file, servers, with_removed)
            read_saved_entries(file, adder.add)
            adder.flush()
        adder.print_result()
    else:
        print_summary(file)


def print_entry(entry: SavedEntry) -> None:
    """Print an entry as a line of JSON."""
    print_json(
        {
            "database": entry.database,
            "stream": bytes_to_json(entry.key),
            "id": entry.id.decode(),
            "maybe_removed": entry.maybe_removed,
            "fields": fields_to_json(entry.fields),
        }
    )


def print_summary(file: str) -> None:
    """Print a table of the streams in the file."""
    streams: dict[tuple[int, bytes], SavedStreamSummary] = {}

    def count(entry: SavedEntry) -> None:
        found = streams.setdefault((entry.database, entry.key), SavedStreamSummary(first_id=entry.id))
        found.entry_count += 1
        found.maybe_removed_count += entry.maybe_removed
        found.last_id = entry.id

    read_saved_entries(file, count)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, right in (("db", True), ("stream", False), ("entries", True), ("maybe removed", True)):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    table.add_column("first")
    table.add_column("last")
    for (database, key), found in streams.items():
        numbers = f"{found.entry_count:,}", f"{found.maybe_removed_count:,}"
        table.add_row(
            str(database), line(stream_name(key)), *numbers, found.first_id.decode(), found.last_id.decode()
        )
    Console(highlight=False).print(table)


class EntryAdder:
    """Adds the entries of a file to their streams, each once.

    A batch is counted in FILE.added when the server has replied. Its entries have idempotency IDs: if the
    count of the last batch was lost, and it is sent again soon, the server adds nothing twice.
    """

    def __init__(self, file: str, servers: Servers, with_removed: bool) -> None:
        self.servers = servers
        self.with_removed = with_removed
        self.progress_file = file + PROGRESS_SUFFIX
        self.file_name = os.path.basename(file)
        self.added_counts = {False: 0, True: 0}  # in this and earlier runs; by maybe_removed
        self.seen_counts = {False: 0, True: 0}
        self.added_in_this_run = 0
        self.batch: list[SavedEntry] = []
        self.has_idempotency = True  # until the server rejects it: Redis before 8.6 does
        with suppress(FileNotFoundError):
            self._load_progress()

    def _load_progress(self) -> None:
        with open(self.progress_file) as file:
            words = file.read().split()
        if len(words) != 2 or not all(word.isdigit() for word in words):
            raise UsageError(f"{self.progress_file} does not have two numbers: remove it to add all entries")
        self.added_counts = {False: int(words[0]), True: int(words[1])}

    def _store_progress(self) -> None:
        temporary = f"{self.progress_file}.new"
        try:
            with open(temporary, "w") as file:
                file.write(f"{self.added_counts[False]} {self.added_counts[True]}\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.progress_file)
        except OSError as error:
            raise HeadraceError(f"{self.progress_file}: {os_error_text(error)}") from error

    def add(self, entry: SavedEntry) -> None:
        """Add an entry, with others of the same stream, unless an earlier run has added it."""
        self.seen_counts[entry.maybe_removed] += 1
        if entry.maybe_removed and not self.with_removed:
            return
        if self.seen_counts[entry.maybe_removed] <= self.added_counts[entry.maybe_removed]:
            return
        if self.batch and (
            len(self.batch) == BATCH_ENTRIES
            or (entry.database, entry.key, entry.maybe_removed)
            != (self.batch[0].database, self.batch[0].key, self.batch[0].maybe_removed)
        ):
            self.flush()
        self.batch.append(entry)

    def flush(self) -> None:
        """Send the batch. Raises HeadraceError if an entry is rejected."""
        batch, self.batch = self.batch, []
        if not batch:
            return
        key, kind = batch[0].key, batch[0].maybe_removed
        select: list[Words] = [] if self.servers.is_cluster else [("SELECT", batch[0].database)]
        first = self.added_counts[kind] + 1
        with clients_of(self.servers, [stream_name(key)]) as [client]:
            replies = client.send_pipeline([*select, *self._requests(batch, first)])
            if self.has_idempotency and all(map(is_unknown_option, replies[len(select) :])):
                self.has_idempotency = False
                replies = client.send_pipeline([*select, *self._requests(batch, first)])
        error = next((reply for reply in replies if isinstance(reply, Exception)), None)
        done = len(batch) if error is None else max(replies.index(error) - len(select), 0)
        self.added_counts[kind] += done
        self.added_in_this_run += done
        self._store_progress()
        if error is not None:
            raise HeadraceError(
                f"the server rejected an entry of {printable(key)}: {error_reply_text(error)};"
                f" {plural(self.added_in_this_run, 'entry')} added, the same command continues"
            )

    def _requests(self, batch: list[SavedEntry], number: int) -> list[Words]:
        """Return the XADD requests; `number` counts the first entry among all with the same maybe_removed."""
        requests: list[Words] = []
        for n, entry in enumerate(batch, number):
            text = f"{self.file_name}\0{entry.maybe_removed}\0{n}\0".encode(errors="surrogateescape")
            once = ["IDMP", IDEMPOTENCY_PRODUCER, hashlib.sha256(text + entry.id).hexdigest()]
            requests.append(["XADD", entry.key, *(once if self.has_idempotency else ()), "*", *entry.fields])
        return requests

    def print_result(self) -> None:
        """Print how many entries were added, and how many were not."""
        click.echo(f"{plural(self.added_in_this_run, 'entry')} added")
        if skipped := self.seen_counts[True] - self.added_counts[True]:
            click.echo(f"{plural(skipped, 'entry')} not added: removed by the new primary, maybe (--removed)")


def is_unknown_option(reply: object) -> bool:
    """Return whether a server without XADD's option IDMP may have sent this reply."""
    return isinstance(reply, Exception) and any(
        text in str(reply) for text in ("wrong number of arguments", "Invalid stream ID")
    )
