"""The server never has the collector look at what is old, so what goes may not be part of a cycle."""

import gc
import socket
import threading
import weakref

import pytest

from headrace.server.config.config import Config
from headrace.server.main import Server
from headrace.server.observe.collector import GROWTH_BYTES_MIN, FullGcTrigger
from support.speaking import encoded

LIBRARY = "#!lua name=echoes\nredis.register_function('echo', function(keys, args) return args[1] end)"
LIVES = {
    "asks": encoded("XADD", "s", "*", "f", "v") + encoded("INFO") + encoded("XINFO", "STREAM", "s", "FULL"),
    "is refused": encoded("XADD", "s") + encoded("NOSUCH") + encoded("XADD", "s", "1-1", "f", "v"),
    "breaks the protocol": b"*1\r\n$x\r\n",
    "waits": encoded("XREAD", "BLOCK", "0", "STREAMS", "never", "$") + encoded("PING"),
    "waits in a group": encoded("XGROUP", "CREATE", "t", "g", "$", "MKSTREAM")
    + encoded("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "t", ">"),
    "listens": encoded("SUBSCRIBE", "news") + encoded("PSUBSCRIBE", "n*"),
    "watches all": encoded("MONITOR"),
    "queues": encoded("WATCH", "s") + encoded("MULTI") + encoded("XADD", "s", "*", "f", "v"),
    "changes what is configured": encoded("CONFIG", "SET", "hz", "20") + encoded("CLIENT", "LIST"),
    "is somebody": encoded("ACL", "SETUSER", "bob", "on", ">word", "~*", "+@all")
    + encoded("AUTH", "bob", "word"),
    "runs scripts": encoded("EVAL", "return redis.call('XADD', KEYS[1], '*', 'f', 'v')", 1, "s")
    + encoded("EVAL", "return redis.call('NOSUCH')", 0)
    + encoded("FUNCTION", "LOAD", "REPLACE", LIBRARY)
    + encoded("FCALL", "echo", 0, "v"),
    "caches keys": encoded("HELLO", "3") + encoded("CLIENT", "TRACKING", "ON") + encoded("XLEN", "s"),
    "removes keys": encoded("DEL", "s", "t") + encoded("FLUSHALL"),
}


def opened(directory):
    config = Config()
    config.read_arguments(["--port", "free", "--dir", str(directory), "--appendonly", "yes", "--save", ""])
    server = Server(config)
    server.open()
    return server


@pytest.fixture
def server(tmp_path):
    server = opened(tmp_path)
    gc.collect()
    gc.freeze()
    gc.disable()
    yield server
    gc.enable()
    gc.unfreeze()
    server.close()


def live(server, requests):
    """A client comes, sends that, and goes."""

    def turns(n):
        for _ in range(n):
            server.parts.timers.run(server.parts.clock.now_ms())
            server.parts.loop.run_once(1)

    with socket.create_connection(("127.0.0.1", server.parts.listeners.port)) as client:
        turns(3)
        client.sendall(requests)
        turns(5)
    turns(3)
    assert not server.parts.loop.connections


@pytest.mark.parametrize("name", LIVES)
def test_a_client_that_goes_leaves_no_cycles(server, name):
    live(server, LIVES[name])  # makes what is made once
    gc.collect()
    for _ in range(5):
        live(server, LIVES[name])
    assert gc.collect() == 0
    assert server.parts.engine.stats.command_count > 0 or name == "breaks the protocol"


def test_old_objects_are_left_alone_while_the_server_runs(tmp_path):
    server = opened(tmp_path)
    before = gc.get_threshold()
    running = threading.Thread(target=server.run)
    running.start()
    with socket.create_connection(("127.0.0.1", server.parts.listeners.port)) as client:
        client.sendall(encoded("PING"))
        assert client.recv(100) == b"+PONG\r\n"
        assert gc.get_threshold()[2] > 1_000_000
        server.stop()
        running.join()
    assert gc.get_threshold() == before


class Cycle:
    """An object that only the collector frees."""

    def __init__(self):
        self.itself = self


def test_old_objects_are_collected_when_unaccounted_memory_has_grown():
    resident, seconds = 100 << 20, 0.0
    generation = FullGcTrigger(lambda: resident, lambda: seconds)
    gc.disable()
    left = weakref.ref(Cycle())
    try:
        generation.collect_if_grown(80 << 20, 40 << 20)
        resident, seconds = resident + GROWTH_BYTES_MIN - 1, 2.0
        generation.collect_if_grown(80 << 20, 40 << 20)
        resident, seconds = resident + 1, 4.0
        generation.collect_if_grown(81 << 20, 40 << 20)  # the data have grown instead
        assert generation.collections == 0 and left() is not None
        generation.collect_if_grown(80 << 20, 40 << 20)  # within the same second
        assert generation.collections == 0
        seconds = 6.0
        generation.collect_if_grown(80 << 20, 40 << 20)
        assert generation.collections == 1 and generation.found_object_count > 0 and left() is None
        seconds = 8.0
        generation.collect_if_grown(80 << 20, 40 << 20)
        assert generation.collections == 1
    finally:
        gc.enable()


def test_much_data_may_have_much_unaccounted_memory_beside_them():
    resident, seconds = 0, 0.0  # bytes
    generation = FullGcTrigger(lambda: resident, lambda: seconds)
    generation.collect_if_grown(0, 1 << 30)
    resident, seconds = 500 << 20, 2.0
    generation.collect_if_grown(0, 1 << 30)
    assert generation.collections == 0
    resident, seconds = 512 << 20, 4.0
    generation.collect_if_grown(0, 1 << 30)
    assert generation.collections == 1
