"""Tells systemd, or whoever set NOTIFY_SOCKET, that the server is ready or about to end (sd_notify(3))."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Send lines such as READY=1 to the supervisor. Without one, or if it cannot be reached, nothing."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path  # @ is a name that is in no directory
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)
