"""A server of ours in a thread of the test's own process, as redis_server.py has one of Redis's."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from headrace.server.config.config import Config
from headrace.server.main import Server
from support.waiting import SECONDS_MAX


@contextlib.contextmanager
def headrace_server(directory: Path | None = None, *options: str) -> Iterator[int]:
    """Its port, once what is in the directory is loaded; it saves nothing and has no log unless told to."""
    with tempfile.TemporaryDirectory() as elsewhere:
        config = Config()
        config.read_arguments(["--port", "free", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        config.read_arguments(["--dir", str(directory or elsewhere), *options])
        server = Server(config)
        server.open()
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server.parts.listeners.port
        finally:
            server.parts.control.request_shutdown()
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()
