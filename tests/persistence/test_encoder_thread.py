"""The thread that encodes and writes a snapshot: its queue, its ends, and what becomes of it elsewhere."""

import os
import random
import subprocess
import sys
import threading

import pytest

from headrace.persistence.crc64 import crc64
from headrace.persistence.descriptor_writer import DescriptorWriter
from headrace.persistence.rdb.encoder_thread import EncoderCancelled, EncoderState, EncoderThread
from headrace.persistence.rdb.output import RdbOutput
from support.waiting import wait_until

QUEUE_BYTES = 1 << 20


def write_data(out, strings=200):
    rng = random.Random(3)
    for number in range(strings):
        out.string(rng.randbytes(20) * 200)
        if number % 50 == 49:
            out.flush()
    out.write_trailer(True)


def direct_form(strings=200):
    pieces = []
    write_data(RdbOutput(pieces.append), strings)
    return b"".join(pieces)


class BlockedFile:
    """Collects what is written; each write waits until opened."""

    def __init__(self):
        self.data = b""
        self.begun = threading.Event()
        self.open = threading.Event()

    def write(self, data):
        self.begun.set()
        self.open.wait()
        self.data += data


def test_a_file_is_encoded_written_and_finished_in_the_thread(tmp_path):
    ran_in, ends = [], []
    with open(tmp_path / "part", "wb", buffering=0) as file:
        thread = EncoderThread(file.write, on_end=lambda: ends.append(thread.state))

        def at_end():
            ran_in.append(threading.current_thread().name)
            os.fsync(file.fileno())
            os.rename(tmp_path / "part", tmp_path / "whole")

        write_data(RdbOutput(thread.put, deferred=True))
        thread.finish(at_end)
        assert thread.wait()
    expected = direct_form()
    assert (tmp_path / "whole").read_bytes() == expected
    assert thread.state is EncoderState.DONE
    assert thread.size() == len(expected)
    assert thread.encoder.crc == crc64(expected[:-8])
    assert ran_in == ["headrace-encoder"]
    assert ends == [EncoderState.DONE]
    assert thread.has_encoded_all()


def test_bytes_are_written_as_they_are_between_pieces():
    written = []
    thread = EncoderThread(lambda data: written.append(bytes(data)))
    thread.put(b"before")
    write_data(RdbOutput(thread.put, deferred=True), 3)
    thread.put(b"after")
    thread.finish()
    assert thread.wait()
    assert b"".join(written) == b"before" + direct_form(3) + b"after"
    assert thread.size() == len(direct_form(3))


def test_the_queue_has_no_room_until_pieces_are_written():
    file = BlockedFile()
    thread = EncoderThread(file.write, queue_bytes=1000)
    for _ in range(10):
        assert thread.wait_for_room(0) and thread.has_room()
        thread.put(bytes(100))
    assert not thread.has_room() and not thread.wait_for_room(0.001)
    assert thread.state is EncoderState.RUNNING
    file.open.set()
    assert thread.wait_for_room() and thread.has_room()
    thread.finish()
    assert thread.wait() and file.data == bytes(1000)


def test_an_error_of_the_disk_is_raised_to_the_caller_and_nothing_is_finished():
    def full(data):
        raise OSError(28, "No space left on device")

    ended = []
    thread = EncoderThread(full, queue_bytes=10)
    thread.put(bytes(10))
    assert thread.wait_for_room()  # room to find out about the error
    assert thread.wait()
    assert thread.state is EncoderState.FAILED and thread.has_room()
    for call in (
        lambda: thread.put(b""),
        lambda: thread.finish(lambda: ended.append(1)),
        thread.size,
    ):
        with pytest.raises(OSError, match="No space left"):
            call()
    thread.cancel()
    assert not ended


def test_an_error_at_the_end_makes_the_snapshot_fail():
    def at_end():
        raise OSError(5, "Input/output error")

    thread = EncoderThread(lambda data: None)
    thread.finish(at_end)
    assert thread.wait()
    assert thread.state is EncoderState.FAILED
    with pytest.raises(OSError, match="Input/output error"):
        thread.size()


def test_cancel_ends_a_thread_without_work():
    ended = []
    thread = EncoderThread(lambda data: None)
    thread.cancel()
    assert thread.wait()
    assert thread.state is EncoderState.FAILED
    with pytest.raises(EncoderCancelled):
        thread.finish(lambda: ended.append(1))
    assert not ended


def test_cancel_drops_queued_pieces_and_the_end():
    file, ended = BlockedFile(), []
    thread = EncoderThread(file.write)
    for _ in range(3):
        thread.put(b"x")
    thread.finish(lambda: ended.append(1))
    file.begun.wait()
    thread.cancel()
    file.open.set()
    assert thread.wait()
    assert file.data == b"x" and not ended
    assert thread.state is EncoderState.FAILED


def test_cancel_ends_a_write_to_a_pipe_that_is_not_read():
    reader, pipe = os.pipe()
    writer = DescriptorWriter(pipe)
    thread = EncoderThread(writer.write, unblock=writer.cancel)
    thread.put(bytes(QUEUE_BYTES))
    wait_until(lambda: len(os.read(reader, 1)) == 1, "the first byte")
    thread.cancel()
    assert thread.wait()
    with pytest.raises(EncoderCancelled):
        thread.put(b"")
    os.close(reader)
    os.close(pipe)


def test_all_bytes_go_through_a_slow_pipe():
    reader, pipe = os.pipe()
    writer = DescriptorWriter(pipe)
    thread = EncoderThread(writer.write, unblock=writer.cancel)
    thread.put(bytes(QUEUE_BYTES))
    write_data(RdbOutput(thread.put, deferred=True))
    thread.finish(lambda: os.close(pipe))
    received = b""
    while data := os.read(reader, 50_000):
        received += data
    os.close(reader)
    assert thread.wait() and thread.state is EncoderState.DONE
    assert received == bytes(QUEUE_BYTES) + direct_form()


def test_a_closed_pipe_is_an_error():
    reader, pipe = os.pipe()
    os.close(reader)
    thread = EncoderThread(DescriptorWriter(pipe).write)
    thread.put(b"x")
    assert thread.wait()
    with pytest.raises(BrokenPipeError):
        thread.finish()
    os.close(pipe)


def run(program):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b""), done


START = """
import os, sys, threading
from headrace.persistence.rdb.encoder_thread import EncoderState, EncoderThread
from headrace.persistence.rdb.output import RdbOutput
"""


def test_a_program_can_end_while_the_thread_works():
    run(
        START
        + """
hung = threading.Event()
EncoderThread(lambda data: (hung.set(), threading.Event().wait())).put(b"x")
hung.wait()
idle = EncoderThread(lambda data: None)
busy = EncoderThread(lambda data: None)
RdbOutput(busy.put, deferred=True).string(bytes(range(256)) * 20000)
"""
    )
