"""Print which files of an archive are damaged, for `headrace check`."""

from __future__ import annotations

from rich.console import Console

from headrace.cli.progress import progress_bar
from headrace.console.rich_text import line
from headrace.errors import HeadraceError
from headrace.pipeline.archive_verification import check_files
from headrace.plurals import plural
from headrace.spark.archive.files import archived_files, open_table
from headrace.spark.archive.location import ArchiveLocation, store_errors


def check_archive(location: ArchiveLocation, console: Console) -> int:
    """Read all files of an archive that count, and print those that are damaged; return the exit code.

    Raises:
        UsageError: if there is no archive.
        HeadraceError: if a file is damaged, or the store fails.
    """
    with store_errors(location):
        files = archived_files(location, open_table(location))
    damaged = 0
    with progress_bar(console) as bar:
        task = bar.add_task("files", total=len(files), rows=0)
        for file, damage in check_files(files):
            bar.update(task, advance=1, rows=bar.tasks[task].fields["rows"] + file.rows)
            if damage is not None:
                damaged += 1
                bar.console.print(line((f"{file.path} {damage}", "red")), soft_wrap=True)
    counts = f"{plural(sum(file.rows for file in files), 'entry')} in {plural(len(files), 'file')} of "
    console.print(line(counts, (str(location), "bold")), soft_wrap=True)
    if without_digest := sum(file.digest is None for file in files):
        console.print(
            f"{plural(without_digest, 'file')} without a digest, of another program or an earlier version: "
            "only the pages were checked",
            soft_wrap=True,
        )
    if damaged:
        raise HeadraceError(
            f"{location}: {damaged:,} of {plural(len(files), 'file')} damaged or missing; restore from a "
            "copy of the archive"
        )
    console.print("[green]All is good[/]")
    return 0
