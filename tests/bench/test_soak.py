"""The soak sends what it claims, finds what grows, and takes nothing else for growth."""

import random
import sys
from pathlib import Path

import pytest
import redis

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import soak, soak_samples  # noqa: E402
from benchmarks.servers import ALL_CORES, Server  # noqa: E402
from benchmarks.soak_samples import Sample, growing  # noqa: E402
from rich.console import Console  # noqa: E402

COUNT = 300
COMMANDS = (
    *("bgrewriteaof", "bgsave", "client|kill", "client|tracking", "discard", "eval", "evalsha", "exec"),
    *("hello", "monitor", "multi", "psubscribe", "psync", "publish", "set", "subscribe", "watch", "xack"),
    *("xadd", "xautoclaim", "xgroup|delconsumer", "xpending", "xrange", "xread", "xreadgroup"),
)


def samples(
    resident_mb=lambda n: 60.0, used_mb=lambda n: 5.0, descriptors=lambda n: 30, threads=lambda n: 2
) -> list[Sample]:
    """Return samples of a second each, whose figures are functions of their number."""
    return [
        Sample(float(n), resident_mb(n), used_mb(n), descriptors(n), threads(n), n % 60 / 10)
        for n in range(COUNT)
    ]


@pytest.mark.parametrize(
    ("what", "taken"),
    [
        ("resident memory", samples(resident_mb=lambda n: 60 + n / 40)),
        ("used_memory", samples(used_mb=lambda n: 5 + n / 150)),
        ("descriptors", samples(descriptors=lambda n: 30 + n // 50)),
        ("threads", samples(threads=lambda n: 2 + n // 40)),
    ],
)
def test_what_grows_steadily_is_found(what: str, taken: list[Sample]) -> None:
    [line] = growing(taken)
    assert line.startswith(what) and "steady growth" in line


def test_growth_is_found_below_noise_and_peaks() -> None:
    chance = random.Random(1)
    taken = samples(resident_mb=lambda n: 60 + n / 40 + chance.uniform(-3, 3) + 50 * (n % 7 == 0))
    assert [line.split(":")[0] for line in growing(taken)] == ["resident memory, MB"]


@pytest.mark.parametrize(
    "resident_mb",
    [
        lambda n: 60 + random.Random(n).uniform(-3, 3),
        lambda n: 40 + min(n, 90) / 4,  # the warm-up
        lambda n: 60 + 30 * (n > 200),  # one step
        lambda n: 60 + 40 * (n % 20 < 5),  # peaks of snapshots
        lambda n: 90 - n / 10,
    ],
)
def test_noise_the_warm_up_steps_and_peaks_are_not_growth(resident_mb) -> None:
    assert growing(samples(resident_mb)) == []


def test_few_samples_show_no_growth() -> None:
    assert growing(samples(lambda n: 60.0 * n)[: soak_samples.SAMPLES_MIN]) == []
    assert growing([]) == []


@pytest.mark.whole
def test_both_servers_get_every_kind_of_load_and_all_processes_are_sampled(tmp_path: Path) -> None:
    names = ("redis", "redis replica", "headrace", "headrace replica")
    makers = (Server.redis, Server.redis, Server.headrace, Server.headrace)
    servers = {
        name: make(*soak.DIRECTIVES, cores=ALL_CORES) for name, make in zip(names, makers, strict=True)
    }
    with servers["redis"], servers["redis replica"], servers["headrace"], servers["headrace replica"]:
        running = soak.Soak(servers)
        assert running.run(6, Console(quiet=True)) == []
        for name in ("redis", "headrace"):
            client = redis.Redis(port=servers[name].port, decode_responses=True)
            used = client.info("commandstats")
            assert [command for command in COMMANDS if f"cmdstat_{command}" not in used] == []
            assert client.info("stats")["sync_full"] > 1
    for taken in running.samples.values():
        assert len(taken) > 10
        assert all(sample.resident_mb > 1 for sample in taken) and taken[-1].used_mb > 0
        assert all(sample.descriptors > 5 and sample.threads > 0 for sample in taken)
        assert any(sample.log_mb > 0 for sample in taken)
    soak_samples.chart(running.samples, tmp_path / "soak.png")
    assert (tmp_path / "soak.png").stat().st_size > 10_000
