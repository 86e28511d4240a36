"""Reading the primitives of RDB, in pieces of any size, and from wrong bytes."""

import io
import random
import tracemalloc

import pytest

from headrace.persistence import lzf
from headrace.persistence.crc64 import crc64
from headrace.persistence.damage import Damaged
from headrace.persistence.rdb.input import RdbInput

U64_MAX = 2**64 - 1
PACKED = bytes.fromhex("01 6161 e01100 01 6161")  # thirty times "a"


def of(data, **options):
    return RdbInput(io.BytesIO(data).read, **options)


def in_pieces(data, rng, most=7):
    """A read() that gives a few bytes, whatever is asked for."""
    source = io.BytesIO(data)
    return lambda n: source.read(min(n, rng.randint(1, most)))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0),
        ("3f", 63),
        ("4040", 64),
        ("7fff", 16383),
        ("4000", 0),  # longer than it need be, which servers read too
        ("8000004000", 16384),
        ("80ffffffff", 2**32 - 1),
        ("810000000100000000", 2**32),
        ("81ffffffffffffffff", U64_MAX),
    ],
)
def test_lengths(data, value):
    inp = of(bytes.fromhex(data))
    assert inp.length() == value
    assert inp.offset() == len(data) // 2


@pytest.mark.parametrize("data", ["c0", "c3", "ff", "82", "bf", "", "40", "80000000", "8100000000000000"])
def test_invalid_lengths_are_rejected(data):
    with pytest.raises(Damaged):
        of(bytes.fromhex(data)).length()


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", b""),
        ("03616263", b"abc"),
        ("c00c", b"12"),
        ("c0ff", b"-1"),
        ("c07f", b"127"),
        ("c080", b"-128"),
        ("c17fff", b"-129"),
        ("c10080", b"-32768"),
        ("c1ff7f", b"32767"),
        ("c270110100", b"70000"),
        ("c2ffffff7f", b"2147483647"),
        ("c200000080", b"-2147483648"),
        ("c2ffffffff", b"-1"),
        ("c3091e" + PACKED.hex(), b"a" * 30),
    ],
)
def test_strings(data, value):
    inp = of(bytes.fromhex(data) + b"next")
    assert inp.string() == value
    assert inp.take_buffered() == b"next"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("c4", "encoding 4"),
        ("ff", "encoding 63"),
        ("c3091d" + PACKED.hex(), "compressed"),  # a size that is not that of the text
        ("c3091f" + PACKED.hex(), "compressed"),
        ("c30981ffffffffffffffff" + PACKED.hex(), "cannot expand to"),
        ("c3 01 40ff 00", "cannot expand to"),
        ("81 0000000100000000", "4294967296 bytes"),
        ("03 6162", "ends here"),
        ("c0", "ends here"),
        ("c2 000000", "ends here"),
    ],
)
def test_invalid_strings_are_rejected(data, what):
    with pytest.raises(Damaged, match=what):
        of(bytes.fromhex(data)).string()


def test_times_and_ids():
    inp = of((-5).to_bytes(8, "little", signed=True) + (7).to_bytes(8, "big") + b"\xff" * 8 + b"\x05\x40\x40")
    assert inp.time() == -5
    inp.raw_id()
    assert (inp.ms, inp.seq) == (7, U64_MAX)
    inp.id()
    assert (inp.ms, inp.seq) == (5, 64)


def test_a_wrong_length_allocates_no_memory():
    claims = [
        b"\x80\xff\xff\xff\xff" + b"x" * 1000,
        b"\xc3\x80\x10\x00\x00\x00\x80\xff\xff\xff\xff" + b"x" * 1000,
    ]
    for data in claims:
        tracemalloc.start()
        with pytest.raises(Damaged):
            of(data).string()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 << 20


def take_all(inp, kinds):
    found = []
    for kind in kinds:
        value = getattr(inp, kind)()
        found.append((value, inp.ms, inp.seq, inp.offset()))
    return found


def written(rng, n):
    """Primitives at random: their kinds, and their bytes."""
    kinds, data = [], b""
    for _ in range(n):
        kind = rng.choice(["byte", "length", "time", "raw_id", "id", "string", "u32"])
        if kind == "string":
            text = rng.choice([b"", b"some text ", bytes(rng.randbytes(40))]) * rng.choice([1, 30, 300])
            packed = lzf.compress(text)
            if packed is not None and rng.random() < 0.5:
                data += b"\xc3" + length(len(packed)) + length(len(text)) + packed
            else:
                data += length(len(text)) + text
        else:
            sizes = {"byte": 1, "time": 8, "raw_id": 16, "u32": 4}
            many = {"length": 1, "id": 2}.get(kind, 0)
            data += b"".join(length(rng.getrandbits(rng.choice([5, 13, 31, 63]))) for _ in range(many))
            data += rng.randbytes(sizes.get(kind, 0))
        kinds.append(kind)
    return kinds, data


def length(n):
    if n < 64:
        return bytes([n])
    if n < 16384:
        return (n | 0x4000).to_bytes(2, "big")
    return b"\x80" + n.to_bytes(4, "big") if n < 2**32 else b"\x81" + n.to_bytes(8, "big")


@pytest.mark.parametrize("seed", range(6))
def test_the_result_does_not_depend_on_the_size_of_reads(seed):
    rng = random.Random(seed)
    kinds, data = written(rng, 80)
    whole = of(data)
    found = take_all(whole, kinds)
    assert found[-1][-1] == len(data)
    assert whole.checksum() == crc64(data)
    pieces = RdbInput(in_pieces(data, rng))
    assert take_all(pieces, kinds) == found
    assert pieces.checksum() == crc64(data)


def test_the_checksum_covers_the_consumed_bytes():
    rng = random.Random(3)
    kinds, data = written(rng, 40)
    inp = RdbInput(in_pieces(data, rng, 100))
    for kind in kinds:
        getattr(inp, kind)()
        assert inp.checksum() == crc64(data[: inp.offset()])


@pytest.mark.parametrize("seed", range(3))
def test_truncated_input_is_damaged_at_its_end(seed):
    rng = random.Random(seed)
    kinds, data = written(rng, 12)
    cuts = range(len(data)) if len(data) < 300 else rng.sample(range(len(data)), 300)
    for cut in cuts:
        with pytest.raises(Damaged) as caught:
            take_all(of(data[:cut]), kinds)
        assert caught.value.offset == cut
        assert "ends here" in caught.value.what


def test_long_strings_are_read_in_steps_with_progress():
    text = random.Random(1).randbytes(5 << 20)
    told = []
    inp = of(length(len(text)) + text + b"\x07", checksum=False, progress=told.append)
    assert inp.string() == text
    assert inp.byte() == 7
    assert told == sorted(set(told))
    assert 3 <= len(told) <= 5
    assert told[-1] <= inp.offset()


def test_the_remaining_bytes_can_be_read():
    source = io.BytesIO(b"\x05" + b"a" * (1 << 19))
    inp = RdbInput(source.read)
    inp.byte()
    left = inp.take_buffered()
    assert left + source.read() == b"a" * (1 << 19)
    assert (inp.offset(), inp.remainder()) == (1 + len(left), b"")
    assert of(b"\x05" + b"b" * (1 << 19)).remainder() == b"\x05" + b"b" * (1 << 19)
