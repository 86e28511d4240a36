"""Errors in ACL rules, users and user files, with Redis's texts."""

from __future__ import annotations

from headrace import limits
from headrace.errors import HeadraceError, to_text


class InvalidRule(HeadraceError):
    """A rule is invalid; the text is shown after the rule."""


UNKNOWN_COMMAND_OR_CATEGORY = "Unknown command or category name in ACL"
SYNTAX_ERROR = "Syntax error"
FIRST_WORD_OF_SUBCOMMAND = "Allowing first-arg of a subcommand is not supported"
NO_SUCH_PASSWORD = "The password you are trying to remove from the user does not exist"
NOT_A_DIGEST = (
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
)
DUPLICATE_USER = "Duplicate user found. A user can only be defined once in config files"
TOO_MANY_SELECTORS = f"a user can have at most {limits.SELECTORS_MAX} selectors"
PATTERN_AFTER_ALL_KEYS = (
    "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect."
    " Try 'resetkeys' to start with an empty list of patterns"
)
PATTERN_AFTER_ALL_CHANNELS = (
    "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any"
    " effect. Try 'resetchannels' to start with an empty list of channels"
)


class RejectedRule(HeadraceError):
    """One of several rules was rejected, so none was applied."""

    def __init__(self, rule: bytes, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule
        self.reason = reason


class UnclosedParenthesis(HeadraceError):
    """A selector's parenthesis is not closed; `selector_start` is the word with which it begins."""

    def __init__(self, at: bytes) -> None:
        super().__init__(f"Unmatched parenthesis in acl selector starting at '{to_text(at)}'.")
        self.selector_start = at


class InvalidUserFile(HeadraceError):
    """A file of users was rejected; the text has all problems, each with its line."""


def has_blanks(word: bytes) -> bool:
    """Return whether the word contains white space or NUL."""
    return any(byte in b" \t\n\v\f\r\0" for byte in word)
