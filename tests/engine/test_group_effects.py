"""A replica that repeats the effects of random commands on groups ends with the same groups."""

import os

import pytest

from headrace.engine.engine import Engine
from headrace.resp.reply_parser import ReplyParser
from support.command_generator import CommandGenerator

ROUNDS, TURNS = (30, 600) if "HEADRACE_COMPILED" in os.environ else (8, 200)


class Side:
    """An engine and one client of it."""

    def __init__(self):
        self.engine = Engine()
        self.session = self.engine.create_session()
        self.say([b"CONFIG", b"SET", b"stream-node-max-entries", b"4"], 0)

    def say(self, argv, now):
        self.engine.execute(self.session, argv, now)
        parser = ReplyParser()
        parser.feed(self.session.reply.take())
        return parser.next()


def state(side, now):
    """Return the stream and its groups, without the times that are not recorded."""
    info = side.say([b"XINFO", b"STREAM", b"s", b"FULL", b"COUNT", b"0"], now)
    stream = dict(zip(info[::2], info[1::2], strict=True))
    groups = [dict(zip(group[::2], group[1::2], strict=True)) for group in stream.pop(b"groups")]
    for group in groups:
        consumers = [dict(zip(one[::2], one[1::2], strict=True)) for one in group.pop(b"consumers")]
        group["owners"] = [(one[b"name"], one[b"pending"]) for one in consumers]
    return stream, groups


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_replica_has_the_same_groups(seed):
    primary, replica, generator = Side(), Side(), CommandGenerator("group_changes", seed)
    primary.engine.set_effect_recording(True)
    now = 1000
    created = [b"XGROUP CREATE s g 0 MKSTREAM".split(), b"XGROUP CREATE s h 0".split()]
    for argv in created + generator.commands(TURNS):
        now += generator.random.choice([0, 0, 1, 15])
        primary.say(argv, now)
        for _, words in primary.engine.effects.take():
            replica.say(words, now + 3)
    assert state(primary, now) == state(replica, now)
    for group in (b"g", b"h"):  # the same order of delivery, too
        request = [b"XREADGROUP", b"GROUP", group, b"zoe", b"CLAIM", b"0", b"STREAMS", b"s", b">"]
        assert str(primary.say(request, now + 9)) == str(replica.say(request, now + 9))
