"""Directives from the environment, included files, and what is passed over."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from headrace.errors import UsageError
from headrace.server.config.config import Config
from headrace.server.config.config_types import UserLines


def configured(arguments: list[str], environment: dict[str, str]) -> Config:
    config = Config()
    config.read_arguments(arguments, environment)
    return config


def test_the_environment_stands_between_the_file_and_the_command_line(tmp_path: Path):
    file = tmp_path / "headrace.conf"
    file.write_text("hz 20\ntimeout 1\nmaxclients 5\nsave 1 1\n")
    given = {
        "HEADRACE_HZ": "30",
        "HEADRACE_TIMEOUT": "2",
        "HEADRACE_BIND": "* -::*",
        "HEADRACE_SAVE": "",
        "HEADRACE_LOGFILE": "two words",
        "HEADRACE_STREAM_NODE_MAX_BYTES": "8kb",
    }
    config = configured([str(file), "--timeout", "3"], given)
    names = ("hz", "timeout", "maxclients", "bind", "save", "logfile", "stream-node-max-bytes")
    assert [config.formatted_value(name) for name in names] == [
        "30",
        "3",
        "5",
        "* -::*",
        "",
        "two words",
        "8192",
    ]
    assert config.origins["hz"] == "the environment, HEADRACE_HZ"
    assert config.warnings == []


def test_a_user_is_one_text():
    config = configured(["--user", "bob", "off"], {"HEADRACE_USER": "ann on  >pears ~* (+get ~b)"})
    users = config.values["user"]
    assert isinstance(users, UserLines)
    assert users.lines == (("ann", "on", ">pears", "~*", "(+get", "~b)"), ("bob", "off"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port"], "the command line: --port needs a value"),
        (["--port", "--hz", "10"], "the command line: --port needs a value"),
        (["-p", "22001"], "unknown option -p; did you mean --port?"),
        (["-prot", "22001"], "unknown option -prot; did you mean --port?"),
        (["-wibble"], "unknown option -wibble; options begin with --, as in --port 7777"),
        (["--replicaof", "127.0.0.1:22000"], "must be host and port, separated by a blank"),
    ],
)
def test_a_mistake_on_the_command_line_is_explained(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message) + "$"):
        configured(words, {})


def test_a_wrong_value_is_said_with_its_variable_but_a_password_is_not():
    with pytest.raises(
        UsageError, match=r"^the environment, HEADRACE_PORT: port x: argument couldn't be parsed"
    ):
        configured([], {"HEADRACE_PORT": "x"})
    with pytest.raises(UsageError) as wrong:
        configured(["--requirepass", "pears", "plums"], {})
    assert str(wrong.value) == "the command line: requirepass ...: wrong number of arguments"


def test_variables_of_others_are_passed_over_and_slips_are_said():
    given = {
        "HEADRACE_PORT": "tcp://10.0.0.1:7777",  # a service of Kubernetes that is called headrace
        "HEADRACE_PORT_7777_TCP_ADDR": "10.0.0.1",
        "HEADRACE_SERVICE_HOST": "10.0.0.1",
        "HEADRACE_SERVICE_PORT": "7777",
        "HEADRACE_COMPILED": "1",
        "HEADRACE_BUILD": "sanitize",
        "HEADRACE_URL": "redis://127.0.0.1",
        "HEADRACE_MAXCLIENT": "5",
        "HEADRACE_PROT": "5",
        "headrace_hz": "20",
    }
    config = configured([], given)
    assert config.values == Config().values
    assert config.warnings == [
        "the environment, HEADRACE_MAXCLIENT: unknown directive; did you mean HEADRACE_MAXCLIENTS?",
        "the environment, HEADRACE_PROT: unknown directive; did you mean HEADRACE_PORT?",
    ]


def test_a_directive_without_effect_is_warned_of_once_wherever_it_stands(tmp_path: Path):
    (tmp_path / "b.conf").write_text("io-threads 2\nhll-sparse-max-bytes 3000\n")
    file = tmp_path / "a.conf"
    file.write_text(f"io-threads 2\nio-threads 3\ninclude {tmp_path}/b.conf\n")
    assert configured([str(file), "--io-threads", "4"], {}).warnings == [
        f"{file}, line 1: io-threads: has no effect here",
        f"{tmp_path}/b.conf, line 2: hll-sparse-max-bytes: has no effect here",
    ]


def test_a_pattern_includes_all_that_match_in_order_and_may_match_nothing(tmp_path: Path):
    for name, text in (
        ("20.conf", "hz 20\ntimeout 20\n"),
        ("10.conf", "hz 10\ntimeout 10\n"),
        ("x.txt", "hz x"),
    ):
        (tmp_path / name).write_text(text)
    file = tmp_path / "main"
    file.write_text(f"include {tmp_path}/*.conf {tmp_path}/none*.conf\nhz 30\n")
    config = configured([str(file)], {})
    assert (config.number("hz"), config.number("timeout")) == (30, 20)
    file.write_text("include\n")
    with pytest.raises(UsageError, match=r"line 1: include: wrong number of arguments"):
        configured([str(file)], {})


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hz 40\n")))
    config = configured(["-", "--timeout", "5"], {})
    assert (config.number("hz"), config.number("timeout")) == (40, 5)


def test_limits_of_buffers_are_said_class_by_class(tmp_path: Path):
    file = tmp_path / "redis.conf"
    file.write_text("client-output-buffer-limit normal 1mb 0 0\nclient-output-buffer-limit pubsub 2mb 0 0\n")
    config = configured([str(file)], {})
    assert config.formatted_value("client-output-buffer-limit").startswith("normal 1048576 0 0")
    config.set([(b"client-output-buffer-limit", b"pubsub 3mb 0 0")])
    shown = config.formatted_value("client-output-buffer-limit")
    assert "normal 1048576 0 0" in shown
    assert "pubsub 3145728 0 0" in shown
