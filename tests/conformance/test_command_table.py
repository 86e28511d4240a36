"""The rows of the command table say of each command what a real redis-server's COMMAND says."""

import pytest

from headrace.commands.table import COMMANDS
from headrace.resp.replies import ReplyParser

ROWS = [sub for command in COMMANDS for sub in (command, *command.unique_subcommands())]

# Redis 8 and 7.0 differ here, or a row leaves to Redis what has no meaning in this server.
KNOWN = {
    "command|getkeys": {"arity"},
    "command|getkeysandflags": {"arity"},
    "wait": {"flags", "categories"},
}


def described(peer, name):
    """What the server says of a command; None when it has none of that name."""
    peer.control.send([b"COMMAND", b"INFO", name])
    parser = ReplyParser()
    parser.feed(peer.control.reply())
    (facts,) = parser.next()
    if facts is None:
        return None
    flags = set(facts[2]) - {"movablekeys"}
    return {
        "arity": facts[1],
        "flags": flags,
        "keys": tuple(facts[3:6]),
        "categories": {category[1:] for category in facts[6]},
    }


@pytest.mark.parametrize("command", ROWS, ids=lambda command: command.name.decode())
def test_a_row_agrees_with_the_real_command(peer, command):
    theirs = described(peer, command.name)
    if theirs is None:
        pytest.skip("newer than the redis-server at hand")
    ours = {
        "arity": command.arity,
        "flags": set(command.flags) - {"movablekeys"},
        "keys": (command.first_key, command.last_key, command.key_step),
        "categories": set(command.categories),
    }
    for fact in KNOWN.get(command.name.decode(), ()):
        del ours[fact], theirs[fact]
    assert ours == theirs
