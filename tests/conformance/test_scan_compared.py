"""Odd cursors and options of SCAN get the answer that a real redis-server gives."""

import pytest

from headrace.engine.engine import Engine

SAME = [
    *("SCAN 0", "SCAN +0", "SCAN -0", "SCAN 00", "SCAN a", "SCAN 1a", "SCAN 0x10", "SCAN 1.0", "SCAN 1e3"),
    *("SCAN +", "SCAN -", "SCAN +-1", "SCAN --1", "SCAN 18446744073709551615", "SCAN 18446744073709551616"),
    *("SCAN 9223372036854775808", "SCAN 99999999999999999999999", "SCAN " + "0" * 200 + "1"),
    *("SCAN 0 COUNT 0", "SCAN 0 COUNT -1", "SCAN 0 COUNT a", "SCAN 0 COUNT 1.5", "SCAN 0 COUNT 01"),
    *("SCAN 0 COUNT 9223372036854775807", "SCAN 0 COUNT 9223372036854775808", "SCAN 0 COUNT +1"),
    *("SCAN a COUNT x", "SCAN 0 COUNT", "SCAN 0 MATCH", "SCAN 0 FOO x", "SCAN a FOO x", "SCAN 0 TYPE"),
    *("SCAN 0 COUNT 0 FOO", "SCAN 0 TYPE zzz", "SCAN 0 TYPE hash", "SCAN"),
]


@pytest.mark.parametrize("line", SAME, ids=lambda line: line[:40])
def test_odd_cursors_and_options_are_answered_alike(peer, line):
    peer.clean()
    engine = Engine()
    session = engine.create_session()
    argv = [word.encode() for word in line.split(" ")]
    engine.execute(session, argv, 1000)
    peer.control.send(argv)
    assert session.reply.take() == peer.control.reply()


@pytest.mark.parametrize("cursor", [b"-1", b"-18446744073709551615", b"", b" 1", b"1 ", b"\x00", b"1\n"])
def test_a_cursor_below_zero_or_without_digits_is_invalid(cursor):
    """As in Redis 8; Redis 7.0 takes the first three."""
    engine = Engine()
    session = engine.create_session()
    engine.execute(session, [b"SCAN", cursor], 1000)
    assert session.reply.take() == b"-ERR invalid cursor\r\n"
