"""What requests take, by a clock that moves as the test says."""

import pytest

from headrace.commands.connection.monitor import quoted
from headrace.engine.clock import RealClock
from headrace.engine.engine import Engine
from headrace.keyspace.settings import Settings


class Steps(RealClock):
    """A clock that moves on by `step` nanoseconds at each reading, and counts them."""

    def __init__(self):
        self.now = 10**9
        self.step = 1000
        self.read = 0

    def monotonic_ns(self):
        self.now += self.step
        self.read += 1
        return self.now


class Timed:
    """An engine whose requests take as long as is said."""

    def __init__(self, **settings):
        self.engine = Engine()
        self.clock = Steps()
        self.engine.timing.use_clock(self.clock)
        self.set(tracking=True, **settings)
        self.session = self.engine.create_session(b"1.2.3.4:5", b"", 0)

    def set(self, slower=-1, threshold=0, most=128, tracking=True):
        settings = self.engine.keyspace.settings
        settings.slowlog_log_slower_than = slower
        settings.slowlog_max_len = most
        settings.latency_monitor_threshold = threshold
        settings.latency_tracking = tracking
        self.engine.timing.refresh()

    def __call__(self, line, us=1, now=5000, session=None):
        self.clock.step = us * 1000
        asks = self.session if session is None else session
        self.engine.execute(asks, line.encode().split(), now)
        return asks.reply.take()

    def row(self, name):
        return next(row for row in self.engine.stats.rows if row.command.name == name)


def test_the_clock_is_not_read_while_timing_is_off():
    timed = Timed()
    timed.set(tracking=False)
    timed.clock.read = 0
    timed.engine.timing.begin()
    timed("PING")
    timed("MULTI")
    timed("EXEC")
    assert timed.clock.read == 0 and timed.row(b"ping").total_ns == 0
    assert timed.row(b"ping").latency_histogram is None


def test_a_request_reads_the_clock_once():
    timed = Timed(slower=0, threshold=1)
    timed.clock.read = 0
    for _ in range(10):
        timed("PING")
    assert timed.clock.read == 10


def test_time_is_added_up_by_command():
    timed = Timed()
    timed("PING", us=3)
    timed("PING", us=5)
    timed("GET k", us=7)
    timed("GET k k", us=100)  # refused before it ran
    timed("INCR k x", us=100)
    assert (timed.row(b"ping").total_ns, timed.row(b"get").total_ns) == (8000, 7000)
    said = timed("INFO commandstats latencystats").decode()
    assert "cmdstat_ping:calls=2,usec=8,usec_per_call=4.00,rejected_calls=0,failed_calls=0\r\n" in said
    assert "cmdstat_get:calls=1,usec=7,usec_per_call=7.00,rejected_calls=1,failed_calls=0\r\n" in said
    assert "latency_percentiles_usec_ping:p50=3.007,p99=5.023,p99.9=5.023\r\n" in said
    assert "latency_percentiles_usec_set" not in said
    timed("CONFIG RESETSTAT")
    assert timed.row(b"ping").total_ns == 0 and timed.row(b"ping").latency_histogram is None


def test_a_transaction_takes_as_long_as_all_in_it():
    timed = Timed()
    for line in ("MULTI", "SET k 1", "INCR k"):
        timed(line)
    timed("EXEC", us=10)
    assert timed.row(b"set").total_ns == timed.row(b"incr").total_ns == 10_000
    assert timed.row(b"exec").total_ns == 30_000


def test_time_between_two_turns_is_not_counted():
    timed = Timed()
    timed.clock.step = 10**9
    timed.engine.timing.begin()
    timed("PING", us=2)
    assert timed.row(b"ping").total_ns == 2000


def test_waiting_is_not_counted_but_being_served_is():
    timed = Timed(slower=0)
    other = timed.engine.create_session()
    timed("XREAD BLOCK 0 STREAMS s $", us=4)
    row = timed.row(b"xread")
    assert row.latency_histogram is None and not timed.engine.timing.slow_log.requests
    timed("XADD s 1-1 f v", us=6, session=other)
    assert row.total_ns == 10_000 and row.latency_histogram.total_count() == 1
    assert timed.session.reply.take() != b""


