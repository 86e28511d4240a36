"""read(2) and write(2), interpreted; the turn's tests run the compiled meaning."""

import os
import socket

from headrace.server import descriptors


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
