"""Where users come from at the start, and where ACL LOAD and ACL SAVE find them.

requirepass    the default user's password
user lines     of the configuration
aclfile        a file of its own, a user a line; then the configuration may hold none
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from headrace.access.rule_errors import InvalidUserFile
from headrace.access.users import DEFAULT, Users, read_file
from headrace.commands.server_interface import NoAclFile
from headrace.engine.authorization import Authorization
from headrace.errors import CommandError, UsageError
from headrace.server.config.config import Config
from headrace.server.config.config_types import UserLines

OWNER_ONLY = 0o600


class NotSaved(CommandError):
    text = "ERR There was an error trying to save the ACLs. Please check the server logs for more information"


def path_of(config: Config) -> str:
    """The file of users, relative to dir; empty for none."""
    name = config.text("aclfile")
    return os.path.join(config.text("dir"), name) if name else ""


def load_initial_users(config: Config, users: Users) -> None:
    """The users as the configuration has them; UsageError when it does not make sense."""
    lines = config.values["user"]
    assert isinstance(lines, UserLines)
    if lines.lines and config.text("aclfile"):
        text = "users stand either in the configuration or in the aclfile, not in both"
        raise UsageError(f"aclfile {config.text('aclfile')}: {text}")
    users.set_default_password(_raw(config.text("requirepass")))
    try:
        if path_of(config):
            users.load(read(path_of(config)))
        elif lines.lines:
            named = [(f"user {words[0]}", [_raw(word) for word in words]) for words in lines.lines]
            if not any(words[0] == DEFAULT for _, words in named):  # he may have a password already
                named.append(("default", users.default.text().split()[1:]))
            users.load(named)
    except (InvalidUserFile, CommandError) as wrong:
        raise UsageError(str(wrong).removeprefix("ERR ")) from None


def set_password(config: Config, guard: Authorization) -> None:
    """CONFIG SET requirepass: only what comes is asked for it; who is there has come in."""
    guard.users.set_default_password(_raw(config.text("requirepass")))
    guard.refresh_sessions(None)


def user_lines(config: Config, users: Users) -> list[list[str]]:
    """The users as lines of the configuration, as words; the default user only if he was changed."""
    plain = Users(users.catalogue)
    plain.set_default_password(_raw(config.text("requirepass")))
    lines = [line for line in users.lines() if line not in plain.lines()]
    return [[word.decode("utf-8", "surrogateescape") for word in line.split(b" ")[1:]] for line in lines]


def _raw(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")


def read(path: str) -> list[tuple[str, list[bytes]]]:
    """The lines of the file of users; CommandError when it cannot be read or there is none."""
    if not path:
        raise NoAclFile()
    try:
        text = Path(path).read_bytes()
    except OSError as wrong:
        raise CommandError(f"ERR Error loading ACLs, opening file '{path}': {wrong.strerror}") from None
    return read_file(path, text)


def write(path: str, lines: list[bytes]) -> None:
    """Write the file of users whole or not at all, readable by its owner only. NotSaved."""
    if not path:
        raise NoAclFile()
    beside = f"{path}.new-{os.getpid()}"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
        with open(descriptor, "wb") as out:
            out.writelines(line + b"\n" for line in lines)
            out.flush()
            os.fsync(out.fileno())
        os.replace(beside, path)
    except OSError as wrong:
        logging.getLogger("headrace").error("ACL SAVE: %s: %s", path, wrong.strerror)
        Path(beside).unlink(missing_ok=True)
        raise NotSaved() from None
