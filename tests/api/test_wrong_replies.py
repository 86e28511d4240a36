"""A program on the port that is no Redis server raises a HeadraceError in every function of the library."""

from __future__ import annotations

import pytest

import headrace
from support.wrong_server import CUT, POLITENESS, REPLIES, WrongServer

OPERATIONS = {
    "add": lambda db: db.stream("s").add({"f": "v"}),
    "add_many": lambda db: db.stream("s").add_many([{"f": "v"}, {"f": "w"}]),
    "length": lambda db: len(db.stream("s")),
    "range": lambda db: list(db.stream("s").range()),
    "to_arrow": lambda db: db.stream("s").to_arrow(),
    "info": lambda db: db.stream("s").info(),
    "groups": lambda db: db.stream("s").groups(),
    "delete": lambda db: db.stream("s").delete("1-0"),
    "pending": lambda db: db.stream("s").group("g").pending(),
    "group info": lambda db: db.stream("s").group("g").info(),
    "streams": lambda db: db.streams(),
}
# These are right for some of the functions; after the push message there is an integer.
PLAUSIBLE = {"push", "integer", "negative", "null", "null list", "empty list", "RESP3 null"}


@pytest.mark.parametrize("politeness", POLITENESS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_wrong_reply_raises_a_headrace_error(operation, politeness):
    for reply in REPLIES:
        if reply in CUT and operation != "length":  # one is enough: the library waits for a lost server
            continue
        server = WrongServer(reply, POLITENESS[politeness])
        try:
            with headrace.connect(server.url, reconnect_timeout=0.1) as db:
                OPERATIONS[operation](db)
        except headrace.HeadraceError:
            pass
        else:
            searched = operation == "streams" and politeness == "lists streams"
            assert reply in PLAUSIBLE or searched, (operation, reply)
        finally:
            server.close()
