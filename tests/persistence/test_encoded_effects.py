"""Effects encoded once: the log gets the records that it would encode itself, the replicas the same bytes."""

import random

import pytest

from headrace.persistence.aof.encoded_effects import EncodedEffects
from headrace.persistence.aof.log_buffer import DatabaseRequest, LogBuffer
from headrace.replication.backlog import Backlog


def one_effect(rng: random.Random) -> DatabaseRequest:
    return rng.choice([0, 0, 0, 1, 2]), [
        b"SET",
        rng.randbytes(rng.randrange(9)),
        b"v" * rng.choice([0, 5, 99]),
    ]


def feed(encoded: EncodedEffects, backlog: Backlog) -> None:
    if encoded.has_unfed():
        with encoded.unfed_bytes() as view:
            backlog.append_effects(view, encoded)


@pytest.mark.parametrize("seed", range(20))
def test_log_and_replicas_get_what_each_would_encode_alone(seed: int) -> None:
    rng = random.Random(seed)
    encoded, backlog = EncodedEffects(), Backlog(0)
    log, log_alone, stream_alone = LogBuffer(), LogBuffer(), LogBuffer()
    for _ in range(100):
        effects = [one_effect(rng) for _ in range(rng.randrange(1, 4))]
        stream_alone.put_all(effects)
        log_alone.put_all(effects)
        turn: list[DatabaseRequest] = []
        for effect in effects:
            turn.append(effect)
            if rng.random() < 0.3:  # WAIT within the turn
                encoded.encode(turn)
                feed(encoded, backlog)
        encoded.encode(turn)
        feed(encoded, backlog)
        encoded.copy_to(log)
        encoded.drop(turn)
        assert not turn and not encoded.has_unfed()
        if rng.random() < 0.2:  # the log begins another file
            log.forget_database()
            log_alone.forget_database()
    assert bytes(log.view()) == bytes(log_alone.view())
    assert backlog.read(0, backlog.end) == bytes(stream_alone.view())


def test_a_replica_that_begins_here_gets_a_select_which_the_log_does_not_need() -> None:
    encoded, log = EncodedEffects(), LogBuffer()
    for key in (b"a", b"b"):
        turn: list[DatabaseRequest] = [(3, [b"DEL", key])]
        encoded.forget_database()
        encoded.encode(turn)
        assert bytes(encoded.unfed_bytes()).startswith(b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n")
        encoded.copy_to(log)
        encoded.drop(turn)
    assert bytes(log.view()).count(b"SELECT") == 1


def test_effects_before_the_first_replica_are_only_for_the_log() -> None:
    encoded, log = EncodedEffects(), LogBuffer()
    turn: list[DatabaseRequest] = [(0, [b"DEL", b"before"])]
    encoded.encode(turn)
    encoded.mark_fed()
    assert not encoded.has_unfed()
    turn.append((0, [b"DEL", b"after"]))
    encoded.encode(turn)
    assert b"before" not in bytes(encoded.unfed_bytes()) and b"after" in bytes(encoded.unfed_bytes())
    encoded.copy_to(log)
    assert bytes(log.view()).index(b"before") < bytes(log.view()).index(b"after")


def test_a_turn_whose_first_encoding_is_interrupted_begins_with_its_database() -> None:
    encoded, log = EncodedEffects(), LogBuffer()
    log.select(1)
    for _ in range(2):
        with pytest.raises(TypeError):
            encoded.encode([(1, [b"DEL", b"half"]), (1, [b"DEL", None])])  # type: ignore[list-item]
    encoded.encode([(1, [b"DEL", b"a"])])
    stream = bytes(encoded.unfed_bytes())
    assert stream.startswith(b"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n")
    assert b"half" not in stream
    encoded.copy_to(log)
    assert bytes(log.view()).count(b"SELECT") == 1


def test_encoding_that_is_interrupted_is_repeated() -> None:
    encoded, log = EncodedEffects(), LogBuffer()
    turn: list[DatabaseRequest] = [(0, [b"DEL", b"a"])]
    encoded.encode(turn)
    for _ in range(2):
        with pytest.raises(TypeError):
            encoded.encode([*turn, (0, [b"DEL", b"half"]), (0, [b"DEL", None])])  # type: ignore[list-item]
    turn.append((0, [b"DEL", b"b"]))
    encoded.encode(turn)
    encoded.copy_to(log)
    assert bytes(log.view()).count(b"DEL") == 2 and b"half" not in bytes(log.view())
