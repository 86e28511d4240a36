"""Notify systemd, or another supervisor that set NOTIFY_SOCKET, of the server's state (sd_notify(3))."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify_supervisor(state: str) -> None:
    """Send lines such as READY=1 to the supervisor; do nothing if there is none or it cannot be reached."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    # @ marks an abstract socket, which is in no directory.
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)
