import time

from headrace.engine.clock import RealClock, SettableClock


def test_the_real_clock_is_the_systems():
    before = int(time.time() * 1000) - 1
    assert before <= RealClock().now_ms() <= int(time.time() * 1000) + 1


def test_the_set_clock_stands_still_until_it_is_moved():
    clock = SettableClock(5)
    assert clock.now_ms() == clock.now_ms() == 5
    clock.advance(10)
    assert clock.now_ms() == 15
