"""COMMAND INFO says of each command what real servers say: the one at hand, and 8.2.3 in a captured file."""

import json
import pathlib

import pytest

from headrace.engine.engine import Engine
from headrace.resp.reply_parser import ReplyParser

CAPTURED = json.loads((pathlib.Path(__file__).parent / "vectors" / "commands-8.2.3.json").read_text())

# Redis 7.0 differs from 8 here; the rows follow 8.
OTHERWISE_IN_7 = {
    "acl|deluser": {"tips"},
    "acl|save": {"tips"},
    "acl|setuser": {"tips"},
    "client|setinfo": {"tips"},
    "client|setname": {"tips"},
    "cluster|shards": {"flags"},
    "cluster|slots": {"flags"},
    "command|getkeys": {"arity"},
    "command|getkeysandflags": {"arity"},
    "config|resetstat": {"tips"},
    "config|rewrite": {"tips"},
    "latency|reset": {"tips"},
    "msetnx": {"tips"},
    "randomkey": {"tips"},
    "scan": {"tips"},
    "wait": {"flags", "categories"},
    # Shard channels are not shown as keys here.
    "spublish": {"keys"},
    "ssubscribe": {"keys"},
    "sunsubscribe": {"keys"},
}
# Redis 8.2.9, and older versions with its security fixes, say that the key specs of these are incomplete.
INCOMPLETE_SINCE_8_2_9 = {"xread", "xreadgroup"}
# Commands of this server only, or newer than 8.2.3.
NOT_IN_8_2 = [
    "delex",
    "digest",
    "msetex",
    "xarrow",
    "xcfgset",
    "xcount",
    "xgroup|cfgset",
    "xidmprecord",
    "xlag",
    "xnack",
]


def value(reply):
    parser = ReplyParser()
    parser.feed(reply)
    return parser.next()


def text(item):
    """Bytes as text, inside lists too."""
    if isinstance(item, list | tuple):
        return [text(one) for one in item]
    return item.decode() if isinstance(item, bytes) else item


def spec(fields):
    """A key specification without its note, a sentence in English."""
    about = dict(zip(fields[::2], fields[1::2], strict=True))
    return [sorted(text(about[b"flags"])), text(about[b"begin_search"]), text(about[b"find_keys"])]


def described(facts):
    """The ten fields of a command by name, without the order of sets."""
    return {
        "arity": facts[1],
        "flags": sorted(text(facts[2])),
        "keys": facts[3:6],
        "categories": sorted(text(facts[6])),
        "tips": text(facts[7]),
        "specs": [spec(one) for one in facts[8]],
        "subcommands": sorted(text(one[0]) for one in facts[9]),
    }


def table(commands):
    """Every command and subcommand in a reply of COMMAND."""
    found = {}
    for facts in commands:
        found[text(facts[0])] = described(facts)
        found |= table(facts[9])
    return found


def ask_engine(*argv):
    engine = Engine()
    session = engine.create_session()
    engine.execute(session, list(argv), 1000)
    return session.reply.take()


OURS = table(value(ask_engine(b"COMMAND")))


def compare(name, theirs, but=()):
    """All facts agree, but for those named, and for subcommands that exist on one side only."""
    ours = OURS[name]
    skipped = {"subcommands", *but}
    assert {k: v for k, v in ours.items() if k not in skipped} == {
        k: v for k, v in theirs.items() if k not in skipped
    }


@pytest.fixture(scope="module")
def real(peer):
    peer.control.send([b"COMMAND"])
    return table(value(peer.control.reply()))


@pytest.mark.parametrize("name", OURS)
def test_a_command_agrees_with_the_real_server(real, name):
    is_7_0 = "client|setinfo" not in real
    if name not in real:
        pytest.skip("newer than the redis-server at hand")
    theirs = real[name]
    if name in INCOMPLETE_SINCE_8_2_9:
        theirs["specs"] = [[sorted({*flags} - {"incomplete"}), *rest] for flags, *rest in theirs["specs"]]
    compare(name, theirs, OTHERWISE_IN_7.get(name, ()) if is_7_0 else ())


@pytest.mark.parametrize("name", [name for name in OURS if name not in NOT_IN_8_2])
def test_a_command_agrees_with_8_2(name):
    compare(name, CAPTURED[name])


@pytest.mark.parametrize(
    "request_line",
    [
        "SET k v",
        "SET k v PX 3 GET",
        "XREADGROUP GROUP g c STREAMS a b > >",
        "XREAD COUNT 1 STREAMS a b 0 0",
        "RENAME a b",
        "COPY a b REPLACE",
        "DEL a b c",
        "XADD s * f v",
        "XGROUP CREATE s g 0",
        "MSET a 1 b 2",
        "OBJECT ENCODING k",
        "XREAD STREAMS a",
        "INFO server",
    ],
)
def test_keys_and_flags_of_a_request_are_those_of_the_real_server(peer, request_line):
    for command in (b"GETKEYS", b"GETKEYSANDFLAGS"):
        argv = [b"COMMAND", command, *request_line.encode().split()]
        peer.control.send(argv)
        assert ask_engine(*argv) == peer.control.reply()
