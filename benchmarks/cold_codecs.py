"""Compare codecs and sizes for cold runs, with the flights of the demo as entries.

    python -m benchmarks.cold_codecs [--rows 336776] [--dir DIRECTORY]

The first table compresses all runs, and decompresses each of them, by one thread in CPU time. The codecs of
the package lz4 are measured if it is installed. The second table writes runs to cold files and reads them at
random: a run is read whole, however few of its entries are needed.
"""

from __future__ import annotations

import argparse
import io
import random
import tempfile
import time
import zlib
from collections.abc import Callable
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from headrace.cli.demo.data import SCHEDULED_COLUMN, flights
from headrace.engine.engine import Engine
from headrace.persistence.cold.codec import ZstdCodec
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.data_directory import DiskDirectory
from headrace.persistence.dump import dump
from headrace.persistence.rdb.input import RdbInput
from headrace.persistence.rdb.versions import VERSIONS
from headrace.streams.stream import Stream

KIB = 1024
RUN_KIB = (128, 256, 512, 1024)
WRITE_RUNS = 16  # in one call
READS = 2000

Nodes = list[tuple[bytes, bytes]]


class Compression(NamedTuple):
    """A codec and its level."""

    name: str
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes, int], bytes]


def compressions() -> list[Compression]:
    """Return everything to be measured."""
    import zstandard

    found = []
    unpack = zstandard.ZstdDecompressor().decompress
    for level in (1, 3):
        packer = zstandard.ZstdCompressor(level=level)
        found.append(Compression(f"zstandard {level}", packer.compress, lambda data, size: unpack(data)))
    found.append(Compression("zlib 1", lambda data: zlib.compress(data, 1), lambda d, n: zlib.decompress(d)))
    try:
        import lz4.block
    except ImportError:
        return found

    def unpack_lz4(data: bytes, size: int) -> bytes:
        return lz4.block.decompress(data, uncompressed_size=size)  # type: ignore[no-any-return]

    fast = {"store_size": False}
    high = {"store_size": False, "mode": "high_compression"}
    found.append(Compression("lz4", lambda data: lz4.block.compress(data, **fast), unpack_lz4))
    found.append(Compression("lz4 HC", lambda data: lz4.block.compress(data, **high), unpack_lz4))
    return found


def flight_nodes(rows: int) -> tuple[int, Nodes]:
    """Return the number of entries of a stream with the flights, and its nodes: 4 KiB or 100 entries each."""
    table = flights(rows)
    names = [name for name in table.column_names if name != SCHEDULED_COLUMN]
    columns = [(name.encode(), table[name].to_pylist()) for name in names]
    engine = Engine()
    session = engine.create_session()
    for row, ms in enumerate(table[SCHEDULED_COLUMN].cast("int64").to_pylist()):
        words = [b"XADD", b"flights", b"%d-*" % ms]
        for name, values in columns:
            if values[row] is not None:
                words += [name, str(values[row]).encode()]
        engine.execute(session, words, 0)
        assert not session.reply.take().startswith(b"-")
    stream = engine.keyspace.databases[0].values[b"flights"]
    assert isinstance(stream, Stream)
    source = RdbInput(io.BytesIO(dump(stream, VERSIONS[-1], compress=False, now_ms=0)).read, checksum=False)
    source.byte()
    return stream.length, [(source.string(), source.string()) for _ in range(source.length())]


def runs_of(nodes: Nodes, size: int) -> list[Nodes]:
    """Return the nodes in runs of at least size bytes."""
    runs: list[Nodes] = [[]]
    taken = 0
    for key, block in nodes:
        if taken >= size:
            runs.append([])
            taken = 0
        runs[-1].append((key, block))
        taken += len(block)
    return runs


def compare_codecs(entries: int, nodes: Nodes) -> Table:
    """Measure every codec with every size of runs."""
    table = Table(
        "KiB of a run", "codec", "bytes per entry", "of the nodes", "compress MB/s", "decompress ms"
    )
    for kib in RUN_KIB:
        raws = [b"".join(key + block for key, block in run) for run in runs_of(nodes, kib * KIB)]
        total = sum(map(len, raws))
        for one in compressions():
            began = time.process_time()
            packed = [one.compress(raw) for raw in raws]
            middle = time.process_time()
            for data, raw in zip(packed, raws, strict=True):
                one.decompress(data, len(raw))
            ended = time.process_time()
            size = sum(map(len, packed))
            table.add_row(
                str(kib),
                one.name,
                f"{size / entries:.1f}",
                f"{size / total:.3f}",
                f"{total / (middle - began) / 1e6:.0f}",
                f"{(ended - middle) * 1000 / len(raws):.2f}",
            )
    return table


def measure_files(nodes: Nodes, directory: str | None) -> Table:
    """Measure write() and read() of cold files."""
    table = Table(
        "KiB of a run", "of the nodes", "write MB/s", "MB per CPU second", "read ms, median", "99 %"
    )
    total = sum(len(key) + len(block) for key, block in nodes)
    for kib in RUN_KIB:
        runs = runs_of(nodes, kib * KIB)
        with tempfile.TemporaryDirectory(dir=directory) as place:
            cold = ColdFiles(DiskDirectory(place), "cold", codec=ZstdCodec())
            began, cpu = time.perf_counter(), time.process_time()
            places = []
            for at in range(0, len(runs), WRITE_RUNS):
                places += cold.write(runs[at : at + WRITE_RUNS])
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
            chance = random.Random(1)
            waits = []
            for _ in range(READS):
                chosen = chance.choice(places)
                began = time.perf_counter()
                cold.read(chosen)
                waits.append((time.perf_counter() - began) * 1000)
            waits.sort()
            table.add_row(
                str(kib),
                f"{cold.totals().bytes / total:.3f}",
                f"{total / took / 1e6:.0f}",
                f"{total / cpu / 1e6:.0f}",
                f"{waits[len(waits) // 2]:.2f}",
                f"{waits[len(waits) * 99 // 100]:.2f}",
            )
            cold.close()
    return table


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=336_776, help="flights to use")
    parser.add_argument("--dir", help="where to write cold files; by default that of temporary files")
    options = parser.parse_args()
    console = Console(width=130)
    entries, nodes = flight_nodes(options.rows)
    size = sum(len(key) + len(block) for key, block in nodes)
    console.print(f"{entries} entries, {len(nodes)} nodes, {size / entries:.1f} bytes per entry")
    console.print(compare_codecs(entries, nodes))
    console.print(measure_files(nodes, options.dir))


if __name__ == "__main__":
    main()
