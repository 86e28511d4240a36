"""The option reconnectTimeout: how often the driver and the tasks try a server that is gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.errors import HeadraceError
from headrace.spark import Marker, write_batches
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import parse_options
from headrace.spark.sink.writer import HeadraceWriter
from headrace.spark.source.arrow_reader import make_range_reader
from headrace.spark.source.planner import OffsetRange
from headrace.spark.source.stream_reader import HeadraceStreamReader

SCHEMA = StructType([StructField("_id", StringType())])


class DyingServer:
    """Closes each connection that it accepts, and counts them."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._socket.getsockname()[1]}"
        self.connections = 0
        self._is_closing = False
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            self.connections += 1  # before the client can know that it is closed
            connection.close()
            if self._is_closing:
                return

    def close(self) -> None:
        self._is_closing = True
        socket.create_connection(self._socket.getsockname()).close()
        self._thread.join()
        self._socket.close()


@contextmanager
def dying_server() -> Iterator[DyingServer]:
    server = DyingServer()
    try:
        yield server
    finally:
        server.close()


def plan(url: str, timeout: str) -> None:
    options = parse_options({"url": url, "subscribe": "s", "reconnectTimeout": timeout}, "stream")
    HeadraceStreamReader(options, SCHEMA).last_ids()


def read(url: str, timeout: str, fetch: str) -> None:
    options = parse_options({"url": url, "fetch": fetch, "reconnectTimeout": timeout}, "batch")
    part = OffsetRange("s", "0-0", "5-0", False)
    list(make_range_reader(part, ColumnLayout(SCHEMA, "epoch_ms"), options).batches())


def overwrite(url: str, timeout: str) -> None:
    options = parse_options({"url": url, "stream": "s", "reconnectTimeout": timeout}, "sink")
    HeadraceWriter(options, StructType([StructField("n", LongType())]), overwrite=True).commit([])


def write(url: str, timeout: str, marker: Marker | None) -> None:
    write_batches(pa.table({"n": [1]}), url, "s", marker, reconnectTimeout=timeout)


USES: dict[str, Callable[[str, str], None]] = {
    "plan": plan,
    "read arrow": partial(read, fetch="arrow"),
    "read resp": partial(read, fetch="resp"),
    "read auto": partial(read, fetch="auto"),
    "write once": partial(write, marker=Marker("q")),
    "write": partial(write, marker=None),
    "overwrite": overwrite,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_server_that_is_gone_is_tried_for_so_long(use: Callable[[str, str], None]) -> None:
    with dying_server() as server:
        with pytest.raises((HeadraceError, *CONNECTION_ERRORS)):
            use(server.url, "0s")
        without_retries = server.connections
        with pytest.raises((HeadraceError, *CONNECTION_ERRORS)):
            use(server.url, "300ms")
        assert server.connections > 2 * without_retries >= 2
