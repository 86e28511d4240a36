"""Writing the primitives of RDB; the result does not depend on where the buffer ends."""

import random

import pytest
import redis

from headrace.persistence.crc64 import crc64
from headrace.persistence.lzf import compress
from headrace.persistence.rdb.output import RdbOutput

BUFFER_BYTES = 1 << 16


def written(name, *arguments, compress=True):
    out = RdbOutput(None, compress)
    getattr(out, name)(*arguments)
    return out.take()


@pytest.mark.parametrize(
    ("n", "form"),
    [
        (0, "00"),
        (63, "3f"),
        (64, "4040"),
        (200, "40c8"),
        (16383, "7fff"),
        (16384, "8000004000"),
        (2**32 - 1, "80ffffffff"),
        (2**32, "810000000100000000"),
        (5_000_000_000, "81000000012a05f200"),
        (2**64 - 1, "81ffffffffffffffff"),
    ],
)
def test_a_length_takes_the_shortest_form(n, form):
    assert written("length", n).hex() == form


def test_ids_and_times_are_written():
    assert written("raw_id", 1, 2**64 - 1).hex() == "0000000000000001ffffffffffffffff"
    assert written("id", 5_000_000_000, 0).hex() == "81000000012a05f20000"
    assert written("time", 1_700_000_000_000).hex() == "0068e5cf8b010000"
    assert written("time", -1).hex() == "ffffffffffffffff"
    assert written("u16le", 12).hex() == "0c00"


def server_form(raw, value):
    """The string as it stands in the server's DUMP."""
    raw.set("k", value)
    return raw.dump("k")[1:-10]


def test_strings_have_the_form_that_the_server_gives_them(server_url):
    raw = redis.Redis.from_url(server_url)
    raw.config_set("rdbcompression", "yes")
    numbers = [0, 9, 127, 128, 32767, 32768, 70000, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63]
    values = [b"%d" % number for sign in (1, -1) for n in numbers for number in (sign * n, sign * (n + 1))]
    values += [b"", b"-", b"-0", b"01", b"+5", b" 5", b"5 ", b"1e3", b"x", b"12345678901", b"-2147483648"]
    values += [b"a" * n for n in (19, 20, 21, 24, 30, 63, 64, 16383, 16384)]
    values += [random.Random(n).randbytes(n) for n in (20, 21, 63, 64, 16383, 16384, 70000)]
    for value in values:
        assert written("string", value) == server_form(raw, value)
        assert written("string", bytearray(value)) == server_form(raw, value)


def test_without_compression_only_numbers_have_another_form():
    assert written("string", b"a" * 30, compress=False) == b"\x1e" + b"a" * 30
    assert written("string", b"12", compress=False) == b"\xc0\x0c"


def write_much(out, seed):
    """A random walk over all primitives, some of them longer than the buffer."""
    rng = random.Random(seed)
    for _ in range(80):
        kind = rng.randrange(7)
        if kind == 0:
            out.byte(rng.randrange(256))
        elif kind == 1:
            out.length(rng.randrange(1 << rng.choice([6, 14, 32, 64])))
        elif kind == 2:
            out.string(rng.randbytes(rng.randint(1, 30)) * rng.randint(1, 60))
        elif kind == 3:
            out.raw(rng.randbytes(rng.choice([1, 100, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1])))
        elif kind == 4:
            out.raw_id(rng.randrange(1 << 64), rng.randrange(1 << 64))
        elif kind == 5:
            out.time(rng.randrange(-(1 << 63), 1 << 63))
        else:
            out.string(b"%d" % rng.randrange(-(1 << 32), 1 << 32))


@pytest.mark.parametrize("seed", range(3))
def test_pieces_and_checksum_make_the_whole(seed):
    whole = RdbOutput(None, True)
    write_much(whole, seed)
    pieces = []
    out = RdbOutput(pieces.append, True)
    write_much(out, seed)
    assert out.offset() == whole.offset() == len(whole.take())
    assert out.crc() == whole.crc() == crc64(whole.take())
    out.flush()
    out.flush()
    assert out.crc() == whole.crc()
    assert b"".join(pieces) == whole.take()
    assert max(map(len, pieces)) <= BUFFER_BYTES
    assert len(pieces) > 3
    assert all(isinstance(piece, bytes) for piece in pieces)


def test_errors_of_the_sink_are_raised():
    def full(data):
        raise OSError(28, "No space left on device")

    out = RdbOutput(full, True)
    with pytest.raises(OSError, match="No space left"):
        out.raw(bytes(BUFFER_BYTES + 1))


def test_a_compression_does_not_depend_on_earlier_ones():
    rng = random.Random(6)
    words = [rng.randbytes(4) for _ in range(20)]
    out = RdbOutput(None, True)
    expected = b""
    for _ in range(200):
        value = b"".join(rng.choices(words, k=rng.randint(6, 200)))
        alone = compress(value)
        out.string(value)
        one = RdbOutput(None, False)
        if alone is None:
            one.string(value)
        else:
            one.byte(0xC3)
            one.length(len(alone))
            one.length(len(value))
            one.raw(alone)
        expected += one.take()
    assert out.take() == expected
