"""The arguments of headrace.pipeline.load(), and of the command: what to load, and how."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.archive.local_paths import local_path
from headrace.errors import UsageError
from headrace.pipeline.file_formats.file_readers import STDIN_PATH
from headrace.pipeline.loading.loader import ROWS_PER_BATCH
from headrace.pipeline.shared.arguments import checked_at_least, checked_positive
from headrace.spark.options import DEFAULT_URL

BATCH_ROWS_MAX = 100_000


@dataclass(frozen=True)
class LoadArguments:
    """The arguments of load(), whose docstring describes them."""

    file: str | os.PathLike[str] | None
    stream: str
    url: str = DEFAULT_URL
    time_column: str | None = None
    new_ids: bool = False
    allow_future: bool = False
    sort: bool = False
    append: bool = False
    resume: bool = False
    maxlen: int | None = None
    null: tuple[str, ...] = ()
    delimiter: str | None = None
    encoding: str = "utf-8"
    skip_bad: bool = False
    rejects: str | os.PathLike[str] | None = None
    batch: int = ROWS_PER_BATCH
    rate: float | None = None
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    job: str | None = None

    def check(self) -> None:
        """Raise UsageError if values are out of range, or exclude each other."""
        if self.new_ids and (self.time_column or self.sort):
            other = "--time-column" if self.time_column else "--sort"
            raise UsageError(f"--new-ids and {other} exclude each other")
        if self.rejects is not None and not self.skip_bad:
            raise UsageError("--rejects is the file for the rows that --skip-bad skips: add --skip-bad")
        if self.job == "":
            raise UsageError("--job: the name is empty")
        if self.maxlen is not None:
            checked_at_least("--maxlen", self.maxlen, 1)
        if not 1 <= self.batch <= BATCH_ROWS_MAX:
            raise UsageError(f"--batch: {self.batch} is not in the range 1 to {BATCH_ROWS_MAX:,}")
        if self.rate is not None:
            checked_positive("--rate", self.rate)
        file_options = {
            "--sort": self.sort, "--append": self.append, "--resume": self.resume, "--null": self.null,
            "--delimiter": self.delimiter is not None, "--encoding": self.encoding != "utf-8",
            "--skip-bad": self.skip_bad, "--batch": self.batch != ROWS_PER_BATCH, "--new-ids": self.new_ids,
        }  # fmt: skip
        if self.format is not None:
            if wrong := [name for name, given in file_options.items() if given]:
                raise UsageError(
                    f"{wrong[0]} is for files that are read without --format; use --option instead"
                )
        elif self.file is None:
            raise UsageError("nothing to load: give a FILE, - for standard input, or --format")
        elif self.options:
            raise UsageError("--option is for --format")

    @property
    def path(self) -> Path:
        """The path of the file; STDIN_PATH for standard input.

        Raises:
            UsageError: if the file is not local, or `resume` is set for standard input without a job name.
        """
        assert self.file is not None
        path = STDIN_PATH if os.fspath(self.file) == "-" else local_path(self.file)
        if path == STDIN_PATH and self.resume and self.job is None:
            raise UsageError("--resume of standard input needs the --job NAME of the interrupted load")
        return path

    @property
    def rejects_path(self) -> Path | None:
        """The file for bad rows; None: a bad row ends the load."""
        return rejects_path(self.path, self.rejects) if self.skip_bad else None

    @property
    def job_name(self) -> str:
        """The name of the load of a file; empty if it cannot be resumed."""
        return self.job or job_name(self.path)


def job_name(path: Path) -> str:
    """Return a name that identifies a load of the same file; empty for standard input."""
    return "" if path == STDIN_PATH else hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]


def rejects_path(path: Path, given: str | os.PathLike[str] | None) -> Path:
    """Return the file for rejected rows: `given`, or else a name in the current directory.

    For example, orders.csv.gz gives orders.rejects.csv, and standard input gives stdin.rejects. Rows of
    Parquet files are rejected to a .jsonl file.
    """
    if given is not None:
        return local_path(given)
    if path == STDIN_PATH:
        return Path("stdin.rejects")
    suffixes = [suffix for suffix in path.suffixes if suffix.lower() not in (".gz", ".zip")]
    kind = suffixes[-1] if suffixes else ""
    name = path.name.removesuffix("".join(path.suffixes)) if len(path.suffixes) < 3 else path.stem
    return Path(f"{name}.rejects{'.jsonl' if kind.lower() == '.parquet' else kind}")
