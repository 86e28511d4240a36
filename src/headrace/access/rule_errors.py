"""What is wrong with a rule, a user or a file of them, in Redis's words."""

from __future__ import annotations

from headrace.errors import HeadraceError


class BadRule(HeadraceError):
    """A rule that cannot be; its text goes behind the rule itself."""


UNKNOWN = "Unknown command or category name in ACL"
SYNTAX = "Syntax error"
FIRST_WORD_OF_SUBCOMMAND = "Allowing first-arg of a subcommand is not supported"
NO_SUCH_PASSWORD = "The password you are trying to remove from the user does not exist"
NOT_A_DIGEST = (
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
)
TWICE = "Duplicate user found. A user can only be defined once in config files"
KEYS_ARE_ALL = (
    "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect."
    " Try 'resetkeys' to start with an empty list of patterns"
)
CHANNELS_ARE_ALL = (
    "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any"
    " effect. Try 'resetchannels' to start with an empty list of channels"
)


class RefusedRule(HeadraceError):
    """One rule of several was refused, and so are all: the rule, and why."""

    def __init__(self, rule: bytes, why: str) -> None:
        super().__init__(why)
        self.rule = rule
        self.why = why


class OpenParenthesis(HeadraceError):
    """A selector that nothing closes; where it begins."""

    def __init__(self, at: bytes) -> None:
        super().__init__(f"Unmatched parenthesis in acl selector starting at '{shown(at)}'.")
        self.at = at


class BadFile(HeadraceError):
    """A file of users that was not taken: every complaint, with its line."""


def shown(word: bytes) -> str:
    """Bytes as text that turns into the same bytes again."""
    return word.decode("utf-8", "surrogateescape")


def has_blanks(word: bytes) -> bool:
    """Whether the word could not be told apart in a line."""
    return any(byte in b" \t\n\v\f\r\0" for byte in word)
