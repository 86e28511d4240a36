"""redis-cli's ways of looking at a server, at a running one of ours."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

CLI = shutil.which("redis-cli")
pytestmark = pytest.mark.skipif(CLI is None, reason="redis-cli is not installed")

SECONDS_MAX = 60


def cli(server, *words: str) -> subprocess.Popen[str]:
    assert CLI is not None
    return subprocess.Popen([CLI, "-p", str(server.port), *words], stdout=subprocess.PIPE, text=True)


def said(server, *words: str) -> str:
    told, _ = cli(server, *words).communicate(timeout=SECONDS_MAX)
    return told


def biggest(kind: str, key: str) -> str:
    """Return a pattern of the line of --bigkeys: redis-cli 7.0 puts the quoted key between apostrophes."""
    return f"""Biggest {kind} found '?"{key}"'? has """


@pytest.fixture
def filled(server):
    """Three streams and two strings."""
    client = server.connect()
    for name, entries in (("s:1", 5), ("s:2", 300), ("s:3", 1)):
        for i in range(1, entries + 1):
            client.request("XADD", name, f"{i}-1", "field", "value" * 10)
    client.request("SET", "short", "x")
    client.request("SET", "long", "x" * 1000)
    return server


def test_bigkeys_finds_the_longest_of_each_type(filled) -> None:
    found = said(filled, "--bigkeys")
    assert "Sampled 5 keys in the keyspace!" in found
    assert re.search(biggest("stream", "s:2") + "300 entries", found)
    assert re.search(biggest("string", "long") + "1000 bytes", found)
    assert "3 streams with 306 entries" in found


def test_memkeys_finds_the_largest_of_each_type(filled) -> None:
    found = said(filled, "--memkeys")
    assert re.search(biggest("stream", "s:2") + r"\d{4,} bytes", found)
    assert re.search(biggest("string", "long") + r"1\d{3} bytes", found)


def test_stat_shows_a_line_of_figures(filled) -> None:
    process = cli(filled, "--stat", "-i", "0.01")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    process.terminate()
    process.wait(SECONDS_MAX)
    heading, columns, first, second = lines
    assert "data" in heading and columns.split()[:3] == ["keys", "mem", "clients"]
    for line in (first, second):
        keys, memory, clients, blocked, requests = line.split()[:5]
        assert (int(keys), int(blocked)) == (5, 0) and int(clients) >= 1 and int(requests) > 300
        assert float(memory[:-1]) > 0 and memory[-1] in "KMG"


def test_monitor_prints_what_others_ask_for(server) -> None:
    process = cli(server, "MONITOR")
    assert process.stdout is not None and process.stdout.readline() == "OK\n"
    said(server, "SET", 'k "1"', "v")
    shown = ""
    while '"v"' not in shown:  # redis-cli asks for COMMAND DOCS first
        shown = process.stdout.readline()
    process.terminate()
    process.wait(SECONDS_MAX)
    assert re.fullmatch(r'\d+\.\d{6} \[0 127\.0\.0\.1:\d+\] "SET" "k \\"1\\"" "v"\n', shown)


def test_slowlog_and_latency_can_be_read(server) -> None:
    said(
        server, "CONFIG", "SET", "slowlog-log-slower-than", "0", "latency-tracking-info-percentiles", "50 90"
    )
    said(server, "SET", "k", "v")
    assert "SET\nk\nv\n127.0.0.1:" in said(server, "SLOWLOG", "GET", "-1")
    assert int(said(server, "SLOWLOG", "LEN")) >= 2
    assert re.search(
        r"latency_percentiles_usec_set:p50=\d+\.\d{3},p90=", said(server, "INFO", "latencystats")
    )
    usec = re.search(r"cmdstat_set:calls=1,usec=\d+,usec_per_call=(\d+\.\d\d),", said(server, "INFO", "all"))
    assert usec is not None and float(usec[1]) > 0
    assert "set\ncalls\n1\nhistogram_usec\n" in said(server, "LATENCY", "HISTOGRAM", "set")
    assert said(server, "MEMORY", "DOCTOR").strip()


def test_the_slow_log_is_on_and_events_are_off_unless_said_otherwise(server) -> None:
    found = said(server, "CONFIG", "GET", "slowlog*", "latency*").splitlines()
    assert dict(zip(found[::2], found[1::2], strict=True)) == {
        "latency-monitor-threshold": "0",
        "latency-tracking": "yes",
        "latency-tracking-info-percentiles": "50 99 99.9",
        "slowlog-log-slower-than": "10000",
        "slowlog-max-len": "128",
    }


def test_latency_is_measured(filled) -> None:
    least, most, mean, samples = said(filled, "--latency", "--raw", "-i", "0.1").split()
    assert 0 <= int(least) <= float(mean) <= int(most) + 1 and int(samples) > 0


def test_scan_finds_every_key_and_those_that_match(filled) -> None:
    assert sorted(said(filled, "--scan").split()) == ["long", "s:1", "s:2", "s:3", "short"]
    assert sorted(said(filled, "--scan", "--pattern", "s:*").split()) == ["s:1", "s:2", "s:3"]


def test_monitor_shows_what_a_transaction_runs_and_no_password(server) -> None:
    process = cli(server, "MONITOR")
    assert process.stdout is not None and process.stdout.readline() == "OK\n"
    client = server.connect()
    for words in (["AUTH", "default", "secret"], ["MULTI"], ["XADD", "s", "1-1", "f", "v"], ["EXEC"]):
        client.request(*words)
    shown = []
    while not shown or "EXEC" not in shown[-1]:
        shown.append(process.stdout.readline())
    process.terminate()
    process.wait(SECONDS_MAX)
    assert "secret" not in "".join(shown)
    said_so = [re.findall(r'"(\w+)"', line)[0] for line in shown if "COMMAND" not in line]
    assert said_so == ["AUTH", "MULTI", "XADD", "EXEC"]
