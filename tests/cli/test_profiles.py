"""The server that a command uses, and that no password is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from headrace.cli.main import SUMMARY_BY_COMMAND, main
from headrace.cli.options.profiles import resolve_url
from headrace.client.url import has_password, without_password
from headrace.errors import UsageError
from headrace.spark.options import DEFAULT_URL

WITH_URL = sorted(set(SUMMARY_BY_COMMAND) - {"serve", "check", "demo", "export"})  # export names its source
PROFILES = """
[profile.default]
url = "redis://default"
[profile.production]
url = "redis://production"
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of profiles of a user without any settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("HEADRACE_URL", raising=False)
    monkeypatch.delenv("HEADRACE_PROFILE", raising=False)
    (tmp_path / "headrace").mkdir()
    return tmp_path / "headrace" / "profiles.toml"


def test_option_profile_environment_and_default_have_this_precedence(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve_url(None, None) == DEFAULT_URL
    config.write_text(PROFILES)
    assert resolve_url(None, None) == "redis://default"
    monkeypatch.setenv("HEADRACE_URL", "redis://environment")
    assert resolve_url(None, None) == "redis://environment"
    assert resolve_url(None, "production") == "redis://production"
    assert resolve_url("redis://option", "production") == "redis://option"
    monkeypatch.setenv("HEADRACE_URL", "")
    assert resolve_url(None, None) == "redis://default"


def test_without_xdg_config_home_profiles_are_in_the_home_directory(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".config" / "headrace").mkdir(parents=True)
    (tmp_path / ".config" / "headrace" / "profiles.toml").write_text(PROFILES)
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", value)
        assert resolve_url(None, None) == "redis://default"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        ("x = [", "not valid TOML"),
        ("[profiles.a]\nurl = ''", "unexpected 'profiles'"),
        (PROFILES, "has no profile 'prodction'; did you mean 'production'?"),
        ("[profile.prodction]\n", "profile 'prodction' has no url"),
        ("[profile.prodction]\nurl = 'x'\nurls = 'y'", "unknown key 'urls'; did you mean 'url'?"),
    ],
)
def test_a_wrong_profile_prints_one_line_and_exits_with_2(
    content: str | None, message: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        config.write_text(content)
    assert main(["trim", "--stream", "s", "--profile", "prodction"]) == 2
    error = capsys.readouterr().err
    assert message in error and str(config) in error and error.count("\n") == 1


def test_an_unreadable_profile_is_reported(config: Path) -> None:
    config.mkdir()
    with pytest.raises(UsageError, match="is a directory"):
        resolve_url(None, None)


@pytest.mark.parametrize("name", WITH_URL)
def test_every_command_that_talks_to_a_server_takes_a_profile(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--profile NAME" in text and "HEADRACE_URL" in text


def test_a_command_uses_the_server_of_its_profile(
    config: Path,
    server_url: str,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client.xadd("orders", {"n": 1})
    config.write_text(f'[profile.test]\nurl = "{server_url}"\n')
    assert main(["trim", "--stream", "orders", "--dry-run", "--profile", "test"]) == 0
    monkeypatch.setenv("HEADRACE_PROFILE", "test")
    monkeypatch.setenv("HEADRACE_URL", "redis://127.0.0.1:1")
    assert main(["trim", "--stream", "orders", "--dry-run"]) == 0
    monkeypatch.delenv("HEADRACE_PROFILE")
    monkeypatch.setenv("HEADRACE_URL", server_url)
    assert main(["trim", "--stream", "orders", "--dry-run"]) == 0
    assert capsys.readouterr().out.count("orders: ") == 3


def test_a_password_that_others_can_read_causes_a_warning(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text('[profile.default]\nurl = "redis://u:secret@h"\n')
    config.chmod(0o644)
    assert resolve_url(None, None) == "redis://u:secret@h"
    error = capsys.readouterr().err
    assert f"chmod 600 {config}" in error and "secret" not in error and error.count("\n") == 1
    config.chmod(0o600)
    resolve_url(None, None)
    config.write_text('[profile.default]\nurl = "redis://h"\n')
    config.chmod(0o644)
    resolve_url(None, None)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "url",
    ["redis://u:pw@h", "redis://:pw@h:1/2", "sentinel://h/s?sentinel_password=pw", "unix:///s?password=pw"],
)
def test_passwords_are_found_anywhere_in_a_url(url: str) -> None:
    assert has_password(url) and not has_password("redis://user@h:6379/0?ssl_ca_certs=x")


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:se/cret@host:6379",
        "redis://user:se?cret@host:6379",
        "redis://user:se#cret@host:6379",
        "redis://:cret@host:port",
        "redis:/user:secret@host",
        "user:secret@host",
        "redis://host:6379?password=secret",
        "http://user:secret@host",
        "sentinel://user:secret@host",
        "cluster://user:secret@host:1,host:x",
    ],
)
def test_no_part_of_a_password_is_printed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cret" not in without_password(url)
    main(["trim", "--stream", "s", "--url", url.replace("host", "127.0.0.1")])
    printed = capsys.readouterr()
    assert printed.err and "cret" not in printed.out + printed.err


def test_a_replay_without_its_stream_prints_no_password(
    server_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = server_url.replace("//", "//default:secret@")
    assert main(["replay", "--stream", "none", "--into", "t", "--url", url]) == 2
    assert "secret" not in capsys.readouterr().err
