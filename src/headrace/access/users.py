"""All users by name. There is always one called default: who connects is he, if he needs no password."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.access.command_catalogue import CommandCatalogue
from headrace.access.rule_errors import (
    DUPLICATE_USER,
    SYNTAX,
    InvalidRule,
    InvalidUserFile,
    OpenParenthesis,
    RejectedRule,
    has_blanks,
    to_text,
)
from headrace.access.user import User, join_selector_rules

DEFAULT = b"default"
DEFAULT_RULES = (b"on", b"nopass", b"~*", b"&*", b"+@all")


class Users:
    """The users that there are. Begins with the default user, who may do everything."""

    def __init__(self, catalogue: CommandCatalogue) -> None:
        self.catalogue = catalogue
        self.default = self._new_default()
        self.by_name: dict[bytes, User] = {DEFAULT: self.default}

    def _new_default(self) -> User:
        made = User(DEFAULT)
        for rule in DEFAULT_RULES:
            made.apply(rule, self.catalogue)
        return made

    def default_needs_no_password(self) -> bool:
        """Whether who says nothing may come in, as the default user."""
        return self.default.enabled and self.default.nopass

    def find(self, name: bytes) -> User | None:
        """The user of that name, case and all."""
        return self.by_name.get(name)

    def names(self) -> list[bytes]:
        """Every name, in order."""
        return sorted(self.by_name)

    def lines(self) -> list[bytes]:
        """Every user as a line of a file: to be loaded again."""
        return [self.by_name[name].text() for name in self.names()]

    def authenticate(self, name: bytes, password: bytes) -> User | None:
        """The user, if the password is his and he is not switched off."""
        user = self.by_name.get(name)
        if user is None:
            User(name).accepts_password(password)  # as long as for one who is there
            return None
        return user if user.accepts_password(password) else None

    def change(self, name: bytes, words: list[bytes]) -> User:
        """Apply all rules to the user, who is made if need be, or none. RejectedRule, OpenParenthesis."""
        user = self.by_name.get(name)
        changed = self._with_rules(User(name) if user is None else user.copy(), join_selector_rules(words))
        if user is None:
            self.by_name[name] = changed
            return changed
        user.copy_from(changed)
        return user

    def _with_rules(self, user: User, rules: list[bytes]) -> User:
        for rule in rules:
            try:
                user.apply(rule, self.catalogue)
            except InvalidRule as wrong:
                raise RejectedRule(rule, str(wrong)) from None
        return user

    def set_default_password(self, password: bytes) -> None:
        """The directive requirepass: the default user's only password; empty for none."""
        self.change(DEFAULT, [b"resetpass", b">" + password] if password else [b"nopass"])

    def remove(self, name: bytes) -> User | None:
        """The user is no more; the default user cannot be removed."""
        assert name != DEFAULT
        return self.by_name.pop(name, None)

    def load(self, lines: Iterable[tuple[str, list[bytes]]]) -> None:
        """Only these users from now on: where each line stands, and its words after `user`.

        All of them or none; InvalidUserFile says what is wrong, line by line. Without a default user in them
        there is the one who may do everything.
        """
        found: dict[bytes, User] = {}
        wrong: list[str] = []
        for where, words in lines:
            try:
                user = self._read(words)
                if user.name in found:
                    raise InvalidRule(DUPLICATE_USER)
                found[user.name] = user
            except RejectedRule as refused:
                rule = refused.rule[:1] if refused.rule[:1] in b"<>#!" else refused.rule  # no passwords
                wrong.append(f"{where}: Error in applying operation '{to_text(rule)}': {refused.reason}")
            except (InvalidRule, OpenParenthesis) as refused:
                wrong.append(f"{where}: {refused}")
        if wrong:
            raise InvalidUserFile(". ".join(wrong))
        new_default = found.pop(DEFAULT, None)
        self.default.copy_from(self._new_default() if new_default is None else new_default)
        self.by_name = {DEFAULT: self.default, **found}

    def _read(self, words: list[bytes]) -> User:
        """The user that a line describes."""
        if not words:
            raise InvalidRule(SYNTAX)
        if has_blanks(words[0]):
            raise InvalidRule("username cannot contain spaces or null characters")
        return self._with_rules(User(words[0]), join_selector_rules(words[1:]))


def read_file(path: str, text: bytes) -> list[tuple[str, list[bytes]]]:
    """The lines of a file of users, for load(); InvalidUserFile when one of them is none."""
    lines: list[tuple[str, list[bytes]]] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        words = line.split()
        if not words:
            continue
        if words[0] != b"user" or len(words) < 2:
            raise InvalidUserFile(f"{path}:{number}: should start with user keyword followed by the username")
        lines.append((f"{path}:{number}", words[1:]))
    return lines
