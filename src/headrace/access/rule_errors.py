"""What is wrong with a rule, a user or a file of them, in Redis's words."""

from __future__ import annotations

from headrace.errors import HeadraceError


class InvalidRule(HeadraceError):
    """A rule that cannot be; its text goes behind the rule itself."""


UNKNOWN = "Unknown command or category name in ACL"
SYNTAX = "Syntax error"
FIRST_WORD_OF_SUBCOMMAND = "Allowing first-arg of a subcommand is not supported"
NO_SUCH_PASSWORD = "The password you are trying to remove from the user does not exist"
NOT_A_DIGEST = (
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
)
DUPLICATE_USER = "Duplicate user found. A user can only be defined once in config files"
KEYS_ARE_ALL = (
    "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect."
    " Try 'resetkeys' to start with an empty list of patterns"
)
CHANNELS_ARE_ALL = (
    "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any"
    " effect. Try 'resetchannels' to start with an empty list of channels"
)


class RejectedRule(HeadraceError):
    """One rule of several was refused, and so are all: the rule, and why."""

    def __init__(self, rule: bytes, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule
        self.reason = reason


class OpenParenthesis(HeadraceError):
    """A selector that nothing closes; where it begins."""

    def __init__(self, at: bytes) -> None:
        super().__init__(f"Unmatched parenthesis in acl selector starting at '{to_text(at)}'.")
        self.at = at


class InvalidUserFile(HeadraceError):
    """A file of users that was not taken: every complaint, with its line."""


def to_text(word: bytes) -> str:
    """Bytes as text that turns into the same bytes again."""
    return word.decode("utf-8", "surrogateescape")


def has_blanks(word: bytes) -> bool:
    """Whether the word could not be told apart in a line."""
    return any(byte in b" \t\n\v\f\r\0" for byte in word)
