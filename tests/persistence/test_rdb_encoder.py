"""The deferred form of RdbOutput and RdbEncoder together write the same bytes as the direct form."""

import os
import random
import sys
import threading

import pytest

from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.rdb import output
from headrace.persistence.rdb.encoder import RdbEncoder
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.stream_writer import write_stream
from support.random_streams import random_stream

NOW_MS = 1_700_000_000_000
COMPILED = "HEADRACE_COMPILED" in os.environ
PIECE_BYTES = 1 << 20 if COMPILED else 1 << 15
MARKED_MAX = PIECE_BYTES - 8


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    """Have the interpreter write short pieces, which take less time; a C constant cannot be changed."""
    if not COMPILED:
        monkeypatch.setattr(output, "PIECE_BYTES", PIECE_BYTES)
        monkeypatch.setattr(output, "MARKED_MAX", MARKED_MAX)


def both_forms(write, compress=True, checksum=True):
    """What write(out) writes in direct and in deferred form; the sizes of the pieces."""
    direct = []
    out = RdbOutput(direct.append, compress)
    write(out)
    out.write_trailer(checksum)
    encoder, sizes, encoded = RdbEncoder(), [], []

    def encode(piece):
        sizes.append(len(piece))
        encoded.append(bytes(encoder.encode(piece)))

    deferred = RdbOutput(encode, compress, deferred=True)
    write(deferred)
    deferred.write_trailer(checksum)
    whole = b"".join(encoded)
    assert encoder.size == len(whole) == out.offset()
    assert deferred.offset() == sum(sizes)
    assert whole[-8:] == (encoder.crc.to_bytes(8, "little") if checksum else bytes(8))
    return b"".join(direct), whole, sizes


def random_string(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return b"%d" % rng.randrange(-(1 << 40), 1 << 40)
    if kind == 1:
        return rng.randbytes(rng.choice([0, 1, 19, 20, 21, 22, 24, 63, 64, 70, 3000]))
    return rng.randbytes(rng.randint(1, 30)) * rng.randint(1, 200)


def write_much(out, seed):
    """Primitives in random order, with long runs of bytes between them: pieces end in all of them."""
    rng = random.Random(seed)
    for _ in range(150):
        kind = rng.randrange(8)
        if kind == 0:
            out.raw(bytes(rng.randrange(PIECE_BYTES // 4)))
        elif kind == 1:
            out.length(rng.randrange(1 << rng.choice([6, 14, 32, 64])))
        elif kind == 2:
            out.raw_id(rng.randrange(1 << 64), rng.randrange(1 << 64))
        elif kind == 3:
            out.byte(rng.randrange(256))
        elif kind == 4:
            out.string(bytearray(random_string(rng)))
        else:
            out.string(random_string(rng))


@pytest.mark.parametrize("seed", range(40 if COMPILED else 4))
@pytest.mark.parametrize("compress", [True, False])
def test_random_primitives_give_the_same_bytes_in_both_forms(seed, compress):
    direct, whole, _ = both_forms(lambda out: write_much(out, seed), compress, checksum=seed % 2 == 0)
    assert direct == whole


def test_random_streams_give_the_same_bytes_in_both_forms():
    rng = random.Random(5)
    keyspace = Keyspace()
    streams = [random_stream(rng, keyspace, NOW_MS) for _ in range(200 if COMPILED else 25)]

    def write(out):
        for stream in streams:
            write_stream(out, stream, 21, NOW_MS)

    direct, whole, _ = both_forms(write)
    assert direct == whole


@pytest.mark.parametrize("free", [0, 1, 7, 8, 9, 499, 500, 507, 508, 509])
def test_a_string_that_does_not_fit_starts_the_next_piece(free):
    def write(out):
        out.raw(bytes(PIECE_BYTES - free))
        out.string(b"ab" * 250)
        out.string(b"cd" * 250)

    direct, whole, sizes = both_forms(write)
    assert direct == whole
    assert sizes == ([PIECE_BYTES - free + 500, 500] if free >= 508 else [PIECE_BYTES - free, 1000])


@pytest.mark.parametrize(
    ("size", "compress", "kind"),
    [
        (MARKED_MAX, True, bytes),
        (MARKED_MAX + 1, True, bytes),
        (MARKED_MAX + 1, True, bytearray),
        (MARKED_MAX + 1, False, bytes),
        (2 * PIECE_BYTES, True, bytes),
        (2 * PIECE_BYTES, False, bytearray),
    ],
)
def test_long_strings_give_the_same_bytes_in_both_forms(size, compress, kind):
    value = kind(b"0123456789" * (size // 10 + 1))[:size]

    def write(out):
        out.byte(1)
        out.string(value)
        out.byte(2)

    direct, whole, sizes = both_forms(write, compress)
    assert direct == whole
    assert (size in sizes) == (compress or kind is bytes)
    assert max(sizes) <= max(PIECE_BYTES, size)


def test_a_long_string_that_does_not_compress_is_stored():
    value = random.Random(1).randbytes(MARKED_MAX + 1)
    direct, whole, sizes = both_forms(lambda out: out.string(value))
    assert direct == whole
    assert sizes == [len(value), 0]


def test_an_empty_file_has_only_a_trailer():
    direct, whole, _ = both_forms(lambda out: None)
    assert direct == whole == bytes(8)


def test_the_deferred_form_needs_a_sink_and_has_no_checksum():
    with pytest.raises(AssertionError, match="needs a sink"):
        RdbOutput(None, deferred=True)
    with pytest.raises(AssertionError, match="encoder computes the CRC"):
        RdbOutput(lambda piece: None, deferred=True).crc()


def test_errors_of_the_sink_are_raised_in_deferred_form():
    def full(piece):
        raise OSError(28, "No space left on device")

    for write in (lambda out: out.raw(bytes(PIECE_BYTES + 1)), lambda out: out.string(bytes(PIECE_BYTES))):
        out = RdbOutput(full, deferred=True)
        with pytest.raises(OSError, match="No space left"):
            write(out)


@pytest.mark.skipif(not COMPILED, reason="only compiled code can release the GIL")
def test_other_threads_run_while_a_piece_is_encoded():
    pieces = []
    RdbOutput(pieces.append, deferred=True).string(bytes(range(256)) * (1 << 15))

    def ran_meanwhile():
        begun, ended = threading.Event(), threading.Event()

        def work():
            begun.set()
            RdbEncoder().encode(pieces[0])
            ended.set()

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        seen = not ended.is_set()
        thread.join()
        return seen

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # then a thread loses the GIL only if it releases it
    try:
        assert any(ran_meanwhile() for _ in range(50))
    finally:
        sys.setswitchinterval(interval)
