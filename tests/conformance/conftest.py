"""A real redis-server for the tests of this folder; they are skipped only where none is installed."""

import pathlib
import shutil
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parent))

from peer import Peer


@pytest.fixture(scope="session")
def peer():
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    with Peer() as running:
        yield running
