"""Measure the cost of TLS: the same requests with it and without, on both servers, with client certificates.

    python -m benchmarks.tls [--rounds 5] [--requests 200000]

redis-benchmark sends XADDs of two fields at depths 1 and 16 on 50 connections; for handshakes it opens a
connection for each PING. Each round measures both servers. The figures are medians of server CPU per command
and of throughput.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.servers import IN_MEMORY, Server, free_port, load_cores

CONNECTIONS = 50
XADD = ("XADD", "orders", "*", "item", "pear", "price", "12.50")
WORKLOADS = {  # name: (encrypted, options, command, share of the requests)
    "XADD depth 1": (False, ("-P", "1"), XADD, 0.5),
    "XADD depth 1, TLS": (True, ("-P", "1"), XADD, 0.5),
    "XADD depth 16": (False, ("-P", "16"), XADD, 1.0),
    "XADD depth 16, TLS": (True, ("-P", "16"), XADD, 1.0),
    "XADD 16 KiB": (False, ("-P", "1"), (*XADD[:-1], "x" * 16384), 0.1),
    "XADD 16 KiB, TLS": (True, ("-P", "1"), (*XADD[:-1], "x" * 16384), 0.1),
    "a connection for a PING, TLS": (True, ("-k", "0"), ("PING",), 0.02),
}


def certificates(folder: Path) -> dict[str, str]:
    """Make a certificate authority, and a certificate for both sides; return their files by name."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = {name: str(folder / name) for name in ("ca.key", "ca.pem", "own.key", "own.csr", "own.pem")}
    new = ["openssl", "req", *key, "-subj"]
    for command in (
        [*new, "/CN=authority", "-x509", "-keyout", names["ca.key"], "-out", names["ca.pem"]],
        [*new, "/CN=localhost", "-keyout", names["own.key"], "-out", names["own.csr"]],
        ["openssl", "x509", "-req", "-in", names["own.csr"], "-CA", names["ca.pem"], "-CAkey"]
        + [names["ca.key"], "-CAcreateserial", "-out", names["own.pem"]],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return names


def measure_once(
    server: Server, tls_port: int, files: dict[str, str], name: str, requests: int
) -> tuple[float, float]:
    """Return the server's CPU per command, in microseconds, and commands per second."""
    encrypted, options, command, share = WORKLOADS[name]
    count = max(int(requests * share), CONNECTIONS)
    port = tls_port if encrypted else server.port
    arguments = ["redis-benchmark", "-p", str(port), "-c", str(CONNECTIONS), "-n", str(count), "--csv"]
    arguments += options
    if encrypted:
        arguments += ["--tls", "--cacert", files["ca.pem"], "--cert", files["own.pem"], "--key"]
        arguments += [files["own.key"]]
    cores = ",".join(map(str, load_cores()))
    before = server.cpu_s()
    done = subprocess.run(
        ["taskset", "-c", cores, *arguments, *command], capture_output=True, text=True, check=True
    )
    cpu_us = (server.cpu_s() - before) / count * 1e6
    return cpu_us, float(done.stdout.strip().splitlines()[-1].split(",")[1].strip('"'))


def measure(rounds: int, requests: int) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return the samples of each workload, by server."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in WORKLOADS}
    kinds: dict[str, Callable[..., Server]] = {"headrace": Server.headrace, "redis": Server.redis}
    with tempfile.TemporaryDirectory() as folder:
        files = certificates(Path(folder))
        tls_files = ["--tls-cert-file", files["own.pem"], "--tls-key-file", files["own.key"]]
        tls_files += ["--tls-ca-cert-file", files["ca.pem"]]
        for _ in range(rounds):
            for kind, start in kinds.items():
                port = free_port()
                directives = (*IN_MEMORY, "--tls-port", str(port), *tls_files)
                with start(*directives) as server:
                    for name in WORKLOADS:
                        found[name].setdefault(kind, []).append(
                            measure_once(server, port, files, name, requests)
                        )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=200_000)
    arguments = parser.parse_args()
    table = Table("workload", "CPU µs, headrace", "redis", "ratio", "per s, headrace", "redis", "ratio")
    for name, by in measure(arguments.rounds, arguments.requests).items():
        row = [name]
        for figure, better in ((0, -1), (1, 1)):
            ours, theirs = (statistics.median(s[figure] for s in by[kind]) for kind in ("headrace", "redis"))
            row += [f"{ours:,.2f}", f"{theirs:,.2f}", f"{(ours / theirs) ** better:.2f}"]
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
