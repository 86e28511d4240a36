"""Load users from requirepass, the configuration or aclfile; write aclfile for ACL SAVE.

requirepass    the default user's password
user lines     in the configuration
aclfile        a file of its own, one user a line; then the configuration may contain none
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from headrace.access.rule_errors import InvalidUserFile
from headrace.access.users import DEFAULT_NAME, Users, parse_user_file
from headrace.commands.server_interface import NoAclFile
from headrace.engine.authorization import Authorization
from headrace.errors import CommandError, UsageError, to_text
from headrace.server.config.config import Config
from headrace.server.config.config_types import UserLines

OWNER_ONLY = 0o600


class NotSaved(CommandError):
    text = "ERR There was an error trying to save the ACLs. Please check the server logs for more information"


def aclfile_path(config: Config) -> str:
    """Return the path of aclfile, which is configured relative to dir; empty if there is none."""
    name = config.text("aclfile")
    return os.path.join(config.text("dir"), name) if name else ""


def load_initial_users(config: Config, users: Users) -> None:
    """Load the configured users. Raises UsageError if the configuration is inconsistent."""
    lines = config.values["user"]
    assert isinstance(lines, UserLines)
    if lines.lines and config.text("aclfile"):
        text = "users are defined either in the configuration or in the aclfile, not in both"
        raise UsageError(f"aclfile {config.text('aclfile')}: {text}")
    users.set_default_password(_encode_word(config.text("requirepass")))
    try:
        if aclfile_path(config):
            users.replace_all(read(aclfile_path(config)))
        elif lines.lines:
            named = [(f"user {words[0]}", [_encode_word(word) for word in words]) for words in lines.lines]
            if not any(words[0] == DEFAULT_NAME for _, words in named):  # it may have a password already
                named.append(("default", users.default.user_file_line().split()[1:]))
            users.replace_all(named)
    except (InvalidUserFile, CommandError) as wrong:
        raise UsageError(str(wrong).removeprefix("ERR ")) from None


def apply_requirepass(config: Config, auth: Authorization) -> None:
    """Apply CONFIG SET requirepass: new sessions need it; existing sessions stay authenticated."""
    auth.users.set_default_password(_encode_word(config.text("requirepass")))
    auth.refresh_sessions(None)


def user_lines(config: Config, users: Users) -> list[list[str]]:
    """Return, for each user, the words after `user` of its configuration line.

    The default user is among them only if it was changed.
    """
    plain = Users(users.catalogue)
    plain.set_default_password(_encode_word(config.text("requirepass")))
    lines = [line for line in users.user_file_lines() if line not in plain.user_file_lines()]
    return [[to_text(word) for word in line.split(b" ")[1:]] for line in lines]


def _encode_word(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")


def read(path: str) -> list[tuple[str, list[bytes]]]:
    """Return the users of aclfile: for each, file and line for errors, and the words after `user`.

    Raises CommandError if the file cannot be read or none is configured, InvalidUserFile if a line is wrong.
    """
    if not path:
        raise NoAclFile()
    try:
        text = Path(path).read_bytes()
    except OSError as wrong:
        raise CommandError(f"ERR Error loading ACLs, opening file '{path}': {wrong.strerror}") from None
    return parse_user_file(path, text)


def write(path: str, lines: list[bytes]) -> None:
    """Write aclfile atomically, readable by its owner only. Raises NotSaved; NoAclFile if path is empty."""
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
