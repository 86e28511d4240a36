"""The benchmarks send the loads that they claim to measure. No test checks how long they take."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import deliveries, redis_benchmark, report  # noqa: E402
from benchmarks.rounds import medians, sample_rounds  # noqa: E402
from benchmarks.servers import Server  # noqa: E402
from benchmarks.workloads import WORKLOADS, XADD, read_and_acknowledge  # noqa: E402

ROWS = {
    "XADD depth 16": {
        "headrace": {"per_s": 110.0, "cpu_us": 2.0, "p99_ms": 2.0, "busy": 0.9},
        "redis": {"per_s": 100.0, "cpu_us": 2.2, "p99_ms": 1.0, "busy": 0.9},
    },
    "pending entry": {"headrace": {"bytes": 50.0}, "redis": {"bytes": 90.0}},
    "small stream": {"headrace": {"bytes": 50.0}, "redis": {"bytes": 90.0}},
}


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server.redis() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    redis_benchmark.flush(running)
    return running


def client_of(server: Server) -> redis.Redis:
    return redis.Redis(port=server.port, decode_responses=True)


def test_redis_benchmark_sends_the_requested_commands(server: Server) -> None:
    sample = redis_benchmark.run(server, XADD, 16, 3200)
    assert client_of(server).xlen("bench") == 3200
    assert 0 < sample.p50_ms <= sample.p99_ms <= sample.p999_ms
    assert sample.per_s > 0 and sample.cpu_us > 0 and sample.busy > 0


def test_percentiles_between_two_rows_are_interpolated() -> None:
    out = "50.000% <= 1.000 milliseconds\n 75.000% <= 2.000 milliseconds\n100.000% <= 4.000 milliseconds"
    assert [redis_benchmark.percentile(out, p) for p in (50, 60, 75, 100)] == pytest.approx(
        [1.0, 1.4, 2.0, 4.0]
    )


def test_the_load_generator_sends_each_request_once(server: Server) -> None:
    deletes = next(w for w in WORKLOADS if w.name.startswith("XDEL"))
    sample = deletes.measure(server, 1600)
    info = client_of(server).xinfo_stream("s")
    assert (info["length"], info["entries-added"]) == (0, 1600)
    assert sample.p50_ms <= sample.p99_ms <= sample.p999_ms


def test_each_group_reads_and_acknowledges_all_entries(server: Server) -> None:
    read_and_acknowledge(10, 8)(server, 640)
    groups = client_of(server).xinfo_groups("s")
    assert [(g["pending"], g["lag"]) for g in groups] == [(0, 0)] * 10


def test_entries_are_delivered_to_blocked_consumers(server: Server) -> None:
    deliveries.run(server, 200)
    client = client_of(server)
    for i in range(deliveries.PAIRS):
        group = client.xinfo_groups(f"s{i:02}")[0]
        assert (group["pending"], group["entries-read"]) == (0, 5)


def test_rounds_alternate_the_order_of_servers() -> None:
    order: list[str] = []

    def sample(name: str) -> dict[str, float]:
        order.append(name)
        return {"ms": float(len(order))}

    found = medians(sample_rounds(3, sample))
    assert order == ["redis", "headrace", "headrace", "redis", "redis", "headrace"]
    assert found == {"redis": {"ms": 4.0}, "headrace": {"ms": 3.0}}


def test_ratios_above_one_are_better_than_redis_server() -> None:
    by = ROWS["XADD depth 16"]
    assert [report.ratio(by, figure) for figure in ("per_s", "cpu_us", "p99_ms", "bytes")] == [
        pytest.approx(1.1),
        pytest.approx(1.1),
        0.5,
        None,
    ]


def test_figures_below_their_targets_are_listed() -> None:
    assert list(report.missed_targets(ROWS)) == [
        "XADD depth 16: server CPU 1.10, target 1.2",
        "XADD depth 16: p99 0.50, target 1.0",
        "pending entry: memory 1.80, target 2.0",
    ]


def test_missing_valgrind_is_reported_in_one_line() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.instructions"],
        cwd=ROOT,
        env=os.environ | {"PATH": "/nonexistent", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1 and "valgrind" in ran.stderr


@pytest.mark.whole
def test_a_run_of_one_row_writes_json_a_page_and_a_chart(tmp_path: Path) -> None:
    words = ["--quick", "--requests", "20000", "--only", "XDEL", "--out", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "benchmarks", *words], cwd=ROOT, check=True, capture_output=True)
    figures = json.loads((tmp_path / "bench.json").read_text())
    assert set(figures["rows"]["XDEL at random depth 16"]) == {"redis", "headrace"}
    assert "| XDEL at random depth 16 |" in (tmp_path / "bench.md").read_text()
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
