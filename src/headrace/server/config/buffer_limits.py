"""Limits on replies that clients leave unread, as client-output-buffer-limit sets them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BufferLimit:
    """The limits of one class of clients, in bytes and seconds; 0 bytes or seconds: no such limit."""

    hard: int
    soft: int
    seconds: int


@dataclass(frozen=True)
class OutputBufferLimits:
    """The limits of all classes of clients."""

    normal: BufferLimit
    slave: BufferLimit
    pubsub: BufferLimit
