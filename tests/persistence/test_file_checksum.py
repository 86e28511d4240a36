"""The checksum of a large file is computed in a second thread, and means the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.engine.engine import Engine
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.crc64 import crc64
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DiskDirectory
from headrace.persistence.rdb import file_checksum
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.versions import by_name
from headrace.persistence.rdb.writer import write_rdb

pytestmark = pytest.mark.compiled  # interpreted, a checksum of megabytes takes too long
NOW_MS = 1_700_000_000_000
VALUE = bytes(range(256)) * 4096  # a MiB that LZF cannot shorten by much


@pytest.fixture(scope="module")
def snapshot() -> bytes:
    engine = Engine()
    session = engine.create_session()
    for number in range(9):
        engine.execute(session, [b"SET", b"key-%d" % number, VALUE], NOW_MS)
        session.reply.take()
    pieces: list[bytes] = []
    version = by_name("compatible")
    write_rdb(engine.keyspace, pieces.append, version=version, compress=False, now_ms=NOW_MS)
    return b"".join(pieces)


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})


def load(directory: Path, data: bytes) -> Keyspace:
    (directory / "dump.rdb").write_bytes(data)
    keyspace = Keyspace()
    source = DiskDirectory(str(directory)).open_source("dump.rdb")
    try:
        read_rdb(source, keyspace, now_ms=NOW_MS)
    finally:
        source.close()
    return keyspace


def test_a_large_file_is_loaded(tmp_path: Path, snapshot: bytes, two_cores: None) -> None:
    assert len(load(tmp_path, snapshot).databases[0].values) == 9


def test_the_checksum_of_another_part_is_computed_again(
    tmp_path: Path, snapshot: bytes, two_cores: None
) -> None:
    """A log may follow the snapshot in the same file."""
    tail = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"
    assert len(load(tmp_path, snapshot + tail).databases[0].values) == 9


@pytest.mark.parametrize("cores", [{0}, {0, 1}])
def test_a_changed_byte_is_found(
    tmp_path: Path, snapshot: bytes, monkeypatch: pytest.MonkeyPatch, cores: set[int]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: cores)
    damaged = bytearray(snapshot)
    damaged[len(damaged) // 2] ^= 1
    with pytest.raises(Damaged, match="the checksum says"):
        load(tmp_path, bytes(damaged))


def test_which_files_are_checked_by_a_thread(tmp_path: Path, snapshot: bytes, two_cores: None) -> None:
    (tmp_path / "large").write_bytes(snapshot)
    (tmp_path / "small").write_bytes(snapshot[:1000])
    directory = DiskDirectory(str(tmp_path))
    large, small = directory.open_source("large"), directory.open_source("small")
    checksum = file_checksum.start_checksum(large)
    assert checksum is not None and checksum.crc_up_to(len(snapshot) - 8) == crc64(snapshot[:-8])
    assert file_checksum.start_checksum(small) is None
    assert file_checksum.start_checksum(object()) is None
    with pytest.raises(OSError, match="has become shorter"):
        file_checksum.crc_of_file(small.descriptor, 2000)
    for source in (large, small):
        source.close()
