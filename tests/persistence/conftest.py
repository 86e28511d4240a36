"""Fixtures: a new log in a directory of its own."""

import pathlib

import pytest
from faults import FaultyFiles
from log_bench import Bench

from headrace.persistence.data_directory import DiskDirectory


@pytest.fixture
def files(tmp_path: pathlib.Path) -> FaultyFiles:
    return FaultyFiles(DiskDirectory(str(tmp_path)))


@pytest.fixture
def bench(files: FaultyFiles) -> Bench:
    bench = Bench(files)
    bench.start()
    files.log.clear()
    return bench
