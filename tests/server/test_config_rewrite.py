"""CONFIG REWRITE and --print-config: what is written is read again as what it was."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from headrace.errors import CommandError, UsageError
from headrace.server.config.config import Config
from headrace.server.config.config_types import Flag, Memory, Number, SaveRulesType, Text
from headrace.server.config.directives import DIRECTIVES, DIRECTIVES_BY_NAME
from headrace.server.config.rewrite import HEADING, format_config, line_of, line_of_words, rewrite

HEAD = HEADING.decode()


def configured(*arguments: str) -> Config:
    config = Config()
    config.read_arguments(list(arguments))
    return config


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "headrace.conf"


def test_a_file_that_is_still_right_stays_to_the_byte(path: Path):
    text = b'# mine\n\n  HZ   20\nsave 900 1\nsave "300 10"\nmaxmemory 0\nio-threads 4\nbind 127.0.0.1\t-::1'
    path.write_bytes(text)
    rewrite(configured(str(path)))
    assert path.read_bytes() == text + b"\n"


def test_what_was_changed_is_said_where_it_stood_and_the_rest_at_the_end(path: Path):
    path.write_text(
        "# the big machine\nhz 20\ntimeout 3\n# a rule\nsave 9 1\nhz 30\nsave 5 2\n\nmaxclients 40\n"
    )
    config = configured(str(path))
    config.set([(b"hz", b"50"), (b"save", b"7 7"), (b"stream-node-max-bytes", b"65536"), (b"timeout", b"3")])
    rewrite(config)
    first = path.read_text()
    assert first == (
        "# the big machine\ntimeout 3\n# a rule\nhz 50\nsave 7 7\n\nmaxclients 40\n\n"
        f"{HEAD}\nstream-node-max-bytes 64kb\n"
    )
    config.set([(b"save", b""), (b"tcp-keepalive", b"0"), (b"stream-node-max-bytes", b"100")])
    rewrite(config)
    assert path.read_text() == (
        '# the big machine\ntimeout 3\n# a rule\nhz 50\nsave ""\n\nmaxclients 40\n\n'
        f"{HEAD}\nstream-node-max-bytes 100\ntcp-keepalive 0\n"
    )
    assert configured(str(path)).values == config.values


def test_an_included_file_is_left_alone_and_overruled(path: Path, tmp_path: Path):
    more = tmp_path / "more.conf"
    more.write_text("hz 20\ntimeout 5\nsave 60 1\n")
    path.write_text(f"hz 30\nsave 900 1\ninclude {more}\n")
    config = configured(str(path))
    config.set([(b"hz", b"30"), (b"save", b"1 2")])
    rewrite(config)
    assert more.read_text() == "hz 20\ntimeout 5\nsave 60 1\n"
    assert path.read_text() == (f'hz 30\nsave 1 2\ninclude {more}\n\n{HEAD}\nhz 30\nsave ""\nsave 1 2\n')
    assert configured(str(path)).values == config.values


def test_the_command_line_is_written_and_what_the_server_does_instead_is_not(path: Path):
    path.write_text("maxclients 90000\n")
    config = configured(str(path), "--port", "free", "--logfile", 'it\'s "here"\n', "--dir", "a  b")
    config.override("port", 4711)
    config.override("maxclients", 1000)
    assert config.number("port") == 4711
    rewrite(config)
    assert path.read_text() == (
        f'maxclients 90000\n\n{HEAD}\ndir "a  b"\nlogfile "it\'s \\"here\\"\\x0a"\nport free\n'
    )
    config.set([(b"maxclients", b"50")])
    rewrite(config)
    assert path.read_text().startswith("maxclients 50\n")


def test_users_take_the_place_of_users(path: Path):
    path.write_text("user ann on nopass\nhz 20\n# and\nuser bob on >x\n")
    config = configured(str(path))
    rewrite(config)
    assert (
        path.read_text() == "user ann on nopass\nhz 20\n# and\nuser bob on >x\n"
    )  # nobody says who there is
    config.repeated_line_functions["user"] = lambda: [
        ["ann", "on", "#ab", "~x*"],
        ["carl", "off", "(~a +get)"],
    ]
    rewrite(config)
    assert path.read_text() == 'hz 20\n# and\nuser ann on #ab ~x*\nuser carl off "(~a +get)"\n'
    path.write_text("hz 20\n")
    rewrite(config)
    text = f'hz 20\n\n{HEAD}\nuser ann on #ab ~x*\nuser carl off "(~a +get)"\n'
    assert path.read_text() == text
    rewrite(config)
    assert path.read_text() == text


def test_users_of_an_included_file_are_not_written_twice(path: Path, tmp_path: Path):
    (tmp_path / "users").write_text("user ann on >pears\n")
    path.write_text(f"include {tmp_path}/users\nhz 20\n")
    config = configured(str(path))
    config.repeated_line_functions["user"] = lambda: [["ann", "on", "#ab"]]
    with pytest.raises(CommandError, match=r"ERR Rewriting config file: .*included"):
        rewrite(config)
    assert path.read_text() == f"include {tmp_path}/users\nhz 20\n"


def test_the_file_keeps_its_permissions_and_a_link_stays_a_link(path: Path, tmp_path: Path):
    path.write_text("hz 20\n")
    path.chmod(0o640)
    link = tmp_path / "link.conf"
    link.symlink_to(path)
    config = configured(str(link))
    config.set([(b"hz", b"21")])
    rewrite(config)
    assert link.is_symlink()
    assert path.read_text() == "hz 21\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["headrace.conf", "link.conf"]


def test_a_file_that_is_gone_is_written_anew(path: Path):
    path.write_text("hz 20\n")
    config = configured(str(path))
    path.unlink()
    rewrite(config)
    assert path.read_text() == f"{HEAD}\nhz 20\n"


def test_why_it_cannot_be_written_is_said_and_nothing_is_changed(path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(CommandError, match=r"^ERR The server is running without a config file$"):
        rewrite(configured("--port", "1"))
    path.write_text("hz 20\n")
    config = configured(str(path))
    path.write_text("hz 20\nwibble 1\n")
    with pytest.raises(
        CommandError, match=r"^ERR Rewriting config file: .*line 2: unknown directive 'wibble'"
    ):
        rewrite(config)
    path.write_text("hz 21\n")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CommandError, match=r"^ERR Rewriting config file: No space left on device$"):
        rewrite(config)
    assert path.read_text() == "hz 21\n"
    assert os.listdir(path.parent) == [path.name]


def random_value(kind: object, rng: random.Random) -> str:
    if isinstance(kind, Flag):
        return rng.choice(("yes", "no"))
    if isinstance(kind, Number | Memory):
        return str(rng.choice((kind.least, kind.most, rng.randint(kind.least, min(kind.most, 1 << 24)))))
    if isinstance(kind, SaveRulesType):
        return " ".join(f"{rng.randint(1, 99)} {rng.randint(0, 99)}" for _ in range(rng.randrange(4)))
    assert isinstance(kind, Text)
    return "".join(rng.choice("ab #'\"\\ \t\n\r\0\x7f/é\udcff$(){}") for _ in range(rng.randrange(9)))


def test_random_values_survive_the_way_through_the_file(path: Path):
    rng = random.Random(8)
    kinds = (Flag, Number, Memory, SaveRulesType, Text)
    open_ones = [d for d in DIRECTIVES if isinstance(d.kind, kinds) and d.only_value is None]
    path.write_text("# begun\n")
    rewritten = False  # the heading stands before the first value that is not the default
    for _ in range(150):
        config = configured(str(path))
        for directive in rng.sample(open_ones, 4):
            config.values[directive.name] = directive.kind.parse([random_value(directive.kind, rng)])
        rewrite(config)
        assert configured(str(path)).values == config.values
        text = path.read_bytes()
        rewritten = rewritten or config.values != Config().values
        assert text.count(HEADING) == rewritten
    assert rewritten
    names = [line.split(b" ")[0] for line in text.splitlines() if line and not line.startswith(b"#")]
    assert len(names) == len(set(names))  # one line a directive, however often


def test_every_default_is_read_again_from_its_line():
    for directive in DIRECTIVES:
        config = Config()
        config.read_lines("", [line_of(directive, config.values[directive.name])])
        assert config.values[directive.name] == directive.kind.parse([directive.default])
    assert line_of(DIRECTIVES_BY_NAME["logfile"], "") == b'logfile ""'
    assert line_of_words("user", ["ann", "", "a\xa0b"]) == b'user ann "" a\xc2\xa0b'


def test_what_is_printed_can_be_read_again_and_says_who_said_it(path: Path):
    path.write_text("hz 20\nrequirepass pears\nsave 1 2\nsave 3 4\n")
    config = Config()
    config.read_arguments([str(path), "--timeout", "7"], {"HEADRACE_HZ": "30", "PATH": "/bin"})
    text = format_config(config)
    assert "# the environment, HEADRACE_HZ\nhz 30\n" in text
    assert "# the command line\ntimeout 7\n" in text
    assert f"# {path}, line 4\nsave 1 2 3 4\n" in text
    assert "pears" not in text
    assert text.index("# the command line") < text.index("# default\n") < text.index("\nport 7777\n")
    path.write_text(text)
    config.set([(b"requirepass", b"")])
    assert configured(str(path)).values == config.values


def test_printed_users_are_comments_that_show_no_password(tmp_path: Path) -> None:
    config = Config()
    config.read_lines("f", [b"user ann on >secret ~* +@all", b"user bob off"])
    text = format_config(config)
    assert "# user ann is set, and not shown" in text and "# user bob is set" in text
    assert ">secret" not in text and "\nuser " not in text


def test_a_comment_behind_a_value_is_explained() -> None:
    with pytest.raises(UsageError, match="a comment needs a line of its own"):
        Config().read_lines("f", [b"maxclients 5000  # enough"])
