"""XINFO: what a stream is made of.

XINFO STREAM key [FULL [COUNT count]]
XINFO GROUPS key
XINFO CONSUMERS key group
XINFO HELP
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.commands import arguments, entries
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.errors import CommandError, NoSuchKey
from headrace.resp.writer import Answer
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
FULL_COUNT = cython.declare(cython.longlong, 10)  # entries shown by FULL when COUNT does not say

HELP = [
    b"XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"CONSUMERS <key> <group>",
    b"    List the consumers of a group.",
    b"GROUPS <key>",
    b"    List the groups of a stream.",
    b"STREAM <key> [FULL [COUNT <count>]]",
    b"    Describe a stream; with FULL, its entries and groups too.",
    b"HELP",
    b"    Print this help.",
]


class UnknownForm(CommandError):
    """A subcommand whose further words do not fit; it is named as the client typed it."""

    def __init__(self, subcommand: bytes) -> None:
        name = subcommand.decode("utf-8", "surrogateescape")
        super().__init__(f"ERR unknown subcommand or wrong number of arguments for '{name}'. Try XINFO HELP.")


class NoSuchGroup(CommandError):
    """A key has no group of that name."""

    def __init__(self, group: bytes, key: bytes) -> None:
        group_name = group.decode("utf-8", "surrogateescape")
        key_name = key.decode("utf-8", "surrogateescape")
        super().__init__(f"NOGROUP No such consumer group '{group_name}' for key name '{key_name}'")


@cython.cfunc
def existing_stream(call: Call) -> Stream:
    """The stream the subcommand names; NoSuchKey when there is none."""
    stream: Stream | None = call.database.stream(call.argv[2])
    if stream is None:
        raise NoSuchKey()
    return stream


def run_stream(call: Call) -> None:
    """XINFO STREAM: answer the stream's counters and its ends, or with FULL all it holds."""
    stream: Stream = existing_stream(call)
    argv: list[bytes] = call.argv
    n: cython.Py_ssize_t = len(argv)
    answer: Answer = call.answer
    if n == 3:
        answer.map(10)
        answer_counters(answer, stream)
        answer.bulk(b"groups")
        answer.integer(0)
        answer.bulk(b"first-entry")
        entries.answer_edge(answer, stream, False)
        answer.bulk(b"last-entry")
        entries.answer_edge(answer, stream, True)
        return
    count: cython.longlong = parse_full(argv)
    answer.map(9)
    answer_counters(answer, stream)
    answer.bulk(b"entries")
    entries.answer_entries(answer, StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, False), count)
    answer.bulk(b"groups")
    answer.array(0)


@cython.cfunc
def parse_full(argv: list[bytes]) -> cython.longlong:
    """The COUNT of `XINFO STREAM key FULL [COUNT count]`; 0 shows all."""
    n: cython.Py_ssize_t = len(argv)
    if n not in (4, 6) or not arguments.is_word(argv[3], b"FULL"):
        raise UnknownForm(argv[1])
    if n == 4:
        return FULL_COUNT
    if not arguments.is_word(argv[4], b"COUNT"):
        raise UnknownForm(argv[1])
    count: cython.longlong = arguments.parse_i64(argv[5])
    return count if count >= 0 else FULL_COUNT


@cython.cfunc
def answer_counters(answer: Answer, stream: Stream) -> cython.void:
    """The seven pairs that both forms of XINFO STREAM begin with."""
    answer.bulk(b"length")
    answer.integer(mem.as_signed(stream.length))
    answer.bulk(b"radix-tree-keys")
    answer.integer(stream.nodes.keys)
    answer.bulk(b"radix-tree-nodes")
    answer.integer(stream.nodes.nodes)
    answer.bulk(b"last-generated-id")
    answer.stream_id(stream.last_ms, stream.last_seq)
    answer.bulk(b"max-deleted-entry-id")
    answer.stream_id(stream.max_deleted_ms, stream.max_deleted_seq)
    answer.bulk(b"entries-added")
    answer.integer(mem.as_signed(stream.entries_added))
    answer.bulk(b"recorded-first-entry-id")
    answer.stream_id(stream.first_ms, stream.first_seq)


def run_groups(call: Call) -> None:
    """XINFO GROUPS: answer the stream's groups; it cannot have any yet."""
    existing_stream(call)
    call.answer.array(0)


def run_consumers(call: Call) -> None:
    """XINFO CONSUMERS: refused, for no stream has a group yet."""
    existing_stream(call)
    raise NoSuchGroup(call.argv[3], call.argv[2])


def run_help(call: Call) -> None:
    """XINFO HELP: answer what the subcommands are."""
    call.answer.array(len(HELP))
    for line in HELP:
        call.answer.simple(line)


COMMANDS = [
    Command(
        "xinfo",
        -2,
        None,
        group="stream",
        since="5.0.0",
        summary="Holds the commands that describe a stream.",
        subcommands=[
            Command(
                "xinfo|stream",
                -3,
                run_stream,
                "readonly",
                keys=(2, 2, 1),
                group="stream",
                since="5.0.0",
                summary="Describes a stream: its counters and its first and last entry, or all of it.",
                complexity="O(1); with FULL, O(n) for the n entries that are shown",
                syntax="key [FULL [COUNT count]]",
            ),
            Command(
                "xinfo|groups",
                3,
                run_groups,
                "readonly",
                keys=(2, 2, 1),
                group="stream",
                since="5.0.0",
                summary="Lists the groups of a stream.",
                syntax="key",
            ),
            Command(
                "xinfo|consumers",
                4,
                run_consumers,
                "readonly",
                keys=(2, 2, 1),
                group="stream",
                since="5.0.0",
                summary="Lists the consumers of a group.",
                syntax="key group",
            ),
            Command(
                "xinfo|help",
                2,
                run_help,
                "loading stale",
                group="stream",
                since="5.0.0",
                summary="Tells what XINFO can describe.",
                categories="stream",
            ),
        ],
    ),
]
