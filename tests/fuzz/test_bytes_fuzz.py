"""Random bytes into every parser of outside input: rejected as documented, or parsed to something valid."""

from __future__ import annotations

import os
from collections.abc import Hashable
from random import Random

import pytest

from fuzz.driver import CORPUS, Failed, Round, Target, minimised
from fuzz.mutations import Mutator
from fuzz.recipes import build, recipe_of, recipe_of_file
from fuzz.rounds import KEPT_BYTES_MAX
from fuzz.targets import TARGETS
from fuzz.using import NOW
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.dump import dump
from headrace.persistence.rdb.versions import VERSIONS
from headrace.persistence.rdb.writer import write_rdb
from support.random_streams import random_stream

COMPILED = "HEADRACE_COMPILED" in os.environ
SEED = int(os.environ.get("HEADRACE_FUZZ_SEED", "0"))


@pytest.mark.parametrize("name", TARGETS)
def test_random_bytes_are_rejected_or_parsed(name: str) -> None:
    target = TARGETS[name]
    one = Round(target, SEED)
    one.run(target.executions[COMPILED])
    assert len(one.pool) > len(target.corpus()), "nothing new was ever found: are the inputs looked at?"


def test_the_corpus_is_small_and_every_target_has_a_part_of_it() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    sizes = [path.stat().st_size for path in CORPUS.glob("*/*")]
    assert 0 < sum(sizes) <= KEPT_BYTES_MAX


def fragile(data: bytes) -> set[Hashable]:
    """Falls over two things that stand far apart, the second of which it only looks for behind the first."""
    if b"-17" not in data:
        return {b"-1" in data}
    if b"\xff\xff" in data:
        raise KeyError(17)
    return {"behind"}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target with a fault in it."""
    monkeypatch.setattr(Target, "corpus", lambda self: [])
    return Target("planted", fragile, (ValueError,), [b"-1", b"abc"])


def test_a_planted_fault_is_found_and_reduced(planted: Target) -> None:
    def found() -> Failed:
        one = Round(planted, 1, pool=[b"a 5 b" * 10])
        with pytest.raises(Failed) as caught:
            one.run(200_000)
        return caught.value

    first = found()
    assert first.what.startswith("KeyError") and isinstance(first.__cause__, KeyError)
    assert found().data == first.data, "the same seed comes to the same inputs"
    assert sorted(minimised(planted, first.data, first.what)) == sorted(b"-17\xff\xff")


def test_every_change_stays_within_bounds() -> None:
    mutator = Mutator(Random(1), [b"word"], 300)
    data = b"12 -5 \xff" * 30
    seen = {mutator.mutated(data, b"other") for _ in range(2000)} | {
        mutator.mutated(b"", b"") for _ in range(99)
    }
    assert len(seen) > 1500 and max(map(len, seen)) == 300


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_recipe_defines_a_payload_to_the_byte(version) -> None:
    rng = Random(3)
    for _ in range(20):
        stream = random_stream(rng, Keyspace(), NOW, entries=12)
        body = dump(stream, version, compress=False, now_ms=NOW)[:-10]
        assert build(recipe_of(body)) == body


def test_a_recipe_defines_a_snapshot_to_the_byte() -> None:
    keyspace = Keyspace()
    for database in keyspace.databases[:3]:
        database.put(b"12", random_stream(Random(4), keyspace, NOW, entries=12))
        database.put(b"k", b"text")
        database.set_expiry(b"k", NOW + 5)
    data = bytearray()
    write_rdb(keyspace, data.extend, version=VERSIONS[0], now_ms=NOW, compress=False)
    assert build(recipe_of_file(bytes(data))) == data[9:-9]


def test_a_recipe_of_anything_builds() -> None:
    mutator = Mutator(Random(2), [b" [ ", b" ] ", b" x", b"l", b"%", b"-"], 400)
    for _ in range(2000):
        build(mutator.mutated(b"b21 l1 k5-0 [ 1 0 'f ] sg%00 t5 i1-1 x80ff z'", b"l5 zabc"))
