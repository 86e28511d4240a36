"""The buffers of connected clients, for INFO."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.commands.server_interface import ServerInterface
from headrace.engine.engine import Engine


@dataclass(frozen=True)
class ClientBuffers:
    """Bytes of the largest request buffer, the largest reply buffer, and all buffers of several clients."""

    largest_input_bytes: int
    largest_output_bytes: int
    total_bytes: int

    @classmethod
    def measure(cls, engine: Engine, server: ServerInterface, *, replicas: bool = False) -> ClientBuffers:
        """Measure the buffers of the ordinary clients, or of the replicas instead."""
        most_input = most_output = total = 0
        for session in engine.clients.values():
            if session.is_replica == replicas:
                received, output = sum(server.query_buffer_sizes(session)), session.reply.cap
                most_input, most_output = max(most_input, received), max(most_output, output)
                total += received + output + session.subscription_bytes
        return cls(most_input, most_output, total)
