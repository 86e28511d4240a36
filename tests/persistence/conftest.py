"""Fixtures: a new log in a directory of its own."""

import pathlib

import pytest

from headrace.persistence.data_directory import DiskDirectory
from persistence.faults import FaultyFiles
from persistence.log_bench import Bench


@pytest.fixture
def files(tmp_path: pathlib.Path) -> FaultyFiles:
    return FaultyFiles(DiskDirectory(str(tmp_path)))


@pytest.fixture
def bench(files: FaultyFiles) -> Bench:
    bench = Bench(files)
    bench.start()
    files.log.clear()
    return bench
