"""read(2), write(2) and epoll_wait(2), interpreted; the turn's tests run the compiled meaning."""

import os
import select
import socket

import pytest

from headrace.server.loop import descriptors


def test_bytes_go_and_come_at_an_offset():
    a, b = socket.socketpair()
    with a, b:
        buf = bytearray(b"..hello..")
        assert descriptors.write(a.fileno(), buf, 2, 5) == 5
        into = bytearray(b"----------")
        assert descriptors.read(b.fileno(), into, 3, 7) == 5
        assert into == b"---hello--"


def test_nothing_there_and_no_room_are_said_apart_from_the_end():
    a, b = socket.socketpair()
    with a, b:
        a.setblocking(False)
        b.setblocking(False)
        buf = bytearray(1 << 16)
        assert descriptors.read(a.fileno(), buf, 0, 10) == descriptors.WOULD_BLOCK
        while descriptors.write(a.fileno(), buf, 0, len(buf)) > 0:
            pass
        assert descriptors.write(a.fileno(), buf, 0, len(buf)) == descriptors.WOULD_BLOCK
        b.close()
        assert descriptors.write(a.fileno(), buf, 0, 1) == descriptors.BROKEN


def test_the_end_is_zero_bytes():
    a, b = socket.socketpair()
    with a, b:
        b.close()
        assert descriptors.read(a.fileno(), bytearray(10), 0, 10) == 0


def test_a_buffer_may_be_resized_right_after():
    read_end, write_end = os.pipe()
    buf = bytearray(b"x" * 10)
    assert descriptors.write(write_end, buf, 0, 10) == 10
    assert descriptors.read(read_end, buf, 0, 10) == 10
    del buf[5:]
    os.close(read_end)
    os.close(write_end)
    assert descriptors.read(read_end, buf, 0, 5) == descriptors.BROKEN


def test_events_are_told_one_by_one():
    a, b = socket.socketpair()
    with a, b, select.epoll() as poller:
        poller.register(a.fileno(), select.EPOLLIN)
        poller.register(b.fileno(), select.EPOLLIN | select.EPOLLOUT)
        events = bytearray(8 * descriptors.EVENT_BYTES)
        b.send(b"for a")
        found = descriptors.wait(poller.fileno(), events, 8, -1)
        told = {descriptors.event_fd(events, i): descriptors.event_mask(events, i) for i in range(found)}
        assert told == {a.fileno(): select.EPOLLIN, b.fileno(): select.EPOLLOUT}
        assert descriptors.wait(poller.fileno(), events, 1, -1) == 1


def test_a_wait_is_over_in_time_and_leaves_the_poller_open():
    with select.epoll() as poller:
        assert descriptors.wait(poller.fileno(), bytearray(descriptors.EVENT_BYTES), 1, 1) == 0
        assert not poller.closed


def test_a_wait_on_nothing_is_an_error():
    with pytest.raises(OSError):
        descriptors.wait(-1, bytearray(descriptors.EVENT_BYTES), 1, 0)
