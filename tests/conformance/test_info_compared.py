"""INFO's fields: those of real servers in their order, but for the ones listed here with a reason."""

import contextlib
import json
import pathlib
import socket

import pytest

from conformance.peer import Connection
from support.headrace_server import headrace_server
from support.redis_server import redis_server

CAPTURED = json.loads((pathlib.Path(__file__).parent / "vectors" / "info-8.2.3.json").read_text())

# Field or section: why it is not here.
OMITTED = {
    "atomicvar_api": "there is no C program",
    "gcc_version": "there is no C program",
    "server_name": "Valkey only",
    "Threads": "one thread serves all clients, and it does not count its reads and writes",
    "Keysizes": "it would be a pass over all keys; there are no lists, sets, hashes",
    "total_net_repl_input_bytes": "part of total_net_input_bytes",
    "total_net_repl_output_bytes": "part of total_net_output_bytes",
    "instantaneous_input_repl_kbps": "part of instantaneous_input_kbps",
    "instantaneous_output_repl_kbps": "part of instantaneous_output_kbps",
    "expire_cycle_cpu_milliseconds": "expiry has no cycle: keys expire when their time comes",
    "total_eviction_exceeded_time": "not measured: writes are rejected while memory is full",
    "current_eviction_exceeded_time": "not measured: writes are rejected while memory is full",
    "total_reads_processed": "not counted, so that a request costs no more",
    "total_writes_processed": "not counted, so that a request costs no more",
    "reply_buffer_shrinks": "buffers are not resized by a timer",
    "reply_buffer_expands": "buffers are not resized by a timer",
    "eventloop_cycles": "not counted, so that a request costs no more",
    "eventloop_duration_sum": "not measured: the clock is read once per turn",
    "eventloop_duration_cmd_sum": "not measured: the clock is read once per turn",
    "instantaneous_eventloop_cycles_per_sec": "not counted, so that a request costs no more",
    "instantaneous_eventloop_duration_usec": "not measured: the clock is read once per turn",
    "aof_rewrite_buffer_length": "there is none since Redis 7.0",
}
# Fields that only Headrace has.
OWN = {
    "headrace_version",
    "python_version",
    "used_memory_rss_startup",
    "evicted_entries",
    "acl_access_denied_tls_cert",  # as Redis 8.6
}
# Named by commands, errors and modules: compared elsewhere.
VARIABLE = {"Commandstats", "Errorstats", "Latencystats", "Modules"}


def sections(port):
    """The names of INFO's fields, by section."""
    connection = Connection(port, 2)
    connection.send([b"SET", b"k", b"v"])
    assert connection.reply() == b"+OK\r\n"
    connection.send([b"INFO", b"everything"])
    text = connection.reply().decode()
    connection.close()
    found, section = {}, ""
    for line in text.split("\r\n"):
        if line.startswith("# "):
            section = line.removeprefix("# ")
            found[section] = []
        elif ":" in line:
            found[section].append(line.partition(":")[0])
    return found


@pytest.fixture(scope="module")
def ours():
    with headrace_server(None, "--appendonly", "yes") as port:
        yield sections(port)


@pytest.fixture(scope="module")
def real():
    with redis_server(None, "--appendonly", "yes") as port:
        yield sections(port)


@pytest.fixture(params=["at hand", "8.2.3"])
def theirs(request, real):
    """The real server at hand, and the captured one."""
    return real if request.param == "at hand" else CAPTURED


def test_sections_stand_in_the_same_order(ours, theirs):
    assert [name for name in ours if name in theirs] == [name for name in theirs if name not in OMITTED]


def test_fields_stand_in_the_same_order(ours, theirs):
    for section, fields in theirs.items():
        if section not in VARIABLE | OMITTED.keys():
            common = [name for name in ours[section] if name in fields]
            assert common == [name for name in fields if name not in OMITTED], section


def test_every_field_that_is_not_in_8_2_is_known(ours):
    for section, fields in CAPTURED.items():
        if section not in VARIABLE | OMITTED.keys():
            assert set(ours[section]) - set(fields) <= OWN, section


def test_every_omission_is_one(ours):
    here = {*ours, *(name for fields in ours.values() for name in fields)}
    assert not here & OMITTED.keys()


def until_closed(client):
    """Read until the server closes the connection, with unread bytes or without."""
    with contextlib.suppress(ConnectionResetError):
        while client.recv(1 << 20):
            pass


def test_counters_of_limits_count_closed_clients():
    limits = ("--client-query-buffer-limit", "1mb", "--client-output-buffer-limit", "normal 100000 0 0")
    with headrace_server(None, *limits) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"*1\r\n$3000000\r\n" + b"x" * 2_000_000)
            until_closed(client)
        connection = Connection(port, 2)
        connection.send([b"SET", b"k", b"v" * 90_000])
        assert connection.reply() == b"+OK\r\n"
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"MULTI\r\n" + b"GET k\r\n" * 500 + b"EXEC\r\n")
                until_closed(client)
        connection.send([b"INFO", b"stats"])
        stats = dict(line.split(b":") for line in connection.reply().splitlines() if line.count(b":") == 1)
        connection.close()
    assert stats[b"client_query_buffer_limit_disconnections"] == b"1"
    assert stats[b"client_output_buffer_limit_disconnections"] == b"2"
