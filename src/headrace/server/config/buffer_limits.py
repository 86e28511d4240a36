"""Limits on replies that clients leave unread, as client-output-buffer-limit sets them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BufferLimit:
    """The limits of one class, in bytes and seconds. A soft limit of zero seconds has no effect."""

    hard: int
    soft: int
    seconds: int


@dataclass(frozen=True)
class OutputBufferLimits:
    """The limits of all classes."""

    normal: BufferLimit
    slave: BufferLimit
    pubsub: BufferLimit
