"""How many clients the engine of a database has, as it says itself."""

from __future__ import annotations

import headrace


def sessions(database: headrace.Database) -> int:
    """How many connections there are besides the one that asks."""
    with database.client() as asking:
        return sum(1 for c in asking.client_list() if c["lib-name"]) - 1


def blocked(database: headrace.Database) -> int:
    """How many clients wait for a key."""
    lines = database.execute("INFO", "clients").split(b"\r\n")
    return next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"blocked_clients:"))
