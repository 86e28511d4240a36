"""The encoder of nodes against the decoder of replies: the same buffers, byte for byte, or the same error."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from arrow.arrow_message import columns
from headrace.arrow import column_types
from headrace.arrow.malformed import MODES, MalformedEntry
from headrace.commands.session import Session
from headrace.engine.engine import Engine
from headrace.spark.decode.arrow_decoder import ArrowDecoder
from headrace.spark.decode.page_tokenizer import ReplyPageTokenizer
from headrace.spark.source.arrow_reader import parse_header

ROUNDS = 300 if "HEADRACE_COMPILED" in os.environ else 40
NAMES = [b"a", b"*", b"c", b"12", b"-7", b"", b"a name of more than a few letters", b"\xff\x01", b"n" * 70]
VALUES = [
    b"",
    b"0",
    b"1",
    b"-1",
    b"127",
    b"128",
    b"-4096",
    b"-4097",
    b"4096",
    b"32768",
    b"-8388609",
    b"2147483648",
]
VALUES += [b"007", b"+5", b"-0", b"9007199254740993", b"9223372036854775807", b"-9223372036854775808"]
VALUES += [b"9223372036854775808", b"9223372036854775", b"9223372036854776", b"1e3", b"21.5", b"-.25", b"nan"]
VALUES += [
    b"0.12345678901234567",
    b" 1",
    b"TRUE",
    b"no",
    b"maybe",
    "grüße 漢字".encode(),
    b"\xed\xa0\x80",
    b"\xff",
]
VALUES += [b"x" * 63, b"x" * 64, b"y" * 4095, b"z" * 4096, b"w\xc3" * 3000, b'"\\\n']
TEXTS = ("ID", "CORRUPT", "UTF8", "BINARY")
FIELD_TYPES = [
    word
    for word, (kind, _) in column_types.KIND_SETTINGS_BY_TYPE.items()
    if kind not in column_types.ENTRY_KINDS
]
ENTRY_TYPES = [["ID"], ["TIMESTAMP"], ["SEQUENCE"], ["CORRUPT"], ["FIELDS", "BINARYVALUES", "BINARYFIELDS"]]


class Server:
    """An engine that is spoken to."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.session: Session = self.engine.create_session()

    def __call__(self, *words: str | bytes | int) -> bytes:
        argv = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.engine.execute(self.session, argv, 1000)
        return self.session.reply.take()


