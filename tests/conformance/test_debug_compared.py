"""DEBUG's subcommands for tests of clients: the same bytes as a real redis-server that allows them."""

import pytest

from conformance.peer import Peer
from headrace.commands.server_interface import ServerInterface
from headrace.engine.engine import Engine
from support.redis_programs import installed_redis, version_of
from support.redis_server import redis_server

# "attrib" and "push" are two replies in RESP3, which the comparison does not expect: test_debug.py has them.
TYPES = "string integer double bignum null array set map verbatim true FALSE nosuch"
REQUESTS = [
    *(("PROTOCOL", name) for name in TYPES.split()),
    ("PROTOCOL",),
    ("ERROR",),
    ("ERROR", "ERR a", "b"),
    ("ERROR", "a"),
    ("ERROR", "WRONGPASS two\r\nlines"),
    ("SLEEP", "0"),
    ("SLEEP",),
]


class Trusting(ServerInterface):
    """A server that allows DEBUG."""

    def debug_allowed(self, session):
        return True


@pytest.fixture(scope="module")
def debugging():
    with redis_server(None, "--enable-debug-command", "yes") as port:
        yield Peer(port, version_of(installed_redis()))


@pytest.mark.parametrize("protocol", [2, 3])
def test_debug_replies_with_the_same_bytes(debugging, protocol):
    both = debugging.both(protocol)
    both.engine = Engine(server=Trusting())
    try:
        for words in REQUESTS:
            both.say("A", [b"DEBUG", *(word.encode() for word in words)])
    finally:
        both.close()
