"""Copy a database in this process, while it is used, to a directory.

    <path>/dump.rdb     the data of one moment, as a snapshot

`headrace.open(path)`, `headrace serve --dir <path>` and `redis-server --dir <path>` load it. The directory
appears when the copy is complete and on the disk: it is written under another name, and renamed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from headrace.api.local.directory import explain_disk_errors
from headrace.api.local.engine_access import EngineAccess
from headrace.api.local.image_writer import write_image
from headrace.api.local.storage import SNAPSHOT_FILE_NAME
from headrace.errors import UsageError
from headrace.persistence.data_directory import DiskDirectory


def write_backup(local_engine: EngineAccess, path: str | os.PathLike[str]) -> None:
    """Write a backup to a directory that does not exist, or is empty.

    Raises:
        UsageError: if the directory contains files, or its parent does not exist.
        HeadraceError: if the disk fails, or the database is closed. No files are left then.
    """
    target = Path(os.path.abspath(path))
    _check(target)
    with contextlib.ExitStack() as stack:
        parent = DiskDirectory(str(target.parent))
        stack.enter_context(explain_disk_errors(parent))
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent))
        directory = Path(place, target.name)
        directory.mkdir()
        files = DiskDirectory(str(directory))
        stack.enter_context(local_engine.snapshot_lock)
        file = stack.enter_context(contextlib.closing(files.create(SNAPSHOT_FILE_NAME)))
        image = local_engine.run_locked(local_engine.freeze)
        write_image(local_engine, image, file, lambda: local_engine.closed_reason is not None)
        files.sync_directory("")
        directory.replace(target)
        parent.sync_directory("")


def _check(target: Path) -> None:
    if not target.parent.is_dir():
        raise UsageError(f"the directory {target.parent} does not exist: create it, or choose another path")
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise UsageError(f"{target} exists already: a backup needs a new or empty directory")
    except OSError as error:
        raise UsageError(f"{target} cannot be read: {error.strerror}") from None
