"""Checksums in the log: a flipped bit is found, at a start and by `headrace check`, and not loaded."""

import pathlib
import subprocess

import pytest
import redis

from headrace.persistence.aof.log import Log
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.aof.reader import LogReader, ReplayResult, checksum_line
from headrace.persistence.crc32c import crc32c
from headrace.persistence.damage import Damaged
from persistence.faults import FaultyFiles
from persistence.log_bench import INCR_1, NAMES, Bench, add, encoded, raw_content
from persistence.memory_source import MemorySource
from support.redis_programs import without_sanitizers
from support.redis_server import redis_server


def read(data: bytes, verify: bool = True) -> tuple[ReplayResult, list[bytes]]:
    words: list[bytes] = []
    reader = LogReader(
        MemorySource(data), "log", lambda record: words.append(record[1]), verify_checksums=verify
    )
    return reader.run(), words


def log_of(files: FaultyFiles, commits: int, checksums: bool = True) -> bytes:
    log = Log(files, NAMES, policy="no", checksums=checksums)
    log.start(Manifest.load(files, NAMES))
    if log.needs_rewrite:
        log.create(lambda file: None)
    for number in range(commits):
        log.commit(add(100 + number, 200 + number), 0)
    log.close(clean=True)
    return raw_content(files, INCR_1)


def test_each_commit_ends_in_its_checksum(files: FaultyFiles) -> None:
    data = log_of(files, 2)
    parts = data.split(b"#CRC:")
    assert parts[0] == b"" and parts[1].startswith(b"start\r\n") and len(parts) == 4
    first = parts[1].removeprefix(b"start\r\n")
    second = parts[2].partition(b"\r\n")[2]
    assert second == encoded(101, 201)
    assert data == b"#CRC:start\r\n" + first + line(first) + second + line(second)


def line(data: bytes) -> bytes:
    return checksum_line(crc32c(data))


def test_every_flipped_bit_is_found(files: FaultyFiles) -> None:
    data = log_of(files, 3)
    whole = read(data)[1]
    found = cut = 0
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            try:
                result, words = read(bytes(changed))
            except Damaged:
                found += 1
            else:  # the last line may be damaged itself: then the last commit has no checksum
                assert at >= len(data) - 15 - len(encoded(102, 202)) or words == whole, (at, bit)
                if at < len(data) - 15:
                    assert result.cut_within, "a changed value was loaded"
                cut += 1
    assert found > 8 * (len(data) - 100) and cut < 200


def test_damage_begins_at_the_commit_whose_checksum_is_wrong(files: FaultyFiles) -> None:
    data = log_of(files, 3)
    second = data.index(encoded(101))
    changed = data.replace(b"\r\n201\r\n", b"\r\n209\r\n")
    with pytest.raises(Damaged, match="do not have the checksum") as caught:
        read(changed)
    assert caught.value.offset == second
    assert read(changed, verify=False)[1].count(b"209") == 1


def test_a_wrong_length_is_no_torn_end_if_whole_commits_follow(files: FaultyFiles) -> None:
    data = log_of(files, 3)
    changed = data.replace(b"$3\r\n101", b"$9\r\n101").replace(b"$3\r\n100", b"$9999999\r\n100")
    with pytest.raises(Damaged, match="whole commits follow"):
        read(changed)
    torn = data[: data.index(encoded(102)) + 10]
    assert read(torn)[0].cut_within == "record"


def test_records_of_another_program_between_two_starts_are_accepted(files: FaultyFiles) -> None:
    before = log_of(files, 1)
    path = pathlib.Path(files.files.path(INCR_1))
    path.write_bytes(before + encoded(7))
    data = log_of(files, 1)
    assert data.count(b"#CRC:start") == 2
    assert read(data)[1] == [b"0", b"100", b"200", b"7", b"0", b"100", b"200"]


def test_checksums_can_be_turned_off_and_on(files: FaultyFiles) -> None:
    bench = Bench(files, policy="no")
    bench.start()
    for on in (True, False, True, True):
        bench.log.checksums = on
        bench.commit()
    bench.log.close(clean=True)
    data = raw_content(files, INCR_1)
    assert data.count(b"#CRC:start") == 2 and data.count(b"#CRC:") == 5
    assert read(data)[0].command_count == 5  # with its SELECT


def test_a_checksum_without_a_start_is_damage_that_begins_there() -> None:
    for start in (b"", b"#CRC:stard\r\n"):
        data = encoded(1) + start + encoded(2)
        reader = LogReader(MemorySource(data + line(encoded(2))), "log", lambda record: None)
        with pytest.raises(Damaged, match="whose beginning is unknown") as caught:
            reader.run()
        assert caught.value.offset == reader.result().valid_end == len(encoded(1) if start else data)


def test_redis_loads_and_checks_a_log_with_checksums(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "appendonlydir"
    directory.mkdir()
    records = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n%d\r\n"
    (directory / "appendonly.aof.1.incr.aof").write_bytes(
        b"#CRC:start\r\n" + records % 1 + line(records % 1) + records % 2 + line(records % 2)
    )
    manifest = directory / "appendonly.aof.manifest"
    manifest.write_bytes(b"file appendonly.aof.1.incr.aof seq 1 type i\n")
    checked = subprocess.run(
        ["redis-check-aof", manifest], capture_output=True, text=True, env=without_sanitizers()
    )
    assert checked.returncode == 0, checked.stdout
    with redis_server(tmp_path, "--appendonly", "yes") as port, redis.Redis(port=port) as client:
        assert client.get("k") == b"2"
