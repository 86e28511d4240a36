"""redis.conf, the command line, CONFIG GET and CONFIG SET."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.errors import CommandError, UsageError
from headrace.server.config.buffer_limits import BufferLimit, OutputBufferLimits
from headrace.server.config.config import Config
from headrace.server.config.directives import DIRECTIVES, IGNORED, NAMES_BY_ALIAS, UNSUPPORTED


def configured(*arguments: str) -> Config:
    config = Config()
    config.read_arguments(list(arguments))
    return config


def set_refusal(*pairs: tuple[bytes, bytes]) -> str:
    with pytest.raises(CommandError) as refused:
        Config().set(list(pairs))
    return str(refused.value)


def test_defaults_are_what_the_directives_declare():
    config = Config()
    for directive in DIRECTIVES:
        assert config.formatted_value(directive.name) == directive.kind.show(
            directive.kind.parse([directive.default])
        )
        assert directive.about.endswith(".")
    assert config.formatted_value("port") == "7777"
    assert config.formatted_value("stream-node-max-bytes") == "4096"


def test_no_name_stands_in_two_lists():
    names = [directive.name for directive in DIRECTIVES] + list(NAMES_BY_ALIAS)
    assert len(names) == len(set(names))
    assert not set(names) & IGNORED
    assert not (set(names) | IGNORED) & UNSUPPORTED


def test_the_command_line_takes_values_up_to_the_next_directive():
    config = configured("--port", "1234", "--bind", "127.0.0.1", "::1", "--save", "", "--timeout=5")
    assert config.formatted_value("port") == "1234"
    assert config.formatted_value("bind") == "127.0.0.1 ::1"
    assert config.formatted_value("save") == ""
    assert config.number("timeout") == 5


def test_a_file_is_read_and_the_command_line_wins(tmp_path: Path):
    (tmp_path / "more.conf").write_text("hz 20\n")
    file = tmp_path / "redis.conf"
    file.write_text(
        f'# a comment\n\n  port 1111\r\nDIR "{tmp_path}"\nmaxclients 10\ninclude {tmp_path}/more.conf\n'
        "stream-node-max-bytes 8kb\n"
    )
    config = configured(str(file), "--maxclients", "20")
    assert config.number("port") == 1111
    assert config.text("dir") == str(tmp_path)
    assert config.number("maxclients") == 20
    assert config.number("hz") == 20
    assert config.number("stream-node-max-bytes") == 8192


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("prot 1", "unknown directive 'prot'; did you mean port?"),
        ("wibble 1", "unknown directive 'wibble'"),
        ("port", "port needs a value"),
        ("port 1 2", "port 1 2: wrong number of arguments"),
        ("port 65536", "port 65536: argument must be between 0 and 65535 inclusive"),
        ("hz fast", "hz fast: argument couldn't be parsed into an integer"),
        ("maxmemory lots", "maxmemory lots: argument must be a memory value"),
        ("protected-mode perhaps", "protected-mode perhaps: argument must be 'yes' or 'no'"),
        ("save 60", "save 60: Invalid save parameters"),
        ("save 0 1", "save 0 1: Invalid save parameters"),
        ("dbfilename a/b", "dbfilename a/b: dbfilename can't be a path, just a filename"),
        ("appenddirname ''", "appenddirname : appenddirname can't be empty"),
        ("daemonize yes", "daemonize yes: run it under a supervisor instead"),
        (
            "rename-command KEYS ''",
            "rename-command: not supported yet, and it would not be safe to ignore it",
        ),
        ("replicaof host", "replicaof host: must be host and port, separated by a blank"),
        ("slaveof host 1x", "replicaof host 1x: Invalid master port"),
        ("replicaof host 65536", "replicaof host 65536: Invalid master port"),
        ('dir "half', "unbalanced quotes"),
        ("unixsocketperm 999", "unixsocketperm 999: argument must be an octal number up to 777"),
        (
            "appendfsync never",
            "appendfsync never: argument(s) must be one of the following: everysec, always, no",
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path: Path, line: str, reason: str):
    file = tmp_path / "redis.conf"
    file.write_text(f"port 1\n{line}\n")
    with pytest.raises(UsageError) as wrong:
        configured(str(file))
    assert str(wrong.value) == f"{file}, line 2: {reason}"


def test_rules_of_save_add_up_until_an_empty_one(tmp_path: Path):
    file = tmp_path / "redis.conf"
    file.write_text('save 7 7\nsave ""\nsave 900 1\nsave 300 10 60 1000\n')
    config = configured(str(file), "--save", "5", "0")
    assert config.save_rules() == ((900, 1), (300, 10), (60, 1000), (5, 0))
    config.set([(b"save", b"3600 1 300 100")])
    assert config.formatted_value("save") == "3600 1 300 100"
    config.set([(b"save", b"")])
    assert config.formatted_value("save") == ""


def test_a_file_that_includes_itself_is_refused(tmp_path: Path):
    file = tmp_path / "redis.conf"
    file.write_text(f"include {file}\n")
    with pytest.raises(UsageError, match="16 deep"):
        configured(str(file))


def test_a_missing_file_and_a_stray_word_are_refused():
    with pytest.raises(UsageError, match="cannot read /no/such/file"):
        configured("/no/such/file")
    with pytest.raises(UsageError, match="not a directive"):
        configured("--port", "1", "--")


def test_what_cannot_be_honoured_but_does_no_harm_is_warned_of():
    config = configured("--maxmemory-clients", "1gb", "--io-threads", "4", "--requirepass", "")
    assert config.warnings == [
        "the command line: maxmemory-clients 1gb: there is no such limit here, only 0: each client is limited"
        " by client-query-buffer-limit and client-output-buffer-limit",
        "the command line: io-threads: has no effect here",
    ]
    assert config.formatted_value("maxmemory-clients") == "0"


def test_a_limit_of_memory_and_what_then_goes():
    config = configured("--maxmemory", "1gb", "--maxmemory-policy", "Stream-Oldest")
    assert (config.formatted_value("maxmemory"), config.formatted_value("maxmemory-policy")) == (
        str(1 << 30),
        "stream-oldest",
    )
    with pytest.raises(UsageError, match="maxmemory-policy volatile-ttl: whole keys are never evicted here"):
        configured("--maxmemory-policy", "volatile-ttl")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("100", 100),
        ("1k", 1000),
        ("1kb", 1024),
        ("2MB", 2 << 20),
        ("1m", 10**6),
        ("3gb", 3 << 30),
        ("5b", 5),
    ],
)
def test_memory_units(text: str, size: int):
    assert configured("--stream-node-max-bytes", text).number("stream-node-max-bytes") == size


@pytest.mark.parametrize("text", ["\u0661\u0662mb", "1\u212ab"])  # Arabic digits, and the Kelvin sign
def test_a_number_of_bytes_is_written_in_ascii(text: str):
    with pytest.raises(UsageError, match="argument must be a memory value"):
        configured("--stream-node-max-bytes", text)
    with pytest.raises(UsageError, match="argument couldn't be parsed into an integer"):
        configured("--maxclients", "\u0661\u0662")


def test_config_get_takes_several_patterns():
    config = Config()
    found = dict(config.get([b"stream-node-*", b"PORT", b"stream-node-max-bytes", b"nothing"]))
    assert found == {b"port": b"7777", b"stream-node-max-bytes": b"4096", b"stream-node-max-entries": b"100"}
    hidden = {b"user"}  # ACL LIST shows them
    names = {d.name.encode() for d in DIRECTIVES} | {name.encode() for name in NAMES_BY_ALIAS}
    assert {name for name, _ in config.get([b"*"])} == names - hidden


def test_what_ends_the_start_can_be_taken_back(tmp_path: Path):
    """A packaged redis.conf says daemonize yes."""
    file = tmp_path / "redis.conf"
    file.write_text("daemonize yes\nloadmodule x.so\nhz 20\n")
    words = [str(file), "--daemonize", "no", "--loadmodule", ""]
    assert configured(*words).number("hz") == 20
    with pytest.raises(UsageError, match=r"line 1: daemonize yes: run it under a supervisor instead"):
        configured(*words[:1], *words[3:])
    with pytest.raises(UsageError, match=r"line 2: loadmodule: not supported yet"):
        configured(*words[:3])


def test_names_are_looked_at_before_values_and_in_their_order():
    """As redis-server does it."""
    config = Config()
    for names, wrong in (
        ([b"hz", b"unixsocket", b"nosuch"], "'unixsocket') - can't set immutable config"),
        (
            [b"hz", b"nosuch", b"unixsocket"],
            "Unknown option or number of arguments for CONFIG SET - 'nosuch'",
        ),
    ):
        with pytest.raises(CommandError, match=re.escape(wrong)):
            config.set([(name, b"no number") for name in names])


def test_config_set_changes_all_or_none():
    config = Config()
    config.set([(b"Stream-Node-Max-Bytes", b"1kb"), (b"timeout", b"7")])
    assert config.number("stream-node-max-bytes") == 1024
    with pytest.raises(CommandError):
        config.set([(b"timeout", b"8"), (b"hz", b"x")])
    assert config.number("timeout") == 7


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (b"stream-node-max-entries", b"-1", "argument must be between 0 and 9223372036854775807 inclusive"),
        (b"stream-node-max-entries", b"x", "argument couldn't be parsed into an integer"),
        (b"stream-node-max-bytes", b"x", "argument must be a memory value"),
        (b"bind", b"::1", "can't set immutable config"),
        (b"appendfilename", b"x", "can't set immutable config"),
        (b"port", b"65536", "argument must be between 0 and 65535 inclusive"),
        (b"save", b"60 1 5", "Invalid save parameters"),
        (b"save", b"60 one", "Invalid save parameters"),
        (b"save", b"0 1", "Invalid save parameters"),
        (
            b"maxmemory-policy",
            b"allkeys-lru",
            "whole keys are never evicted here; there are noeviction and stream-oldest",
        ),
        (
            b"maxmemory-policy",
            b"newest",
            "argument(s) must be one of the following: noeviction, stream-oldest",
        ),
        (
            b"maxmemory-clients",
            b"5%",
            "there is no such limit here, only 0: each client is limited by client-query-buffer-limit and"
            " client-output-buffer-limit",
        ),
        (
            b"client-output-buffer-limit",
            b"normal 1 2",
            "Wrong number of arguments in buffer limit configuration.",
        ),
        (
            b"client-output-buffer-limit",
            b"normal 9999999999gb 0 0",
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        ),
        (
            b"client-output-buffer-limit",
            b"normal 0 1mb -1",
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        ),
        (
            b"client-output-buffer-limit",
            b"odd 1 2 3",
            "Invalid client class specified in buffer limit configuration.",
        ),
    ],
)
def test_config_set_refuses_in_redis_words(name: bytes, value: bytes, reason: str):
    expected = f"ERR CONFIG SET failed (possibly related to argument '{name.decode()}') - {reason}"
    assert set_refusal((name, value)) == expected


def test_config_set_of_the_unknown():
    assert set_refusal((b"wibble", b"1")) == (
        "ERR Unknown option or number of arguments for CONFIG SET - 'wibble'"
    )


def test_what_clients_set_for_good_measure_is_accepted():
    Config().set(
        [(b"save", b""), (b"appendonly", b"no"), (b"maxmemory", b"0"), (b"maxmemory-policy", b"noeviction")]
    )


def test_buffer_limits_of_several_classes():
    config = Config()
    config.set([(b"client-output-buffer-limit", b"normal 1mb 0 0 replica 256mb 64mb 60")])
    assert config.formatted_value("client-output-buffer-limit") == (
        "normal 1048576 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
    )
    config.set([(b"client-output-buffer-limit", b"normal 2mb 1mb 7 pubsub 0 0 0")])
    assert config.values["client-output-buffer-limit"] == OutputBufferLimits(
        BufferLimit(2 << 20, 1 << 20, 7), BufferLimit(256 << 20, 64 << 20, 60), BufferLimit(0, 0, 0)
    )
