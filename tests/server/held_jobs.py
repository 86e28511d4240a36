"""Snapshots and rewrites that start, and write nothing for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from headrace.persistence.rdb.encoder_thread import EncoderThread
from headrace.server.disk.snapshot_job import SnapshotJob
from support.waiting import wait_until


@contextmanager
def held_job(running: Any, client: Any, command: str) -> Iterator[SnapshotJob]:
    """Start the job of this command; it does not go on within the context."""
    with patch.object(EncoderThread, "has_room", lambda self: False):
        client.request(command)
        wait_until(lambda: running.server.parts.saving.running_job)
        yield running.server.parts.saving.running_job
