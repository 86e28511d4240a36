"""A simulated network: the connections of replicas to their primaries, which the test carries byte by byte.

    replica ─ socket pair ─┐                   ┌─ socket pair ─ primary
                           └ Wire: up, down ───┘
                               └ delivers some bytes, stalls, or is cut; bytes keep their order

The other ends of the socket pairs are the servers' real connections. No thread and no port is used.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from random import Random
from typing import Any

from headrace.server.replication.primary_connection import PrimaryConnection

ALL = 1 << 30
READ_BYTES = 1 << 18


class Direction:
    """Bytes on their way from one socket to another."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.waiting = bytearray()
        self.delivered = 0
        self.ended = False  # the sender has closed its side

    def collect(self) -> None:
        """Take what the sender has sent."""
        while not self.ended:
            try:
                data = self.source.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.waiting += data
            self.ended = not data

    def deliver(self, most: int) -> bool:
        """Pass on up to so many bytes; return whether the receiver can learn of the sender's end."""
        part = bytes(self.waiting[:most])
        if part:
            try:
                sent = self.target.send(part)
            except BlockingIOError:
                return False
            except OSError:
                return True
            del self.waiting[:sent]
            self.delivered += sent
        return self.ended and not self.waiting


class Wire:
    """One connection of a replica to its primary."""

    def __init__(self, replica: int, primary: int) -> None:
        self.ports = frozenset((replica, primary))
        self.replica_end, self.for_replica = pair()
        self.primary_end, self.for_primary = pair()
        self.down = Direction(self.primary_end, self.replica_end)
        self.up = Direction(self.replica_end, self.primary_end)
        self.cut_after = -1  # bytes to the replica; -1: never
        self.stalled_until_ms = 0
        self.is_cut = False

    def pump(self, down: int = ALL, up: int = ALL) -> None:
        """Carry up to so many bytes in each direction."""
        if self.is_cut:
            return
        self.down.collect()
        self.up.collect()
        if self.cut_after >= 0:
            down = min(down, self.cut_after - self.down.delivered)
        ended = self.down.deliver(down)
        if self.up.deliver(up) or ended or self.down.delivered == self.cut_after:
            self.cut()

    def cut(self) -> None:
        """Close both sides. Bytes that were not delivered are lost."""
        if not self.is_cut:
            self.is_cut = True
            self.replica_end.close()
            self.primary_end.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a connection, both non-blocking."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


class Network:
    """All wires, and between which servers there can be any."""

    def __init__(self) -> None:
        self.accepting: dict[int, Callable[[socket.socket], object]] = {}  # by port
        self.wires: list[Wire] = []
        self.separated: set[frozenset[int]] = set()
        self.connections = 0  # ever made
        self.cut_next_after = -1  # `cut_after` of the next wire

    def connect(self, replica: int, primary: int) -> socket.socket:
        """Connect two servers; return the replica's end. Raises OSError."""
        if primary not in self.accepting or frozenset((replica, primary)) in self.separated:
            raise ConnectionRefusedError(111, "simulated: connection refused")
        wire = Wire(replica, primary)
        wire.cut_after, self.cut_next_after = self.cut_next_after, -1
        self.wires.append(wire)
        self.connections += 1
        self.accepting[primary](wire.for_primary)
        return wire.for_replica

    def pump(self) -> None:
        """Carry everything."""
        for wire in self.wires:
            wire.pump()
        self.forget_cut()

    def pump_some(self, chance: Random, now_ms: int) -> None:
        """Carry some bytes of some wires that are neither stalled nor between separated servers."""
        for wire in self.wires:
            if wire.ports not in self.separated and wire.stalled_until_ms <= now_ms and chance.random() < 0.7:
                wire.pump(some(chance), some(chance))
        self.forget_cut()

    def forget_cut(self) -> None:
        """Forget wires that are cut."""
        self.wires = [wire for wire in self.wires if not wire.is_cut]

    def of(self, port: int) -> list[Wire]:
        """Return the wires of one server."""
        return [wire for wire in self.wires if port in wire.ports]

    def cut_all(self, port: int) -> None:
        """Cut the wires of one server."""
        for wire in self.of(port):
            wire.cut()
        self.forget_cut()


def some(chance: Random) -> int:
    """Return how many bytes are carried at once: often all of them."""
    return ALL if chance.random() < 0.5 else chance.choice((1, 7, 60, 500))


class InlineThread:
    """Replaces threading.Thread: start() does the work at once."""

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...], **options: object) -> None:
        self.target = target
        self.args = args

    def start(self) -> None:
        self.target(*self.args)


def connection_class(network: Network, port_of: Callable[[object], int]) -> type[PrimaryConnection]:
    """Return a PrimaryConnection that connects by the network.

    Args:
        port_of: returns the port of the server with this event loop.
    """

    class SimulatedConnection(PrimaryConnection):
        def _open(self, host: str, port: int, timeout_s: float) -> socket.socket:
            return network.connect(port_of(self.loop), port)

    return SimulatedConnection
