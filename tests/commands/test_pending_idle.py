"""XPENDING IDLE in groups with many pending entries, of which few or many are idle."""

import random
from typing import Any

import pytest

from support.engine_talk import Talk


@pytest.fixture(scope="module")
def talk() -> Talk:
    """A group with 3,000 pending entries of two consumers, delivered at 30 times; some are released."""
    talk = Talk()
    for number in range(1, 3001):
        talk(f"XADD s {number}-0 f v")
    talk("XGROUP CREATE s g 0")
    for batch in range(30):
        talk.now = 1000 + 1000 * batch
        talk(f"XREADGROUP GROUP g {'ann' if batch % 2 else 'bob'} COUNT 100 STREAMS s >")
    chance = random.Random(1)
    for number in chance.sample(range(1, 3001), 40):
        talk(f"XCLAIM s g bob 0 {number}-0 TIME {chance.randrange(500, 40_000)}")
    released = chance.sample(range(1, 3001), 20)
    talk(f"XNACK s g SILENT IDS {len(released)} " + " ".join(f"{number}-0" for number in released))
    talk.now = 40_000
    return talk


def expected(rows: list[Any], min_idle: int, count: int) -> list[Any]:
    return [row for row in rows if row[1] == "" or row[2] >= min_idle][:count]


@pytest.mark.parametrize("consumer", ["", " ann", " bob", " nobody"])
@pytest.mark.parametrize("ids", ["- +", "500-0 2500-0", "(17-0 +", "2000-0 100-0"])
def test_the_idle_entries_are_those_of_the_whole_list(talk: Talk, ids: str, consumer: str) -> None:
    rows = talk(f"XPENDING s g {ids} 5000{consumer}")
    for min_idle in (1, 5000, 30_000, 37_000, 39_000, 100_000, 1 << 62):
        for count in (0, 1, 10, 5000):
            found = talk(f"XPENDING s g IDLE {min_idle} {ids} {count}{consumer}")
            assert found == expected(rows, min_idle, count), (min_idle, count)


def test_claiming_skips_what_was_trimmed_and_leaves_it_pending() -> None:
    talk = Talk()
    for number in range(1, 11):
        talk(f"XADD s {number}-0 f v")
    talk("XGROUP CREATE s g 0")
    talk("XREADGROUP GROUP g ann STREAMS s >")
    talk("XTRIM s MAXLEN 3")
    talk("XDEL s 9-0")
    talk.now += 100
    [[_, rows]] = talk("XREADGROUP GROUP g bob CLAIM 50 STREAMS s >")
    assert [row[0] for row in rows] == ["8-0", "10-0"]
    assert talk("XPENDING s g")[3] == [["ann", "8"], ["bob", "2"]]
    talk("XTRIM s MAXLEN 0")
    talk.now += 100
    assert talk("XREADGROUP GROUP g eve CLAIM 50 STREAMS s >") in (None, "nil-array")
    assert talk("XPENDING s g")[0] == 10