def random_stream(server: Server, rng: random.Random) -> list[str]:
    """A stream whose entries mostly, but not always, have the fields of those before; its IDs."""
    server.engine.keyspace.settings.stream_node_max_entries = rng.choice([1, 2, 5, 100])
    usual = [rng.choice(NAMES) for _ in range(rng.randrange(1, 5))]
    ids = []
    ms, seq = rng.choice([0, 0, 998, 1_700_000_000_000, 2**64 - 60, 2**63 // 1000 - 5]), 0
    for _ in range(rng.choice([1, 3, 30, 30])):
        ms, seq = (
            (ms, seq + rng.choice([1, 2**62])) if rng.random() < 0.5 else (ms + rng.choice([1, 2, 999]), 0)
        )
        if not 0 < (ms << 64 | seq) < 1 << 128 or ms >= 1 << 64 or seq >= 1 << 64:
            break
        if rng.random() < 0.2:
            usual = [rng.choice(NAMES) for _ in range(rng.choice([1, 2, 3, 20, 40]))]
        server("XADD", "s", f"{ms}-{seq}", *(w for name in usual for w in (name, rng.choice(VALUES))))
        ids.append(f"{ms}-{seq}")
    for entry_id in rng.sample(ids, len(ids) // 4):
        server("XDEL", "s", entry_id)
    return ids


def random_columns(rng: random.Random) -> list[bytes]:
    """name, type, name, type ..."""
    words = [(b"*", rng.choice(group)) for group in rng.sample(ENTRY_TYPES, rng.randrange(5))]
    names = [name for name in NAMES if b"\xff" not in name] + [b"%d" % n for n in range(rng.choice([0, 30]))]
    for name in rng.sample(sorted(set(names)), rng.randrange(len(set(names)))):
        words.append((name, rng.choice(FIELD_TYPES)))
    rng.shuffle(words)
    strict = rng.random() < 0.3
    return [w for name, word in words for w in (name, word.encode() + b"!" * (strict and rng.random() < 0.3))]


def decoded(reply: bytes, words: list[bytes], mode: str) -> Any:
    """(rows, columns, dropped, misfits of each column) and the error of the client's way."""
    scanner = ReplyPageTokenizer()
    decoder = ArrowDecoder(scanner, column_types.parse_columns(words), "s", mode)
    scanner.begin_page(b"")
    scanner.feed(bytearray(reply), len(reply))
    assert scanner.scan()
    try:
        assert decoder.decode(1 << 30, 1 << 40)
    except MalformedEntry as error_text:
        return None, str(error_text)
    rows, found = decoder.take()
    misfits = decoder.misfit_counts() if mode == "PERMISSIVE" and any(decoder.misfit_counts()) else []
    return (rows, found, decoder.dropped_entries, misfits), ""


def encoded(reply: bytes, words: list[bytes]) -> Any:
    """The same of the server's way."""
    if reply.startswith(b"-"):
        assert reply.startswith(b"-MALFORMED ")
        return None, reply[11:-2].decode()
    head = parse_header(reply)
    assert head is not None
    message = reply[head.message_offset + 4 :]
    forms = ["map" if w.startswith((b"FIELDS", b"BINARYF", b"BINARYV")) else "other" for w in words[1::2]]
    forms = [
        "text" if w.rstrip(b"!").decode() in TEXTS else f for w, f in zip(words[1::2], forms, strict=True)
    ]
    many, found = columns(b"\xff\xff\xff\xff" + message[:-2], forms)
    assert many == head.row_count
    return (head.row_count, found, head.dropped_entries, head.misfit_counts), ""


def plain(result: Any) -> Any:
    """Without the offsets that the decoder keeps for numbers, too."""
    if result is None:
        return None
    rows, found, *counts = result
    return rows, [(n, v and bytes(v), o and bytes(o), bytes(x)) for n, v, o, x in found], counts


@pytest.mark.parametrize("block", range(4))
def test_encoder_and_decoder_make_the_same_buffers(block: int) -> None:
    for seed in range(block * ROUNDS // 4, (block + 1) * ROUNDS // 4):
        rng = random.Random(seed)
        server = Server()
        random_stream(server, rng)
        reply = server("XRANGE", "s", "-", "+")
        for _ in range(4):
            words = random_columns(rng)
            for mode in MODES:
                ours = server("XARROW", "s", "-", "+", "MODE", mode, "COLUMNS", len(words) // 2, *words)
                theirs, error = decoded(reply, words, mode)
                if theirs is not None:
                    for i, word in enumerate(words[1::2]):
                        kind = column_types.KIND_SETTINGS_BY_TYPE[word.rstrip(b"!").decode()][0]
                        if kind not in ("id", "text", "binary", "corrupt", "fields"):
                            nulls, validity, _, values = theirs[1][i]
                            theirs[1][i] = (nulls, validity, None, values)
                mine, error_text = encoded(ours, words)
                assert (plain(mine), error_text) == (plain(theirs), error), (seed, words, mode)


@pytest.mark.parametrize("seed", range(10))
def test_batches_of_any_count_add_up_to_the_range(seed: int) -> None:
    rng = random.Random(seed)
    server = Server()
    random_stream(server, rng)
    whole = server("XARROW", "s", "-", "+", "MODE", "DROPMALFORMED", "COLUMNS", 2, "a", "BINARY", "*", "ID")
    [(_, _, _, expected)] = columns(message_of(whole), ["text", "text"])[1][1:]
    start, found = "-", b""
    while True:
        reply = server(
            *("XARROW", "s", start, "+", "COUNT", rng.randrange(1, 9), "MODE", "DROPMALFORMED"),
            *("COLUMNS", 2, "a", "BINARY", "*", "ID"),
        )
        found += columns(message_of(reply), ["text", "text"])[1][1][3]
        head = reply.split(b"\r\n", 5)
        if head[1] == b"$-1" or head[4] == b":0":
            break
        start = "(" + head[2].decode()
    assert found == expected and found


FAULTS = [b"x", b"\xff", b"1.5", b"99999999999999999999", b""]
ALIKE = {
    "typed": ["n", "INT64", "r", "FLOAT64", "t", "UTF8", "*", "ID", "*", "TIMESTAMP", "*", "SEQUENCE"],
    "map": ["*", "FIELDS", "*", "ID", "*", "CORRUPT"],
    "bytes": ["*", "BINARYFIELDS", "t", "BINARY", "missing", "INT32", "n", "INT8", "r", "FLOAT32"],
    "values": ["*", "BINARYVALUES", "n", "INT16"],
    "few": ["t", "UTF8", "n", "EPOCH_MS"],
}


def alike_stream(server: Server, rng: random.Random, count: int) -> list[str]:
    """Entries with the same fields; few are deleted, or have a value of another type, or a field more."""
    server.engine.keyspace.settings.stream_node_max_entries = rng.choice([7, 100, 3000])
    server.engine.keyspace.settings.stream_node_max_bytes = 0
    ids, ms = [], 1_700_000_000_000
    for n in range(count):
        ms += rng.choice([0, 0, 1, 1000, 10**7])
        fields = [b"n", b"%d" % rng.randrange(-300, 70_000), b"r", b"%.2f" % rng.uniform(-9, 9)]
        fields += [b"t", rng.choice([b"d12", b"7", b"", b"long" * 20, "grü".encode()])]
        if rng.random() < 0.01:
            fields[rng.choice([1, 3, 5])] = rng.choice(FAULTS)
        if rng.random() < 0.01:
            fields += [b"more", b"1"]
        server("XADD", "s", f"{ms}-{n}", *fields)
        ids.append(f"{ms}-{n}")
    for entry_id in rng.sample(ids[1:-1], count // 100):
        server("XDEL", "s", entry_id)
    return ids


@pytest.mark.parametrize("asked", ALIKE)
@pytest.mark.parametrize("seed", range(2))
def test_runs_make_the_same_buffers_as_single_entries(seed: int, asked: str) -> None:
    rng = random.Random(seed)
    server = Server()
    count = 3000 if "HEADRACE_COMPILED" in os.environ else 400
    ids = alike_stream(server, rng, count)
    words = [word.encode() for word in ALIKE[asked]]
    for start, end, most in (
        ("-", "+", count),
        (ids[3], ids[-7], count),
        ("-", "+", 123),
        (ids[9], ids[11], 5),
    ):
        reply = server("XRANGE", "s", start, end, "COUNT", most)
        for mode in ("PERMISSIVE", "DROPMALFORMED"):
            ours = server(
                "XARROW", "s", start, end, "COUNT", most, "MODE", mode, "COLUMNS", len(words) // 2, *words
            )
            theirs, _ = decoded(reply, words, mode)
            for i, word in enumerate(words[1::2]):
                if column_types.KIND_SETTINGS_BY_TYPE[word.decode()][0] not in (
                    "id",
                    "text",
                    "binary",
                    "corrupt",
                    "fields",
                ):
                    nulls, validity, _, values = theirs[1][i]
                    theirs[1][i] = (nulls, validity, None, values)
            assert plain(encoded(ours, words)[0]) == plain(theirs), (start, end, most, mode)


def message_of(reply: bytes) -> bytes:
    return reply[reply.index(b"\xff\xff\xff\xff") : -2]
