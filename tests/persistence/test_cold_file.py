"""The bytes of cold files: what was packed is unpacked, and damaged bytes are rejected."""

import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from headrace.persistence.cold import cold_file
from headrace.persistence.cold.codec import (
    CODECS,
    ZLIB_RATIO_MAX,
    ZSTD_RATIO_MAX,
    CodecError,
    MissingCodec,
    ZlibCodec,
    ZstdCodec,
)
from headrace.persistence.cold.cold_file import DamagedBytes, IndexEntry, pack_run, unpack_run
from persistence.cold_runs import block, key, nodes, random_run

BOTH = pytest.mark.parametrize("codec", [ZlibCodec(), ZstdCodec()], ids=["zlib", "zstd"])
RUNS = st.lists(
    st.tuples(st.integers(1, 2**64 - 1), st.binary(max_size=200)),
    min_size=1,
    max_size=9,
    unique_by=lambda n: n[0],
).map(lambda found: [(key(ms), block(contents)) for ms, contents in sorted(found)])


def sealed(data: bytes) -> bytes:
    """Return a run with the right checksum."""
    return data[:-8] + struct.pack(">Q", xxh3_64_intdigest(data[:-8]))


def unpack(data: bytes) -> object:
    return unpack_run(data, int.from_bytes(data[-8:], "big"))


@BOTH
@given(run=RUNS)
def test_an_unpacked_run_has_the_keys_and_blocks_that_were_packed(codec, run) -> None:
    packed = pack_run(run, codec)
    found = unpack_run(packed.data, packed.checksum)
    assert found == run
    assert all(type(data) is bytearray for _, data in found)
    assert cold_file.stated_run_size(packed.data) == len(packed.data)


@BOTH
def test_every_changed_byte_and_every_cut_of_a_run_is_found(codec) -> None:
    packed = pack_run(random_run(Random(1)), codec)
    for at in range(len(packed.data)):
        changed = bytearray(packed.data)
        changed[at] ^= 1 << at % 8
        with pytest.raises(DamagedBytes):
            unpack_run(bytes(changed), packed.checksum)
        with pytest.raises(DamagedBytes):
            unpack_run(packed.data[:at], packed.checksum)
    with pytest.raises(DamagedBytes, match="another run"):
        unpack_run(packed.data, packed.checksum ^ 1)


@BOTH
@given(at=st.integers(0, 60), mask=st.integers(1, 255))
def test_a_changed_byte_with_the_right_checksum_is_found_or_harmless(codec, at: int, mask: int) -> None:
    run = nodes([b"abc" * 20, b"", b"x"])
    changed = bytearray(pack_run(run, codec).data)
    changed[at] ^= mask
    try:
        found = unpack(sealed(bytes(changed)))
    except DamagedBytes:
        return
    assert isinstance(found, list) and [name for name, _ in found] == sorted({name for name, _ in found})


def raw_run(raw: bytes, count: int, raw_size: int | None = None) -> bytes:
    """Return a sealed run of these raw bytes."""
    packed = ZlibCodec().compress(raw)
    size = len(raw) if raw_size is None else raw_size
    head = cold_file.RUN_HEADER_STRUCT.pack(cold_file.RUN_TAG, ZlibCodec.number, count, size, len(packed))
    return sealed(head + packed + bytes(8))


def test_the_sizes_and_keys_of_a_run_are_checked() -> None:
    one = block(b"")
    good = key(1) + key(2) + struct.pack(">II", 7, 7) + one + one
    assert unpack(raw_run(good, 2)) == [(key(1), one), (key(2), one)]
    for raw, count, what in [
        (good, 0, "cannot be 0 nodes"),
        (good, 1 << 31, "cannot be 2147483648 nodes"),
        (good, 1, "do not add up"),
        (good + b"\xff", 2, "do not add up"),
        (key(2) + key(2) + good[32:], 2, "do not ascend"),
        (key(2) + key(1) + good[32:], 2, "do not ascend"),
        (good[:32] + struct.pack(">II", 0, 14) + good[40:], 2, "node 1 of 2 is not a listpack of 0 bytes"),
        (good[:-1] + b"\0", 2, "node 2 of 2 is not a listpack of 7 bytes"),
        (good[:40] + b"\x08" + good[41:], 2, "node 1 of 2 is not a listpack"),
    ]:
        with pytest.raises(DamagedBytes, match=what):
            unpack(raw_run(raw, count))
    with pytest.raises(DamagedBytes, match="does not stand for 55 bytes"):
        unpack(raw_run(good, 2, len(good) + 1))
    with pytest.raises(DamagedBytes, match="cannot be 2 nodes of"):
        unpack(raw_run(good, 2, 1 << 40))


