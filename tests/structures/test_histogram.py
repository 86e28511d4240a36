import random

import pytest

from headrace.structures.histogram import Histogram


def filled(durations):
    histogram = Histogram()
    for ns in durations:
        histogram.add(ns)
    return histogram


def test_nothing_is_counted_at_first():
    empty = Histogram()
    assert (empty.total_count(), empty.percentile(50), empty.cumulative_buckets()) == (0, 0, [])


@pytest.mark.parametrize("seed", range(5))
def test_a_percentile_is_a_duration_rounded_up_by_less_than_a_128th(seed):
    dice = random.Random(seed)
    durations = sorted(int(2 ** dice.uniform(0, 39)) for _ in range(dice.randint(1, 400)))
    histogram = filled(durations)
    for percent in (0, 0.1, 10, 50, 90, 99, 99.9, 100):
        rank = max(1, int(percent / 100 * len(durations) + 0.5))
        exact = durations[rank - 1]
        assert exact <= histogram.percentile(percent) <= exact + exact // 128


def test_short_durations_are_exact():
    for ns in range(256):
        assert filled([ns]).percentile(100) == ns


def test_what_takes_for_ever_counts_as_long():
    histogram = filled([1 << 62])
    assert histogram.percentile(50) == (1 << 40) - 1 and histogram.total_count() == 1


@pytest.mark.parametrize("seed", range(5))
def test_octaves_count_what_took_no_longer_and_leave_out_what_adds_nothing(seed):
    dice = random.Random(seed)
    durations = [int(2 ** dice.uniform(0, 32)) for _ in range(200)]
    shown = filled(durations).cumulative_buckets()
    for k in range(24):
        end = 1024 << k
        limit = end + (end >> 7)  # as far as its counter goes
        fewer = sum(ns < (limit >> 1) for ns in durations)
        here = sum(ns < limit for ns in durations)
        entry = [count for microseconds, count in shown if microseconds == (limit - 1) // 1000]
        assert entry == ([here] if (k == 0 and here) or (k and here > fewer) else [])
    assert shown[-1][1] == len(durations)
    assert shown == sorted(shown)


def test_it_keeps_no_more_than_it_needs():
    histogram = filled([100] * 1000)
    assert histogram.counter_capacity == 128
    histogram.add(1_000_000)
    assert histogram.counter_capacity == 14 * 128
