"""LZF: the same bytes as Redis in both directions; damaged bytes are rejected."""

import contextlib
import random

import pytest

from headrace.persistence.lzf import compress, decompress


def by_the_book(data):
    """The packed bytes as the format's description has them, slowly; None: stored as it is.

    A fresh dictionary for each string, items as a list, and lengths filled in afterwards.
    """
    size, items, run, latest, place = len(data), [], b"", {}, 0
    limit = size - 4

    def slot(at):
        first, second = data[at] << 8 | data[at + 1], data[at + 1] << 8 | data[at + 2]
        return (first - 5 * second) % 65536

    def literal(byte):
        nonlocal run
        run += bytes([byte])
        if len(run) == 32:
            close()

    def close():
        nonlocal run
        if run:
            items.append(bytes([len(run) - 1]) + run)
            run = b""

    def packed():
        """Bytes so far, with one that is set aside for the length of the open run."""
        return sum(map(len, items)) + 1 + len(run)

    while size - place >= 3:
        before = latest.get(slot(place), 0)
        latest[slot(place)] = place
        if not before or place - before > 8192 or data[before : before + 3] != data[place : place + 3]:
            if packed() >= limit:
                return None
            literal(data[place])
            place += 1
            continue
        if packed() - (not run) + 4 >= limit:
            return None
        close()
        most = min(264, size - place - 2)
        most = max(most, 19) if most > 16 else max(most, 3)
        length = 3
        while length < most and data[before + length] == data[place + length]:
            length += 1
        back = place - before - 1
        if length <= 8:
            items.append(bytes([(length - 2) * 32 + back // 256, back % 256]))
        else:
            items.append(bytes([7 * 32 + back // 256, length - 9, back % 256]))
        place += length
        if size - place >= 3:
            latest[slot(place - 2)], latest[slot(place - 1)] = place - 2, place - 1
    if packed() + 3 > limit:
        return None
    for byte in data[place:]:
        literal(byte)
    close()
    return b"".join(items)


def strings(seed, count, longest):
    """Strings of every kind of repetition, most of them worth packing."""
    rng = random.Random(seed)
    for _ in range(count):
        size = rng.choice([rng.randint(0, 40), rng.randint(20, 400), rng.randint(20, longest)])
        alphabet = rng.randbytes(rng.choice([1, 2, 3, 5, 20, 256]))
        made = bytearray()
        while len(made) < size:
            if made and rng.random() < 0.6:
                start = rng.randrange(len(made))
                for i in range(rng.choice([3, 5, 9, 20, 270])):  # may run into what it copies
                    made.append(made[start + i])
            else:
                made += bytes(rng.choices(alphabet, k=rng.randint(1, 60)))
        yield bytes(made[:size])


def test_strings_are_compressed_as_the_format_defines():
    packed = 0
    for data in strings(1, 400, 3000):
        ours = compress(data)
        assert ours == by_the_book(data)
        if ours is not None:
            packed += 1
            assert len(ours) <= len(data) - 4
            assert decompress(ours, len(data)) == data
    assert packed > 200


def test_copies_reach_back_up_to_the_maximum_distance():
    rng = random.Random(2)
    for distance in (8190, 8191, 8192, 8193, 8194):
        data = b"x" + b"mark" + rng.randbytes(distance - 4) + b"mark" + b"." * 300
        ours = compress(data)
        assert ours == by_the_book(data)
        assert decompress(ours, len(data)) == data


def test_copies_near_the_end_stop_where_those_of_redis_do():
    for size in range(15, 60):
        for head in (b"ab", b"abc"):
            data = head * 10 + head * size
            for end in range(len(data) - 25, len(data)):
                assert compress(data[:end]) == by_the_book(data[:end])


def test_a_real_server_compresses_to_the_same_bytes(client, server_url):
    import redis

    raw = redis.Redis.from_url(server_url)
    raw.config_set("rdbcompression", "yes")
    values = [data for data in strings(3, 300, 20_000) if len(data) > 20]
    for data in values:
        raw.set("k", data)
        stored = raw.dump("k")
        ours = compress(data)
        if ours is None:
            assert stored[1] & 0xC0 != 0xC0
            assert stored[:-10].endswith(data)
        else:
            assert stored[1] == 0xC3
            assert stored[:-10].endswith(ours)


def test_a_copy_may_overlap_its_own_output():
    assert decompress(bytes.fromhex("016161e01100016161"), 30) == b"a" * 30


@pytest.mark.parametrize(
    ("packed", "size"),
    [
        ("016161e01100016161", 29),
        ("016161e01100016161", 31),
        ("016161e011000161", 30),  # a run that is cut
        ("016161e011", 30),  # a copy that is cut
        ("016161e0", 30),
        ("016161e01103016161", 30),  # a copy from before the start
        ("2000", 3),  # with nothing to copy from
        ("", 1),
        ("00", 1),
        ("0061", 1 << 40),
        ("0061", -1),
    ],
)
def test_damaged_bytes_are_refused(packed, size):
    with pytest.raises(ValueError):
        decompress(bytes.fromhex(packed), size)


def test_damaged_bytes_never_cause_access_out_of_bounds():
    rng = random.Random(4)
    for data in strings(5, 60, 400):
        packed = compress(data)
        if packed is None:
            continue
        for _ in range(30):
            broken = bytearray(packed)
            for _ in range(rng.randint(1, 3)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            with contextlib.suppress(ValueError):
                assert len(decompress(bytes(broken), len(data))) == len(data)
