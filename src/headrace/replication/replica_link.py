r"""A replica's connection to its primary, without I/O: bytes in, bytes and commands out.

replica                                   primary
PING                            ──▶  +PONG
AUTH user password              ──▶  +OK                              if configured
REPLCONF listening-port n       ──▶  +OK, errors are ignored
REPLCONF ip-address s           ──▶  +OK, errors are ignored          if configured
REPLCONF capa eof capa psync2   ──▶  +OK, errors are ignored; of Headrace: +OK <dialect of the stream>
PSYNC <id> <offset + 1>         ──▶  +CONTINUE <id>                   then the stream
PSYNC ? -1                      ──▶  +FULLRESYNC <id> <offset>
                                     $<size> or $EOF:<40 bytes>       then the snapshot, and those 40 bytes
REPLCONF ACK <offset>           ──▶  *2 $6 SELECT $1 0 ...            the stream
REPLCONF ACK <offset> FACK <n>  ──▶                                   each second
REPLCONF headrace-translation 1 ──▶                                   a message: from here on it is translated

The stream itself is read by stream_reader.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headrace.replication.stored_position import OFFSET_MAX
from headrace.replication.stream_reader import LinkError as LinkError
from headrace.replication.stream_reader import ReplicationReader, shown_bytes
from headrace.resp.request import request

# States, as ROLE names them. The owner adds those of a link without a connection: connect, connecting.
HANDSHAKE, SYNC, CONNECTED = "handshake", "sync", "connected"

ACK_INTERVAL_MS = 1000
DIALECT_CAPABILITY = "headrace-origin"  # it asks for the dialect of the stream
CAPABILITIES = (
    "eof",
    "psync2",
    DIALECT_CAPABILITY,
    "headrace",
)  # the last one: it knows commands of Headrace
LINE_MAX = 4096  # bytes of a reply during the handshake
EOF_MARK_BYTES = 40
ID_LENGTH = 40
RETRY_LATER_ERRORS = (b"-NOMASTERLINK", b"-LOADING")
ACCEPTED_PING_ERRORS = (b"-NOAUTH", b"-NOPERM", b"-ERR operation not permitted")

# Steps: what the next bytes from the primary are.
_PONG, _AUTH, _PORT, _ADDRESS, _CAPA, _PSYNC, _SIZE, _SNAPSHOT, _LOADING, _STREAM = range(10)


@dataclass(frozen=True)
class LinkSettings:
    """What a replica tells its primary about itself, and how long it waits for bytes of the primary."""

    listening_port: int
    announced_address: str = ""  # empty: the address that the primary sees
    user: str = ""
    password: str = ""  # empty: do not authenticate
    timeout_ms: int = 60_000  # without a byte from the primary
    capabilities: tuple[str, ...] = CAPABILITIES


class LinkEvents(Protocol):
    """The callbacks by which a link informs its owner."""

    def on_continue(self, history: str) -> None:
        """Store the history of the stream that follows, which continues the present data."""

    def on_snapshot_begins(self, history: str, offset: int) -> None:
        """Prepare for a snapshot at that offset of that history.

        Args:
            history: the replication ID; empty if the primary has none.
            offset: the number of bytes of its stream that the snapshot includes.
        """

    def on_snapshot_bytes(self, data: bytes) -> None:
        """Store the next bytes of the snapshot."""

    def on_snapshot_complete(self) -> None:
        """Load the snapshot, then call on_snapshot_loaded() of the link."""


class ReplicaLink:
    """The link over one connection. After a LinkError it must not be used any more."""

    def __init__(
        self,
        settings: LinkSettings,
        events: LinkEvents,
        history: str | None,
        offset: int,
        now_ms: int,
        failover: bool = False,
    ) -> None:
        """Begin the handshake.

        Args:
            history: the replication ID of the data; None: a snapshot is needed.
            offset: the number of bytes of that history's stream that were applied.
            failover: ask the primary, a replica until now, to take over (FAILOVER).
        """
        self.settings = settings
        self.events = events
        self.replication_id = history
        self.requests_takeover = failover
        self.may_have_taken_over = False  # the primary was asked to, and has not refused
        self.outgoing = bytearray()  # to send; the owner deletes what it has sent
        self.replication_dialect = ""  # see stream_dialect.py; empty if the primary does not say it
        self.primary_lacks_psync = False  # the primary knows no PSYNC: offsets mean nothing to it
        self.last_received_ms = now_ms
        self.snapshot_size = 0  # of the whole snapshot; 0: unknown
        self.snapshot_received = 0
        self.synced_offset = -1  # up to which the own log is synced; -1: there is none
        self._ack_ms = 0
        self._synced_wanted = -1  # the offset of a GETACK that was answered before it was synced
        self._step = _PONG
        self._line = bytearray()  # received and not used yet, before the stream
        self._mark: bytes | None = None
        self._tail = b""  # may contain a part of the mark
        self._left = 0
        self._reader = ReplicationReader(offset, self._on_getack)
        self._send(b"PING")

    # State.

    @property
    def offset(self) -> int:
        """The number of bytes of the stream that were applied."""
        return self._reader.applied_offset

    @property
    def state(self) -> str:
        """The state, as ROLE names it."""
        if self._step == _STREAM:
            return CONNECTED
        return SYNC if self._step >= _SIZE else HANDSHAKE

    @property
    def is_loading(self) -> bool:
        """Whether the snapshot is complete, and not loaded yet."""
        return self._step == _LOADING

    @property
    def is_sync_awaited(self) -> bool:
        """Whether the primary has asked for an acknowledgement that the log cannot give yet."""
        return self._synced_wanted >= 0 and self.synced_offset >= 0

    @property
    def received_offset(self) -> int:
        """The offset of the end of the stream received so far; it may not be applied yet."""
        return self._reader.received_end_offset if self._step == _STREAM else self.offset

    # Bytes.

    def receive(self, data: bytes, now_ms: int) -> None:
        """Handle bytes from the primary; read command_reader() afterwards. Raises LinkError."""
        self.last_received_ms = now_ms
        if self._step >= _LOADING:
            self._reader.feed(data)
        elif self._step == _SNAPSHOT:
            self._receive_snapshot(data)
        else:
            self._line += data
            while self._step < _SNAPSHOT and (end := self._line.find(b"\n")) >= 0:
                if end > LINE_MAX:
                    raise LinkError(
                        f"the primary sent a line of {end} bytes: {shown_bytes(bytes(self._line[:end]))}"
                    )
                line = bytes(self._line[:end]).removesuffix(b"\r")
                del self._line[: end + 1]
                if line:  # empty lines keep the connection alive
                    self._receive_line(line)
            if self._step >= _SNAPSHOT and self._line:
                rest = bytes(self._line)
                self._line.clear()
                self.receive(rest, now_ms)
            elif len(self._line) > LINE_MAX:
                raise LinkError(f"the primary sent no line, but {shown_bytes(self._line)}")

    def _send(self, *words: bytes) -> None:
        self.outgoing += request(*words)

    # The handshake.

    def _receive_line(self, line: bytes) -> None:
        step = self._step
        if step == _PONG:
            if not line.startswith((b"+", *ACCEPTED_PING_ERRORS)):
                raise LinkError(f"the primary answered PING with {shown_bytes(line)}")
            self._authenticate()
        elif step == _AUTH:
            if not line.startswith(b"+"):
                raise LinkError(f"the primary rejected masteruser and masterauth: {shown_bytes(line)}")
            self._announce_port()
        elif step == _PORT:
            self._announce_address()
        elif step == _ADDRESS:
            self._announce_capabilities()
        elif step == _CAPA:
            if line.startswith(b"+OK "):
                self.replication_dialect = line[4:].decode(errors="replace")
            self._ask_for_stream()
        elif step == _PSYNC:
            self._receive_psync_reply(line)
        else:
            self._receive_size(line)

    def _authenticate(self) -> None:
        settings = self.settings
        if not settings.password:
            self._announce_port()
            return
        user = [settings.user.encode()] if settings.user else []
        self._send(b"AUTH", *user, settings.password.encode())
        self._step = _AUTH

    def _announce_port(self) -> None:
        self._send(b"REPLCONF", b"listening-port", b"%d" % self.settings.listening_port)
        self._step = _PORT

    def _announce_address(self) -> None:
        if not self.settings.announced_address:
            self._announce_capabilities()
            return
        self._send(b"REPLCONF", b"ip-address", self.settings.announced_address.encode())
        self._step = _ADDRESS

    def _announce_capabilities(self) -> None:
        words = [word for name in self.settings.capabilities for word in (b"capa", name.encode())]
        self._send(b"REPLCONF", *words)
        self._step = _CAPA

    def _ask_for_stream(self) -> None:
        if self.replication_id is None:
            self._send(b"PSYNC", b"?", b"-1")
        else:
            more = [b"FAILOVER"] if self.requests_takeover else []
            self.may_have_taken_over = self.requests_takeover
            self._send(b"PSYNC", self.replication_id.encode(), b"%d" % (self.offset + 1), *more)
        self._step = _PSYNC

    def _receive_psync_reply(self, line: bytes) -> None:
        words = line.split() or [b""]
        if line.startswith(b"-"):
            self.may_have_taken_over = False
        if words[0] == b"+CONTINUE" and len(words) <= 2 and self.replication_id is not None:
            if len(words) == 2:
                self.replication_id = parse_replication_id(words[1], line)
            self._step = _STREAM
            self._reader.is_open = True
            self.events.on_continue(self.replication_id)
        elif words[0] == b"+FULLRESYNC" and len(words) == 3 and words[2].isdigit():
            offset = int(words[2])
            if offset > OFFSET_MAX:
                raise LinkError(f"the primary sent an offset that is too large: {shown_bytes(line)}")
            self.replication_id = parse_replication_id(words[1], line)
            self._reader.begin(offset)
            self._step = _SIZE
            self.events.on_snapshot_begins(self.replication_id, self.offset)
        elif line.startswith(RETRY_LATER_ERRORS) or self.requests_takeover or not line.startswith(b"-"):
            raise LinkError(f"the primary answered PSYNC with {shown_bytes(line)}")
        else:
            self.primary_lacks_psync = True
            self.replication_id = None
            self._reader.begin(0)
            self.outgoing += b"SYNC\r\n"
            self._step = _SIZE

    # The snapshot.

    def _receive_size(self, line: bytes) -> None:
        size = line[1:]
        if not line.startswith(b"$"):
            raise LinkError(f"the primary sent {shown_bytes(line)} instead of a snapshot")
        if size.startswith(b"EOF:") and len(size) == 4 + EOF_MARK_BYTES:
            self._mark = size[4:]
        elif size.isdigit() and int(size) <= OFFSET_MAX:
            self.snapshot_size = self._left = int(size)
        else:
            raise LinkError(f"the primary sent an invalid size of the snapshot: {shown_bytes(line)}")
        if self.primary_lacks_psync:
            self.events.on_snapshot_begins("", 0)
        self._step = _SNAPSHOT
        if self._mark is None and self._left == 0:
            self._end_snapshot(b"")

    def _receive_snapshot(self, data: bytes) -> None:
        if self._mark is None:
            piece, rest = data[: self._left], data[self._left :]
            self._left -= len(piece)
            ended = self._left == 0
        else:
            data = self._tail + data
            end = data.find(self._mark)
            ended = end >= 0
            cut = end if ended else max(len(data) - EOF_MARK_BYTES + 1, 0)
            piece, self._tail = data[:cut], data[cut:]
            rest = data[end + EOF_MARK_BYTES :] if ended else b""
        self.snapshot_received += len(piece)
        if piece:
            self.events.on_snapshot_bytes(piece)
        if ended:
            self._end_snapshot(rest)

    def _end_snapshot(self, rest: bytes) -> None:
        self._tail = b""
        self._step = _LOADING
        self._reader.feed(rest)
        self.events.on_snapshot_complete()

    def keepalive(self) -> None:
        """Show the primary that the snapshot is still being loaded."""
        self.outgoing += b"\n"

    def on_snapshot_loaded(self, now_ms: int) -> None:
        """Acknowledge the snapshot, which its owner has loaded, and continue with the stream."""
        self._step = _STREAM
        self._reader.is_open = True
        self.last_received_ms = now_ms
        if not self.primary_lacks_psync or self._mark is not None:
            self._acknowledge(now_ms)

    # The stream.

    def command_reader(self) -> ReplicationReader:
        """Return the reader of the stream's commands; it returns none before the stream begins."""
        return self._reader

    def close(self) -> None:
        """End the stream: the connection is closed."""
        self._reader.close()

    def take_applied_bytes(self) -> bytes:
        """Return the bytes of the stream that were applied since the last call."""
        return self._reader.take_applied_bytes()

    # Acknowledgements and time.

    def _on_getack(self) -> None:
        self._acknowledge(self.last_received_ms)
        self._synced_wanted = self.offset if self.synced_offset < self.offset else -1

    def _acknowledge(self, now_ms: int) -> None:
        words = [b"REPLCONF", b"ACK", b"%d" % self.offset]
        if self.synced_offset >= 0:
            words += [b"FACK", b"%d" % self.synced_offset]
        self._send(*words)
        self._ack_ms = now_ms

    def request_translation(self, on: bool) -> None:
        """Tell a Headrace primary whether replicas of this replica know only the commands of Redis 7.0."""
        if self._step == _STREAM:
            self._send(b"REPLCONF", b"headrace-translation", b"%d" % on)

    def report_synced(self, offset: int, now_ms: int) -> None:
        """Store up to which offset the log here is synced (-1: no log); tell the primary if it has asked."""
        self.synced_offset = offset
        if 0 <= self._synced_wanted <= offset and self._step == _STREAM:
            self._synced_wanted = -1
            self._acknowledge(now_ms)

    def tick(self, now_ms: int) -> None:
        """Acknowledge once a second. Raises LinkError if the primary has been silent for too long."""
        if now_ms < self.last_received_ms or self._step == _LOADING:  # or the clock was set back
            self.last_received_ms = now_ms
        if now_ms - self.last_received_ms > self.settings.timeout_ms:
            seconds = self.settings.timeout_ms // 1000
            raise LinkError(f"the primary has sent nothing for {seconds} s (repl-timeout)")
        if (
            self._step == _STREAM
            and not self.primary_lacks_psync
            and not 0 <= now_ms - self._ack_ms < ACK_INTERVAL_MS
        ):
            self._acknowledge(now_ms)


def parse_replication_id(word: bytes, line: bytes) -> str:
    """Return the word as a replication ID. Raises LinkError if it is not one.

    Args:
        line: the reply that contains the word, for the error.
    """
    if len(word) != ID_LENGTH or not word.isalnum():
        raise LinkError(f"the primary sent an invalid replication ID: {shown_bytes(line)}")
    return word.decode()
