"""Download a snapshot from a running server, as a replica does in a full synchronisation.

SYNC  ─▶  newlines while the server prepares
          $<size>      the snapshot, which has <size> bytes
          $EOF:<mark>  the snapshot, and the 40 bytes of the mark again
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.client.connection import RawConnection
from headrace.client.connection_errors import as_command_error
from headrace.client.servers import Servers
from headrace.errors import HeadraceError, UsageError

EOF_MARK_BYTES = 40
BUFFER_BYTES = 1 << 18
FIRST_LINE_BYTES_MAX = 1000
SILENCE_TIMEOUT_S = 120.0  # without a byte; servers send a newline every few seconds


def download_snapshot(
    servers: Servers, write: Callable[[memoryview], object], progress: Callable[[int, int], None]
) -> int:
    """Receive a new snapshot from the server and pass it to write(); return its size in bytes.

    Args:
        servers: The server.
        write: Called with each piece of the snapshot, in order.
        progress: Called with the bytes received so far, and the size; 0 if that is unknown.

    Raises:
        UsageError: for a cluster.
        HeadraceError: if the server rejects SYNC, or does not send a snapshot.
        redis.ConnectionError: if the connection is lost.
        OSError: if write() raises it.
    """
    if servers.is_cluster:
        raise UsageError("export the data of each node of a cluster by its own redis:// URL")
    connection = RawConnection(servers, "")
    try:
        connection.exchange(
            [(b"REPLCONF", b"CAPA", b"EOF")], SILENCE_TIMEOUT_S
        )  # an error reply does not matter
        connection.send(b"SYNC")
        return _SnapshotReceiver(connection, write, progress).receive()
    finally:
        connection.close()


class _SnapshotReceiver:
    """Receives one snapshot."""

    def __init__(
        self,
        connection: RawConnection,
        write: Callable[[memoryview], object],
        progress: Callable[[int, int], None],
    ) -> None:
        self.connection = connection
        self.write = write
        self.progress = progress
        self.buffer = bytearray(BUFFER_BYTES)
        self.received_bytes = 0

    def receive(self) -> int:
        """Receive the snapshot and pass it on; return its size in bytes."""
        line, rest = self._first_line()
        if line.startswith(b"-"):
            raise as_command_error(Exception(line[1:].decode(errors="replace")))
        if line.startswith(b"$EOF:") and len(line) == 5 + EOF_MARK_BYTES:
            self._receive_until_mark(line[5:], rest)
        elif line.startswith(b"$") and line[1:].isdigit():
            self._receive_sized(int(line[1:]), rest)
        else:
            raise HeadraceError(f"the server did not send a snapshot but {line[:80]!r}")
        return self.received_bytes

    def _first_line(self) -> tuple[bytes, bytes]:
        """Return the first line that is not empty, and what was received after it."""
        found = b""
        while True:
            found = (found + self._more()).lstrip(b"\r\n")
            line, end, rest = found.partition(b"\n")
            if end:
                return line.rstrip(b"\r"), rest
            if len(found) > FIRST_LINE_BYTES_MAX:
                raise HeadraceError("the server did not send a snapshot")

    def _receive_sized(self, size: int, data: bytes) -> None:
        self._pass_on(data[:size], size)
        while self.received_bytes < size:
            self._pass_on(self._more()[: size - self.received_bytes], size)

    def _receive_until_mark(self, mark: bytes, data: bytes) -> None:
        while (end := data.find(mark)) < 0:
            cut = max(len(data) - EOF_MARK_BYTES + 1, 0)
            self._pass_on(data[:cut], 0)
            data = data[cut:] + self._more()
        self._pass_on(data[:end], 0)

    def _pass_on(self, data: bytes, size: int) -> None:
        self.write(memoryview(data))
        self.received_bytes += len(data)
        self.progress(self.received_bytes, size)

    def _more(self) -> bytes:
        return bytes(memoryview(self.buffer)[: self.connection.receive(self.buffer)])
