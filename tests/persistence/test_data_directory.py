"""The real data directory: its observable guarantees, on a real disk and with real processes."""

import errno
import os
import pathlib
import resource
import signal
import subprocess
import sys

import pytest

from headrace.errors import HeadraceError
from headrace.persistence.data_directory import LARGE_FILE_BYTES, LOCK_NAME, DataDirectory, DiskDirectory
from support.waiting import wait_until

HOLDER = """
import sys
from headrace.persistence.data_directory import DiskDirectory
DiskDirectory(sys.argv[1], "127.0.0.1:7000").lock()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def files(tmp_path: pathlib.Path) -> DiskDirectory:
    return DiskDirectory(str(tmp_path))


def read(files: DataDirectory, name: str) -> bytes:
    source = files.open_source(name)
    try:
        return source.read(source.size)
    finally:
        source.close()


def test_a_truncated_file_is_appended_to_at_its_end(files: DiskDirectory) -> None:
    file = files.create("a")
    assert file.write(b"one") == 3
    assert file.write(bytearray(b"two")) == 3
    assert file.write(memoryview(b"three")[1:]) == 4
    assert file.size() == 10
    file.truncate(4)
    file.write(b"!")
    file.sync()
    file.close()
    assert read(files, "a") == b"onet!"


def test_append_keeps_the_contents_and_create_truncates(files: DiskDirectory) -> None:
    for opened, expected in ((files.open_append, b"x"), (files.open_append, b"xx"), (files.create, b"x")):
        file = opened("a")
        file.write(b"x")
        assert file.size() == len(expected)
        file.close()
        assert read(files, "a") == expected


def test_a_source_returns_empty_bytes_at_its_end(files: DiskDirectory) -> None:
    file = files.create("a")
    file.write(b"12345")
    file.close()
    source = files.open_source("a")
    assert (source.size, source.read(3), source.read(3), source.read(3)) == (5, b"123", b"45", b"")
    source.close()
    with pytest.raises(FileNotFoundError):
        files.open_source("b")


def test_a_file_is_read_at_any_offset_and_grows_meanwhile(files: DiskDirectory) -> None:
    file = files.create("a")
    file.write(b"123")
    found = files.open_random_access("a")
    assert (found.read_at(1, 1), found.read_at(0, 9), found.read_at(7, 2)) == (b"2", b"123", b"")
    file.write(b"45")
    assert (found.size(), found.read_at(2, 9), found.read_at(5, 1)) == (5, b"345", b"")
    found.close()
    file.close()
    with pytest.raises(FileNotFoundError):
        files.open_random_access("b")


def test_a_read_that_the_system_shortens_is_continued(
    files: DiskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.create("a")
    file.write(b"123456789")
    file.close()
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, n, offset: whole(descriptor, min(n, 2), offset))
    found = files.open_random_access("a")
    assert (found.read_at(1, 7), found.read_at(5, 99)) == (b"2345678", b"6789")
    found.close()


@pytest.mark.parametrize("size", [0, LARGE_FILE_BYTES - 1, LARGE_FILE_BYTES])
def test_a_removed_file_holds_no_descriptor(files: DiskDirectory, size: int) -> None:
    before = set(os.listdir("/proc/self/fd"))
    file = files.create("a")
    file.truncate(size)
    file.close()
    files.remove("a")
    assert not files.exists("a")
    wait_until(lambda: set(os.listdir("/proc/self/fd")) <= before)
    files.remove("a")  # it is not there: nothing to do
    assert files.create("a").size() == 0


def test_directories_list_their_names(files: DiskDirectory) -> None:
    assert files.list("d") == []
    files.make_directory("d")
    files.make_directory("d")
    for name in ("d/b", "d/a"):
        files.create(name).close()
    assert files.list("d") == ["a", "b"]
    files.rename("d/a", "d/b")
    files.remove("d/a")
    assert files.list("d") == ["b"] and files.exists("d/b") and not files.exists("d/a")
    assert files.size("d/b") == 0
    files.sync_directory("d")
    files.sync_directory("")
    with pytest.raises(FileExistsError):
        files.make_directory("d/b")


def test_the_error_of_a_second_process_names_the_holder(files: DiskDirectory, tmp_path: pathlib.Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(HeadraceError, match=rf"process {holder.pid} \(127\.0\.0\.1:7000\)"):
            files.lock()
    finally:
        holder.kill()
        holder.communicate()
    files.lock()  # a killed process holds nothing
    files.lock()
    assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"
    other = DiskDirectory(str(tmp_path))
    with pytest.raises(HeadraceError, match=f"process {os.getpid()}:"):
        other.lock()
    files.unlock()
    other.lock()
    other.unlock()


def test_a_full_disk_writes_a_part_and_then_fails(files: DiskDirectory) -> None:
    """The limit on a file's size behaves as a disk that fills up: a short write, then an error."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = files.create("a")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        assert file.write(b"12345678") == 8
        assert file.write(b"abcdefgh") == 2
        with pytest.raises(OSError) as caught:
            file.write(b"more")
        assert caught.value.errno == errno.EFBIG
        file.truncate(8)
        assert file.size() == 8
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
        file.close()


def test_a_pipe_instead_of_a_file_is_an_error_and_does_not_block(tmp_path):
    disk = DiskDirectory(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        disk.open_source("pipe")
    with pytest.raises(OSError, match="not a regular file"):
        disk.open_random_access("pipe")
    with pytest.raises(OSError, match="No such device"):
        disk.open_append("pipe")
    (tmp_path / "directory").mkdir()
    with pytest.raises(IsADirectoryError):
        disk.open_source("directory")