@BOTH
def test_no_codec_allocates_or_returns_more_than_stated(codec) -> None:
    packed = memoryview(codec.compress(bytes(100_000)))
    assert codec.decompress(packed, 100_000) == bytes(100_000)
    for size in (0, 1, 99_999, 100_001, 1 << 50):
        with pytest.raises(CodecError):
            codec.decompress(packed, size)
    for damaged in (packed[:-1], bytes(packed) + b"x", packed[1:], b"", bytes(9)):
        with pytest.raises(CodecError):
            codec.decompress(memoryview(damaged), 100_000)


@BOTH
def test_no_data_compress_better_than_the_codec_states(codec) -> None:
    assert codec.ratio_max == {1: ZLIB_RATIO_MAX, 2: ZSTD_RATIO_MAX}[codec.number]
    run = nodes([bytes(16 << 20)])
    packed = pack_run(run, codec)
    assert unpack_run(packed.data, packed.checksum) == run


def test_an_unknown_codec_is_named_and_a_missing_one_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = bytearray(pack_run(nodes([b""]), ZlibCodec()).data)
    data[4] = 9
    with pytest.raises(DamagedBytes, match="codec 9 is unknown"):
        unpack(sealed(bytes(data)))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(MissingCodec, match=r"pip install 'headrace\[cold\]'"):
        ZstdCodec()


def test_runs_are_compressed_by_zlib_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CODECS.preferred().number == ZstdCodec.number
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert CODECS.preferred().number == ZlibCodec.number


def test_only_names_that_are_written_are_names_of_cold_files() -> None:
    assert cold_file.file_number(cold_file.file_name(12)) == 12
    for name in (
        "",
        ".cold",
        "0.cold",
        "01.cold",
        "-1.cold",
        "1.COLD",
        "x1.cold",
        "../1.cold",
        "1",
        "¹.cold",
    ):
        assert cold_file.file_number(name) == 0, name
    assert cold_file.file_number("9" * 5000 + ".cold") == 0


def test_a_header_of_another_file_or_version_is_rejected() -> None:
    data = cold_file.header(7)
    cold_file.check_header(data + b"more", 7)
    for at in range(len(data)):
        with pytest.raises(DamagedBytes):
            cold_file.check_header(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], 7)
        with pytest.raises(DamagedBytes):
            cold_file.check_header(data[:at], 7)
    with pytest.raises(DamagedBytes, match="number 7, not 8"):
        cold_file.check_header(data, 8)
    with pytest.raises(DamagedBytes, match="format 2 is unknown"):
        cold_file.check_header(data[:13] + b"\2" + data[14:], 7)


def test_an_index_is_found_by_its_footer() -> None:
    entries = [IndexEntry(32, 100, 5), IndexEntry(132, 50, 2**64 - 1)]
    data = cold_file.index_and_footer(entries, 182)
    assert len(data) == cold_file.index_size(2)
    size = 182 + len(data)
    footer = data[-cold_file.FOOTER_BYTES :]
    assert cold_file.index_offset(footer, size) == 182
    assert cold_file.parse_index(data) == entries
    assert cold_file.index_offset(footer[:-1] + b"?", size) is None
    assert cold_file.index_offset(b"", 0) is None
    for wrong in (size - 1, size + 1, 0):
        with pytest.raises(DamagedBytes, match="does not fit"):
            cold_file.index_offset(footer, wrong)
    for at in range(len(data) - 8):
        with pytest.raises(DamagedBytes, match="checksum of the index"):
            cold_file.parse_index(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
