"""What a clock that was set moves, and what it leaves."""

from __future__ import annotations

from headrace.engine.clock import RealClock
from headrace.engine.clock_watch import JUMP_MS, ClockWatch
from headrace.engine.engine import Engine


class TwoClocks(RealClock):
    """One that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.wall = 1_000_000
        self.other = 5_000

    def now_ms(self) -> int:
        return self.wall

    def monotonic_ns(self) -> int:
        return self.other * 1_000_000

    def pass_by(self, ms: int) -> None:
        self.wall += ms
        self.other += ms


def test_time_that_passes_is_no_jump_and_drift_is_one_in_the_end():
    clock = TwoClocks()
    watch = ClockWatch(clock)
    clock.pass_by(10_000_000)
    assert watch.measure_jump() == 0
    clock.wall -= 3_600_000
    assert (watch.measure_jump(), watch.measure_jump()) == (-3_600_000, 0)
    clock.wall += JUMP_MS - 1
    assert watch.measure_jump() == 0
    clock.wall += 1
    assert (watch.measure_jump(), watch.measure_jump()) == (JUMP_MS, 0)


def test_waits_and_pauses_move_with_the_clock_and_expiry_does_not():
    engine = Engine()
    one, two, three = engine.create_session(), engine.create_session(), engine.create_session()
    engine.execute(one, [b"SET", b"k", b"v", b"PX", b"100000"], 1_000_000)
    engine.execute(two, b"XREAD BLOCK 5000 STREAMS s $".split(), 1_000_000)
    engine.execute(three, b"XREAD BLOCK 2000 STREAMS s $".split(), 1_000_000)
    engine.on_clock_set(-900_000)
    assert engine.next_deadline() == 102_000
    engine.tick(101_999)
    assert three.waiter is not None
    engine.tick(102_000)
    assert three.waiter is None and two.waiter is not None
    engine.execute(one, b"CLIENT PAUSE 300 WRITE".split(), 102_000)
    engine.execute(one, [b"SET", b"l", b"v"], 102_000)
    engine.on_clock_set(900_000)
    engine.tick(1_002_299)
    assert one.waiter is not None
    engine.tick(1_002_300)
    assert one.waiter is None
    assert one.reply.take() == b"+OK\r\n" * 3
    engine.execute(one, [b"PTTL", b"k"], 1_002_300)
    assert one.reply.take() == b":97700\r\n"
    engine.tick(1_005_000)
    assert two.waiter is None


def test_a_client_has_been_idle_no_longer_for_it():
    engine = Engine()
    session = engine.create_session(now_ms=1_000)
    engine.execute(session, [b"PING"], 5_000)
    session.reply.take()
    engine.on_clock_set(3_600_000)
    engine.execute(engine.create_session(), [b"PING"], 3_606_000)
    assert 3_606_000 - session.last_request_ms == 1_000
    assert session.last_request_ms - session.created_ms == 4_000
