"""What another program may do to the files of a log that is in use. Each takes the log's directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import headrace

MANIFEST = "appendonly.aof.manifest"


def newest(log: Path) -> Path:
    """Return the incr file that is appended to."""
    return max(log.glob("*.incr.aof"), key=number)


def oldest(log: Path) -> Path:
    """Return the first incr file; it is an older one if there are two."""
    return min(log.glob("*.incr.aof"), key=number)


def base(log: Path) -> Path:
    """Return the base."""
    return next(log.glob("*.base.*"))


def number(path: Path) -> int:
    return int(path.name.split(".")[2])


def remove(path: Path) -> None:
    path.unlink()


def move_away(path: Path) -> None:
    path.rename(path.parent / "elsewhere")


def replace_by_copy(path: Path) -> None:
    copy = path.parent / "copy"
    shutil.copyfile(path, copy)
    copy.rename(path)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"*1\r\n$8\r\nFLUSHALL\r\n")


def overwrite(path: Path) -> None:
    """Change bytes in place: neither the inode nor the size changes."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"X" * 4)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))  # clocks of file systems are coarse


def put_directory(path: Path) -> None:
    move_away(path)
    path.mkdir()


def put_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def put_link_to_copy(path: Path) -> None:
    shutil.copyfile(path, path.parent / "copy")
    path.unlink()
    path.symlink_to(path.parent / "copy")


def put_link_to_itself_moved(path: Path) -> None:
    move_away(path)
    path.symlink_to(path.parent / "elsewhere")


def put_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nothing")


def change_manifest(log: Path) -> None:
    (log / MANIFEST).write_text("file appendonly.aof.77.incr.aof seq 77 type i\n")


def rename_directory(log: Path) -> None:
    log.rename(log.parent / "moved")


def replace_directory_by_copy(log: Path) -> None:
    log.rename(log.parent / "moved")
    shutil.copytree(log.parent / "moved", log)


def change_of(which: Callable[[Path], Path], change: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda log: change(which(log))


def manifest(log: Path) -> Path:
    return log / MANIFEST


OF_ANY_FILE = [
    remove,
    replace_by_copy,
    truncate,
    append,
    put_directory,
    put_fifo,
    put_link_to_copy,
    put_link_to_itself_moved,
    put_dangling_link,
]
CHANGES: dict[str, Callable[[Path], None]] = {
    **{f"newest {change.__name__}": change_of(newest, change) for change in OF_ANY_FILE},
    **{f"base {change.__name__}": change_of(base, change) for change in [*OF_ANY_FILE, overwrite]},
    **{f"older {change.__name__}": change_of(oldest, change) for change in [*OF_ANY_FILE, overwrite]},
    "manifest overwritten": change_manifest,
    "manifest removed": change_of(manifest, remove),
    "manifest put_directory": change_of(manifest, put_directory),
    "manifest put_fifo": change_of(manifest, put_fifo),
    "directory removed": shutil.rmtree,
    "directory renamed": rename_directory,
    "directory replaced by a copy": replace_directory_by_copy,
}
SOME = [
    "newest remove",
    "newest replace_by_copy",
    "newest truncate",
    "newest put_directory",
    "newest put_fifo",
    "base replace_by_copy",
    "older remove",
    "manifest overwritten",
    "directory renamed",
    "directory replaced by a copy",
]


def prepare_log(directory: Path) -> list[bytes]:
    """Make a log with a base, an older incr file and the newest one; return the IDs of its entries."""
    with headrace.open(directory) as db:
        ids = add_entries(db)
        log = db.backend.storage.log
        assert not log.finish_rewrite(log.begin_rewrite(), False)  # it leaves one incr file more
        ids += add_entries(db)
        assert log.manifest.base and len(log.manifest.incrs) == 2
    return ids


def add_entries(db: headrace.Database) -> list[bytes]:
    """Add entries; return their IDs."""
    return [db.backend.add(b"s", b"*", {"n": number}) for number in range(5)]