def slow(timed):
    return list(timed.engine.timing.slow_log.requests)


def test_the_slow_log_keeps_what_took_as_long_and_no_more_than_allowed():
    timed = Timed(slower=100, most=3)
    timed("PING", us=99)
    for us in (100, 101, 102, 500):
        timed(f"ECHO {us}", us=us, now=7000)
    assert [(r.number, r.at_s, r.microseconds, r.words) for r in slow(timed)] == [
        (3, 7, 500, [b"ECHO", b"500"]),
        (2, 7, 102, [b"ECHO", b"102"]),
        (1, 7, 101, [b"ECHO", b"101"]),
    ]
    assert slow(timed)[0].address == b"1.2.3.4:5"
    timed("SLOWLOG RESET", us=1)
    timed("PING", us=100)
    assert [r.number for r in slow(timed)] == [4]
    timed.set(slower=0, most=0)
    timed("PING")
    assert slow(timed) == []


def test_the_slow_log_shortens_long_requests():
    timed = Timed(slower=0)
    timed("SET k " + "x" * 129)
    timed("DEL " + " ".join("k" * 31))
    timed("DEL " + " ".join("k" * 32))
    longest, fits, set_ = (request.words for request in slow(timed))
    assert set_ == [b"SET", b"k", b"x" * 128 + b"... (1 more bytes)"]
    assert len(fits) == 32 and fits[-1] == b"k"
    assert len(longest) == 32 and longest[-1] == b"... (2 more arguments)"


def test_events_are_the_worst_of_each_second():
    timed = Timed(threshold=10)
    timed("GET k", us=9_999)
    timed("GET k", us=12_000, now=1000)
    timed("GET k", us=11_000, now=1999)
    timed("GET k", us=15_000, now=2000)
    timed("XRANGE s - +", us=20_000, now=3000)
    events = timed.engine.timing.latency_monitor.events
    assert {name: (list(event.samples), event.worst_ms) for name, event in events.items()} == {
        b"fast-command": ([(1, 12), (2, 15)], 15),
        b"command": ([(3, 20)], 20),
    }
    assert timed("LATENCY RESET command nosuch") == b":1\r\n"
    assert timed("LATENCY RESET") == b":1\r\n"
    assert timed("LATENCY LATEST") == b"*0\r\n"


def test_the_doctor_and_the_graph_speak_of_what_there_was():
    timed = Timed(threshold=10)
    timed("GET k", us=10_000, now=60_000)
    timed("GET k", us=40_000, now=110_000)
    said = timed("LATENCY DOCTOR", now=120_000).decode()
    assert "fast-command: 2 times (mean 25 ms, mean deviation 15 ms, every 30.00 s). Worst: 40 ms." in said
    drawn = timed("LATENCY GRAPH fast-command", now=120_000).decode().split("\n")[1:]
    assert drawn[0] == "fast-command - high 40 ms, low 10 ms (all time high 40 ms)"
    assert [line.rstrip("\r") for line in drawn[2:8]] == [" #", " |", " |", "#|", "11", "m0"]
    timed.set()
    timed("LATENCY RESET")
    assert b"latency-monitor-threshold, in milliseconds, is 0" in timed("LATENCY DOCTOR")


def test_what_a_pause_held_back_is_timed_from_its_end():
    timed = Timed()
    timed("CLIENT PAUSE 100", now=1000)
    timed("PING", us=3, now=1001)
    timed.clock.now += 10**9
    timed.engine.tick(1101)
    assert timed.session.reply.take() == b"+PONG\r\n"
    assert timed.row(b"ping").total_ns == 3000


def test_settings_begin_with_nothing_timed():
    settings = Settings()
    assert not settings.latency_tracking
    assert (settings.slowlog_log_slower_than, settings.latency_monitor_threshold) == (-1, 0)
    assert not Engine(settings).timing.must_record_runs


@pytest.mark.parametrize("byte", range(256))
def test_a_quoted_word_is_read_again_as_it_was(byte):
    from headrace.resp.inline import split_line

    word = b"a%cb" % byte
    assert split_line(quoted(word)) == [word]
