"""Addresses of sockets: those of the `bind` directive, and their text."""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Callable

from headrace.errors import HeadraceError
from headrace.server.config.config import Config


def for_each_address(config: Config, port: str, listen: Callable[[str], None]) -> None:
    """Call listen(address) for each address of `bind`; one with `-` before it may be unavailable.

    Args:
        port: describes the port in an error.
        listen: raises OSError if it cannot listen on the address.

    Raises:
        HeadraceError: if an address is in use, or one without `-` is not available.
    """
    words = config.values["bind"]
    assert isinstance(words, list)
    for word in words:
        address = word.removeprefix("-")
        address = {"*": "0.0.0.0", "::*": "::"}.get(address, address)
        try:
            listen(address)
        except OSError as wrong:
            if word.startswith("-") and wrong.errno != errno.EADDRINUSE:
                continue
            raise HeadraceError(f"cannot listen on {address}, {port}: {wrong.strerror or wrong}") from None


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address of this machine."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def format_address(address: tuple[str, int]) -> str:
    """Return host:port, with brackets around an IPv6 host."""
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"
