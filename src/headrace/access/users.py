"""All users by name. There is always one called default: who connects is he, if he needs no password."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.access.command_catalogue import Catalogue
from headrace.access.rule_errors import (
    SYNTAX,
    TWICE,
    BadFile,
    BadRule,
    OpenParenthesis,
    RefusedRule,
    has_blanks,
    shown,
)
from headrace.access.user import User, joined

DEFAULT = b"default"
DEFAULT_RULES = (b"on", b"nopass", b"~*", b"&*", b"+@all")


class Users:
    """The users that there are. Begins with the default user, who may do everything."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.default = self._new_default()
        self.by_name: dict[bytes, User] = {DEFAULT: self.default}

    def _new_default(self) -> User:
        made = User(DEFAULT)
        for rule in DEFAULT_RULES:
            made.apply(rule, self.catalogue)
        return made

    def is_open(self) -> bool:
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

    def authenticated(self, name: bytes, password: bytes) -> User | None:
        """The user, if the password is his and he is not switched off."""
        user = self.by_name.get(name)
        if user is None:
            User(name).is_his(password)  # as long as for one who is there
            return None
        return user if user.is_his(password) else None

    def change(self, name: bytes, words: list[bytes]) -> User:
        """Apply all rules to the user, who is made if need be, or none. RefusedRule, OpenParenthesis."""
        user = self.by_name.get(name)
        changed = self._with_rules(User(name) if user is None else user.copy(), joined(words))
        if user is None:
            self.by_name[name] = changed
            return changed
        user.become(changed)
        return user

    def _with_rules(self, user: User, rules: list[bytes]) -> User:
        for rule in rules:
            try:
                user.apply(rule, self.catalogue)
            except BadRule as wrong:
                raise RefusedRule(rule, str(wrong)) from None
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

        All of them or none; BadFile says what is wrong, line by line. Without a default user in them
        there is the one who may do everything.
        """
        found: dict[bytes, User] = {}
        wrong: list[str] = []
        for where, words in lines:
            try:
                user = self._read(words)
                if user.name in found:
                    raise BadRule(TWICE)
                found[user.name] = user
            except RefusedRule as refused:
                rule = refused.rule[:1] if refused.rule[:1] in b"<>#!" else refused.rule  # no passwords
                wrong.append(f"{where}: Error in applying operation '{shown(rule)}': {refused.why}")
            except (BadRule, OpenParenthesis) as refused:
                wrong.append(f"{where}: {refused}")
        if wrong:
            raise BadFile(". ".join(wrong))
        new_default = found.pop(DEFAULT, None)
        self.default.become(self._new_default() if new_default is None else new_default)
        self.by_name = {DEFAULT: self.default, **found}

    def _read(self, words: list[bytes]) -> User:
        """The user that a line describes."""
        if not words:
            raise BadRule(SYNTAX)
        if has_blanks(words[0]):
            raise BadRule("username cannot contain spaces or null characters")
        return self._with_rules(User(words[0]), joined(words[1:]))


def read_file(path: str, text: bytes) -> list[tuple[str, list[bytes]]]:
    """The lines of a file of users, for load(); BadFile when one of them is none."""
    lines: list[tuple[str, list[bytes]]] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        words = line.split()
        if not words:
            continue
        if words[0] != b"user" or len(words) < 2:
            raise BadFile(f"{path}:{number}: should start with user keyword followed by the username")
        lines.append((f"{path}:{number}", words[1:]))
    return lines
