"""A user: enabled or not, passwords, and permissions.

user alice on #<sha256> ~orders:* resetchannels -@all +@read (%W~log resetchannels -@all +xadd)
     name  flags passwords  own selector                      further selectors
"""

from __future__ import annotations

import cython

from headrace import limits
from headrace.access import passwords
from headrace.access.command_catalogue import CommandCatalogue
from headrace.access.rule_errors import (
    NO_SUCH_PASSWORD,
    NOT_A_DIGEST,
    TOO_MANY_SELECTORS,
    InvalidRule,
    UnclosedParenthesis,
)
from headrace.access.selector import AccessRequest, Selector

SANITIZE_FLAGS = (b"sanitize-payload", b"skip-sanitize-payload")


@cython.final
@cython.cclass
class User:
    """A user; a new one is disabled, has no password and no permissions."""

    name: bytes
    enabled: cython.bint
    nopass: cython.bint  # any password is accepted
    sanitize: bytes  # one of SANITIZE_FLAGS, or empty: stored for compatibility; payloads are always checked
    passwords: dict[bytes, None]  # digests, oldest first
    selectors: list[Selector]  # the first is the user's own

    def __init__(self, name: bytes) -> None:
        self.name = name
        self._reset()

    @cython.cfunc
    def _reset(self) -> cython.void:
        self.enabled = False
        self.nopass = False
        self.sanitize = b""
        self.passwords = {}
        self.selectors = [Selector()]

    def copy(self) -> User:
        """Return an independent copy."""
        made = User(self.name)
        made.copy_from(self)
        return made

    def copy_from(self, other: User) -> None:
        """Replace the flags, passwords and permissions with copies of the other user's."""
        self.enabled = other.enabled
        self.nopass = other.nopass
        self.sanitize = other.sanitize
        self.passwords = dict(other.passwords)
        self.selectors = [selector.copy() for selector in other.selectors]

    # Rules.

    def apply(self, rule: bytes, catalogue: CommandCatalogue) -> None:
        """Apply one rule. Raises InvalidRule if it is not valid."""
        lower = rule.lower()
        if not rule:
            pass
        elif lower in (b"on", b"off"):
            self.enabled = lower == b"on"
        elif lower in SANITIZE_FLAGS:
            self.sanitize = lower
        elif lower in (b"nopass", b"resetpass"):
            self.nopass, self.passwords = lower == b"nopass", {}
        elif lower == b"reset":
            self._reset()
            self.sanitize = SANITIZE_FLAGS[0]
        elif lower == b"clearselectors":
            del self.selectors[1:]
        elif rule[:1] in b"><#!":
            self._change_password(rule[:1], rule[1:])
        elif rule[:1] == b"(" and rule[-1:] == b")":
            if len(self.selectors) > limits.SELECTORS_MAX:
                raise InvalidRule(TOO_MANY_SELECTORS)
            self.selectors.append(read_selector(rule, catalogue))
        else:
            self.selectors[0].apply(rule, catalogue)

    def _change_password(self, kind: bytes, text: bytes) -> None:
        """Change a password: >password and #digest add it, <password and !digest remove it.

        Raises InvalidRule if the digest is malformed, or the password to remove does not exist.
        """
        if kind in b"#!" and not passwords.is_digest(text):
            raise InvalidRule(NOT_A_DIGEST)
        kept = passwords.digest(text) if kind in b"><" else text
        if kind in b">#":
            self.passwords[kept] = None
            self.nopass = False
        elif kept in self.passwords:
            del self.passwords[kept]
        else:
            raise InvalidRule(NO_SUCH_PASSWORD)

    # Text.

    def flags(self) -> list[bytes]:
        """Return the flags as ACL GETUSER shows them."""
        words = [b"on" if self.enabled else b"off"]
        if self.nopass:
            words.append(b"nopass")
        if self.sanitize:
            words.append(self.sanitize)
        return words

    def user_file_line(self) -> bytes:
        """Return the line of a user file that defines the user."""
        digests = [b"#" + digest for digest in self.passwords]
        others = [b"(" + selector.text() + b")" for selector in self.selectors[1:]]
        return b" ".join([b"user", self.name, *self.flags(), *digests, self.selectors[0].text(), *others])

    # Requests.

    def accepts_password(self, password: bytes) -> bool:
        """Return whether the user is enabled and the password is right."""
        right = passwords.matches_any_digest(password, list(self.passwords))
        return self.enabled and (self.nopass or right)

    @cython.ccall
    def is_unrestricted(self) -> cython.bint:
        """Return whether the user's own selector allows all commands, keys and channels."""
        own: Selector = self.selectors[0]
        return own.all_commands and own.all_keys and own.all_channels

    @cython.ccall
    def denial_code(self, request: AccessRequest) -> cython.longlong:
        """Return 0 if one selector allows the whole request, else the greatest denial code of all."""
        selector: Selector
        found: cython.longlong
        worst: cython.longlong = 0
        for selector in self.selectors:
            found = selector.denial_code(request)
            if not found:
                return 0
            worst = max(worst, found)
        return worst

    def may_subscribe(self, channel: bytes, literal: bool) -> bool:
        """Return whether one selector allows the channel, or the pattern if `literal`."""
        return any(selector.allows_channel(channel, literal) for selector in self.selectors)


def read_selector(rule: bytes, catalogue: CommandCatalogue) -> Selector:
    """Return the selector that rules in parentheses define. Raises InvalidRule if one is not valid."""
    made = Selector()
    for inner in rule[1:-1].split():
        made.apply(inner, catalogue)
    return made


def join_selector_rules(words: list[bytes]) -> list[bytes]:
    """Join the words of each selector into one rule. Raises UnclosedParenthesis if one is not closed."""
    rules: list[bytes] = []
    begun: list[bytes] = []
    for word in words:
        if word[:1] == b"(" and word[-1:] != b")":
            begun = [word]  # an unclosed one before it is dropped, as in Redis
        elif begun:
            begun.append(word)
            if word[-1:] == b")":
                rules.append(b" ".join(begun))
                begun = []
        else:
            rules.append(word)
    if begun:
        raise UnclosedParenthesis(begun[0])
    return rules
