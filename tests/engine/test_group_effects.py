"""A replica that repeats the effects of random commands on groups ends with the same groups."""

import os
import random

import pytest

from headrace.engine.engine import Engine
from headrace.resp.replies import ReplyParser

ROUNDS, TURNS = (30, 600) if "HEADRACE_COMPILED" in os.environ else (8, 200)


class Side:
    """An engine and one client of it."""

    def __init__(self):
        self.engine = Engine()
        self.session = self.engine.session()
        self.say([b"CONFIG", b"SET", b"stream-node-max-entries", b"4"], 0)

    def say(self, argv, now):
        self.engine.execute(self.session, argv, now)
        parser = ReplyParser()
        parser.feed(self.session.reply.take())
        return parser.next()


class Chatter:
    """Requests that change groups."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.newest = 0

    def request(self):
        r = self.random
        kinds = [self.append] * 4 + [self.read] * 6 + [self.claim, self.give_back, self.acknowledge] * 3
        kinds += [self.autoclaim] * 2 + [self.delete, self.trim, self.group]
        return r.choice(kinds)().split()

    def one_of(self, words):
        return self.random.choice(words.split())

    def ids(self):
        r = self.random
        return " ".join(
            f"{max(1, self.newest - int(r.expovariate(1 / 8)))}-0" for _ in range(r.randrange(1, 4))
        )

    def counted_ids(self):
        ids = self.ids()
        return f"IDS {len(ids.split())} {ids}"

    def member(self):
        return f"s {self.one_of('g h')} {self.one_of('ann bob cid')}"

    def append(self):
        self.newest += 1
        return f"XADD s {self.newest}-0 f {self.newest}"

    def read(self):
        _, group, consumer = self.member().split()
        options = self.one_of(
            "COUNT_2 COUNT_1 COUNT_3_NOACK CLAIM_30 CLAIM_0_COUNT_2 NOACK_CLAIM_10_MAXCOUNT_2"
        )
        after = self.one_of("> > > 0")
        return f"XREADGROUP GROUP {group} {consumer} {options.replace('_', ' ')} STREAMS s {after}"

    def claim(self):
        options = self.one_of("FORCE JUSTID IDLE_20 TIME_5 RETRYCOUNT_4 FORCE_JUSTID LASTID_7-0 _")
        return f"XCLAIM {self.member()} {self.one_of('0 20')} {self.ids()} {options.replace('_', ' ')}"

    def autoclaim(self):
        return f"XAUTOCLAIM {self.member()} {self.one_of('0 20')} - COUNT {self.one_of('1 2 9')}"

    def give_back(self):
        mode, more = self.one_of("SILENT FAIL FATAL"), self.one_of("_ FORCE RETRYCOUNT_3").replace("_", " ")
        return f"XNACK s {self.one_of('g h')} {mode} {self.counted_ids()} {more}"

    def acknowledge(self):
        group = self.one_of("g h")
        if self.random.random() < 0.7:
            return f"XACK s {group} {self.ids()}"
        return f"XACKDEL s {group} {self.one_of('KEEPREF DELREF ACKED')} {self.counted_ids()}"

    def delete(self):
        if self.random.random() < 0.5:
            return f"XDEL s {self.ids()}"
        return f"XDELEX s {self.one_of('DELREF ACKED')} {self.counted_ids()}"

    def trim(self):
        policy = self.one_of("KEEPREF DELREF ACKED")
        return f"XTRIM s MAXLEN {self.one_of('~ =')} {self.one_of('10 20')} {policy}"

    def group(self):
        group = self.one_of("g h")
        return self.one_of(
            f"XGROUP_SETID_s_{group}_{max(0, self.newest - 5)} XGROUP_DELCONSUMER_s_{group}_ann"
            f" XGROUP_DESTROY_s_{group} XGROUP_CREATE_s_{group}_0 XGROUP_CREATE_s_{group}_$"
        ).replace("_", " ")


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
    primary, replica, chatter = Side(), Side(), Chatter(seed)
    primary.engine.record_effects(True)
    now = 1000
    for line in ("XGROUP CREATE s g 0 MKSTREAM", "XGROUP CREATE s h 0", *[None] * TURNS):
        argv = chatter.request() if line is None else line.split()
        now += chatter.random.choice([0, 0, 1, 15])
        primary.say([word.encode() for word in argv], now)
        for _, words in primary.engine.effects.take():
            replica.say(words, now + 3)
    assert state(primary, now) == state(replica, now)
    for group in (b"g", b"h"):  # the same order of delivery, too
        request = [b"XREADGROUP", b"GROUP", group, b"zoe", b"CLAIM", b"0", b"STREAMS", b"s", b">"]
        assert str(primary.say(request, now + 9)) == str(replica.say(request, now + 9))
