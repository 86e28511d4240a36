"""All users by name. `default` always exists: a new client is that user if it needs no password."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.access.command_catalogue import CommandCatalogue
from headrace.access.rule_errors import (
    DUPLICATE_USER,
    SYNTAX_ERROR,
    InvalidRule,
    InvalidUserFile,
    RejectedRule,
    UnclosedParenthesis,
    has_blanks,
)
from headrace.access.user import User, join_selector_rules
from headrace.errors import to_text

DEFAULT_NAME = b"default"
DEFAULT_RULES = (b"on", b"nopass", b"~*", b"&*", b"+@all")


class Users:
    """The users of one engine. At first there is only the default user, who may do everything."""

    def __init__(self, catalogue: CommandCatalogue) -> None:
        self.catalogue = catalogue
        self.default = self._new_default()
        self.by_name: dict[bytes, User] = {DEFAULT_NAME: self.default}

    def _new_default(self) -> User:
        made = User(DEFAULT_NAME)
        for rule in DEFAULT_RULES:
            made.apply(rule, self.catalogue)
        return made

    def default_needs_no_password(self) -> bool:
        """Return whether clients may send commands without authentication, as the default user."""
        return self.default.enabled and self.default.nopass

    def find(self, name: bytes) -> User | None:
        """Return the user of that name, or None. Names are case-sensitive."""
        return self.by_name.get(name)

    def names(self) -> list[bytes]:
        """Return all names, sorted."""
        return sorted(self.by_name)

    def user_file_lines(self) -> list[bytes]:
        """Return the users as lines of a user file."""
        return [self.by_name[name].user_file_line() for name in self.names()]

    def authenticate(self, name: bytes, password: bytes) -> User | None:
        """Return the user if it is enabled and the password is right, else None."""
        user = self.by_name.get(name)
        if user is None:
            User(name).accepts_password(password)  # takes the same time as for an existing user
            return None
        return user if user.accepts_password(password) else None

    def change(self, name: bytes, words: list[bytes]) -> User:
        """Apply all rules to the user, or none if one is rejected. Create the user if it does not exist.

        Raises RejectedRule or UnclosedParenthesis.
        """
        user = self.by_name.get(name)
        changed = self._apply_rules(User(name) if user is None else user.copy(), join_selector_rules(words))
        if user is None:
            self.by_name[name] = changed
            return changed
        user.copy_from(changed)
        return user

    def _apply_rules(self, user: User, rules: list[bytes]) -> User:
        for rule in rules:
            try:
                user.apply(rule, self.catalogue)
            except InvalidRule as wrong:
                raise RejectedRule(rule, str(wrong)) from None
        return user

    def set_default_password(self, password: bytes) -> None:
        """Set the default user's only password, as `requirepass` does; if empty, the user needs none."""
        self.change(DEFAULT_NAME, [b"resetpass", b">" + password] if password else [b"nopass"])

    def remove(self, name: bytes) -> User | None:
        """Remove and return the user; return None if there is none. The default user cannot be removed."""
        assert name != DEFAULT_NAME
        return self.by_name.pop(name, None)

    def replace_all(self, lines: Iterable[tuple[str, list[bytes]]]) -> None:
        """Replace all users; each item is (file and line for errors, the words after `user`).

        Without a default user in them, the default user may do everything.

        Raises:
            InvalidUserFile: with all problems; nothing was changed.
        """
        found: dict[bytes, User] = {}
        wrong: list[str] = []
        for where, words in lines:
            try:
                user = self._parse_user(words)
                if user.name in found:
                    raise InvalidRule(DUPLICATE_USER)
                found[user.name] = user
            except RejectedRule as error:
                rule = error.rule[:1] if error.rule[:1] in b"<>#!" else error.rule  # no passwords
                wrong.append(f"{where}: Error in applying operation '{to_text(rule)}': {error.reason}")
            except (InvalidRule, UnclosedParenthesis) as error:
                wrong.append(f"{where}: {error}")
        if wrong:
            raise InvalidUserFile(". ".join(wrong))
        new_default = found.pop(DEFAULT_NAME, None)
        self.default.copy_from(self._new_default() if new_default is None else new_default)
        self.by_name = {DEFAULT_NAME: self.default, **found}

    def _parse_user(self, words: list[bytes]) -> User:
        """Return the user that a line of a user file defines, from its words after `user`.

        Raises InvalidRule, RejectedRule or UnclosedParenthesis.
        """
        if not words:
            raise InvalidRule(SYNTAX_ERROR)
        if has_blanks(words[0]):
            raise InvalidRule("username cannot contain spaces or null characters")
        return self._apply_rules(User(words[0]), join_selector_rules(words[1:]))


def parse_user_file(path: str, text: bytes) -> list[tuple[str, list[bytes]]]:
    """Parse the text of a user file, for replace_all(). A wrong line raises InvalidUserFile."""
    lines: list[tuple[str, list[bytes]]] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        words = line.split()
        if not words:
            continue
        if words[0] != b"user" or len(words) < 2:
            raise InvalidUserFile(f"{path}:{number}: should start with user keyword followed by the username")
        lines.append((f"{path}:{number}", words[1:]))
    return lines
