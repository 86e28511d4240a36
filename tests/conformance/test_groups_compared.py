"""Consumer groups answer as a real redis-server does: fixed conversations, and random ones by seed.

Times differ between two servers: what holds one is compared as "just now" or "long ago". Left to
tests/commands and tests/replay, for the engine follows Redis 8 where 7.0 differs: the lag of a group that
is before the first entry or of an empty stream, the counter of reads once entries were deleted, a consumer
made by an XCLAIM that claims nothing, the error of a blocked reader whose key is gone.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest

from conformance import seeds
from conformance.follower import Follower
from conformance.group_commands import group_commands
from conformance.peer import Pair, conversations, differ, fields, now_ms, value, without_losses, words

LONG_MS = 600_000
REWORDED = (b"-ERR Unbalanced", b"-ERR The + ID is meaningless")  # since 7.2 and 7.4


def ago(ms: int) -> str:
    return "long ago" if ms > LONG_MS else "just now"


def of_time(ms: int) -> str:
    return ago(now_ms() - ms)


def known_to_7_0(argv: list[bytes], reply: Any) -> Any:
    """A reply with what 7.0 has of it, and times as words."""
    if not isinstance(reply, list):
        return reply
    name, sub = argv[0].upper(), argv[1].upper()
    if name == b"XPENDING" and len(argv) > 3:
        return [[row[0], row[1], ago(row[2]), row[3]] for row in reply]
    if name == b"XINFO" and sub == b"CONSUMERS":
        return [
            {k: ago(v) if k == b"idle" else v for k, v in c.items() if k != b"inactive"}
            for c in map(fields, reply)
        ]
    if name == b"XINFO" and sub == b"GROUPS":
        return [without_losses(group) for group in reply]
    if name == b"XINFO" and sub == b"STREAM":
        stream = {k: v for k, v in fields(reply).items() if not re.match(b"idmp|pids|iids", k)}
        if isinstance(stream[b"groups"], list):
            stream[b"groups"] = [known_group(without_losses(group)) for group in stream[b"groups"]]
        return stream
    return reply


def known_group(group: dict[bytes, Any]) -> dict[bytes, Any]:
    group.pop(b"nacked-count", None)
    group[b"pending"] = [[row[0], row[1], of_time(row[2]), row[3]] for row in group[b"pending"]]
    group[b"consumers"] = [fields(consumer) for consumer in group[b"consumers"]]
    for consumer in group[b"consumers"]:
        consumer.pop(b"active-time", None)
        consumer[b"seen-time"] = of_time(consumer[b"seen-time"])
        consumer[b"pending"] = [[row[0], of_time(row[1]), row[2]] for row in consumer[b"pending"]]
    return group


def holds_times(argv: list[bytes]) -> bool:
    name, sub = argv[0].upper(), argv[1].upper() if len(argv) > 1 else b""
    return (name == b"XPENDING" and len(argv) > 3) or (name == b"XINFO" and sub in (b"STREAM", b"CONSUMERS"))


class GroupPair(Pair):
    """Replies are equal, but for times, and what 8 counts by other rules than 7.0."""

    def agree(self, argv: list[bytes], ours: bytes, theirs: bytes) -> None:
        if ours.startswith(REWORDED) and self.version < (7, 4):
            assert theirs.startswith((b"-ERR Unbalanced", b"-ERR Invalid stream ID"))
        elif ours != theirs and (holds_times(argv) or argv[0] == b"XINFO"):
            self.compare(argv, known_to_7_0(argv, value(ours)[0]), known_to_7_0(argv, value(theirs)[0]))
        else:
            differ("A", argv, ours, theirs)

    def compare(self, argv: list[bytes], ours: Any, theirs: Any) -> None:
        for groups in map(groups_of, (ours, theirs)):
            for group in groups:
                if self.counts_unlike_7_0(argv[2], group[b"name"]):
                    group[b"lag"] = group[b"entries-read"] = "unlike 7.0"
        assert ours == theirs, argv

    def counts_unlike_7_0(self, key: bytes, name: bytes) -> bool:
        """Whether 8 counts what the group has read by other rules."""
        stream = self.engine.keyspace.databases[0].stream(key)
        group = stream.group(name)
        before_first = (group.last_ms, group.last_seq) < (stream.first_ms, stream.first_seq)
        return before_first or stream.length < stream.entries_added


class PolicyPair(GroupPair):
    """Numbers of nodes may differ: 8.2.3 keeps some nodes that a trim with DELREF leaves without entries."""

    def compare(self, argv: list[bytes], ours: Any, theirs: Any) -> None:
        for info in (ours, theirs):
            if isinstance(info, dict):
                info.pop(b"radix-tree-keys")
                info.pop(b"radix-tree-nodes")
        super().compare(argv, ours, theirs)


def groups_of(info: Any) -> list[dict[bytes, Any]]:
    """The groups in a reply that known_to_7_0 gave."""
    if isinstance(info, dict):
        return info[b"groups"] if isinstance(info[b"groups"], list) else []
    return [row for row in info if b"entries-read" in row] if isinstance(info, list) else []


@pytest.fixture
def pair(peer):
    pair = GroupPair(peer)
    yield pair
    pair.connection.close()


CONVERSATIONS = {  # each request, and whether its answers are compared
    heading: [(words(line.partition("#!")[0]), "#!" not in line) for line in text.splitlines() if line]
    for heading, text in conversations(pathlib.Path(__file__).with_name("groups.txt")).items()
}
BEFORE = CONVERSATIONS.pop("before")


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_about_groups_is_the_same(pair, name, protocol):
    pair.both([b"HELLO", b"%d" % protocol], compare=False)
    for argv, compare in BEFORE + CONVERSATIONS[name]:
        pair.both(argv, compare)


SEEDS, TURNS = seeds.chosen(compiled=(6, 2500), interpreted=(2, 500))


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_commands_on_groups_are_answered_the_same(pair, seed, protocol):
    pair.both([b"HELLO", b"%d" % protocol], compare=False)
    pair.cool_if(seed % 2)
    for argv in group_commands(1000 * protocol + seed, TURNS):
        pair.both(argv)
    for key in (b"s", b"t"):
        pair.both([b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"])


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_deletions_with_references_are_answered_the_same(peer_8, seed, protocol):
    """XDELEX, XACKDEL and the policies KEEPREF, DELREF and ACKED, which came with Redis 8.2."""
    pair = PolicyPair(peer_8)
    try:
        pair.both([b"HELLO", b"%d" % protocol], compare=False)
        pair.cool_if(seed % 2)
        for argv in group_commands(1000 * protocol + seed, TURNS, "policies"):
            pair.both(argv)
        for key in (b"s", b"t"):
            pair.both([b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"])
            pair.both([b"XRANGE", key, b"-", b"+"])
    finally:
        pair.close()


def without_times(argv: list[bytes]) -> list[bytes]:
    """An effect, but for what 8 says in it that 7.0 does not."""
    argv = list(argv)
    for word, at in ((b"TIME", 7), (b"LASTID", 13), (b"ENTRIESREAD", 6)):
        if word in argv[6:]:
            at = argv.index(word, 5) + 1
            argv[at] = of_time(int(argv[at])).encode() if word == b"TIME" else b"..."
    return argv


def one_id_each(argv: list[bytes]) -> list[list[bytes]]:
    """An effect as 7.0 says it: one XCLAIM for each entry of a delivery."""
    if argv[0] != b"XCLAIM" or b"LASTID" not in argv:
        return [argv]
    end = argv.index(b"TIME", 5)
    return [[*argv[:5], word, *argv[end:]] for word in argv[5:end]]


def in_7_0(argv: list[bytes]) -> bool:
    """Whether 7.0 says this: it leaves the group's position to XCLAIM, and so needs no transaction.

    It does not tell of history that was read, which changes delivery counts and times.
    """
    history = argv[0] == b"XCLAIM" and b"LASTID" not in argv
    return argv[0] not in (b"MULTI", b"EXEC") and b"ENTRIESREAD" not in argv and not history


@pytest.mark.parametrize("seed", SEEDS)
def test_random_commands_on_groups_have_the_same_effects(pair, seed):
    follower = Follower(pair.port)
    pair.cool_if(seed % 2)
    try:
        pair.engine.set_effect_recording(True)
        for argv in group_commands(seed, TURNS):
            pair.both(argv)
        pair.both([b"SET", b"that", b"is all"])
        theirs = [
            without_times(argv) for argv in follower.until([b"SET", b"that", b"is all"]) if in_7_0(argv)
        ]
    finally:
        follower.close()
    effects = [one for _, argv in pair.engine.effects.take() if in_7_0(argv) for one in one_id_each(argv)]
    ours = [without_times(argv) for argv in effects][:-1]
    theirs = theirs[-len(ours) :]  # it heard of what came before, too
    for i in range(max(len(ours), len(theirs))):
        assert ours[i : i + 1] == theirs[i : i + 1], f"effect {i}, after {theirs[max(0, i - 3) : i]}"


@pytest.mark.parametrize("protocol", [2, 3])
def test_those_who_wait_for_a_group_are_answered_the_same(peer, protocol):
    peer.compare(
        """
        XGROUP CREATE s g $ MKSTREAM
        XGROUP CREATE s h $
        XGROUP CREATE t g $ MKSTREAM
        B> XREADGROUP GROUP g b BLOCK 0 STREAMS s >
        C> XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS s >
        D> XREADGROUP GROUP h d BLOCK 0 STREAMS s >
        E> XREAD BLOCK 0 STREAMS s $
        XADD s 1-0 n 1
        XADD s 2-0 n 2
        B> XREADGROUP GROUP g b BLOCK 0 STREAMS s >
        C> XREADGROUP GROUP g c BLOCK 0 NOACK STREAMS t s > >
        MULTI
        XADD s 3-0 n 3
        XADD t 1-0 n 1
        XREADGROUP GROUP h a BLOCK 0 STREAMS t >
        EXEC
        XADD s 4-0 n 4
        B> XREADGROUP GROUP g b BLOCK 0 STREAMS s 0
        B> XREADGROUP GROUP g b BLOCK 500 STREAMS s >
        sleep 900
        B> XREADGROUP GROUP g b BLOCK 0 STREAMS s >
        XGROUP SETID s g 3
        XADD s 5-0 n 5
        XPENDING s g
        """,
        protocol,
    )
