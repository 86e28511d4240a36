"""Declare the rules of streams and groups, which the server applies without a command. Redis has none.

A rule is declared once, as a field of StreamRules or GroupRules: its name, the values it accepts, what it
does. Parsing, error texts, XINFO and the documentation derive from the declaration. Rules are immutable, so
that copies of a stream and snapshots share them.

    XCFGSET orders MAX-AGE 86400000 KEEP-UNACKED 1        sets two rules and leaves the others
    XCFGSET orders MAX-AGE 0                              removes one; so does the value -
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from headrace.errors import CommandError

I64_MAX = (1 << 63) - 1
MILLISECONDS_MAX = 100 * 365 * 86_400_000  # a hundred years: sums of times stay in 64 bits
BACKOFF_VALUES_MAX = 100  # values
REMOVING_VALUES = (b"0", b"-")  # they remove a rule


class InvalidRule(CommandError):
    """A value or a combination of rules that is not accepted. Nothing was changed."""

    def __init__(self, text: str) -> None:
        super().__init__(f"ERR {text}")


@dataclass(frozen=True)
class RuleDeclaration:
    """The declaration of a rule: its name, the values it accepts, how they are parsed and formatted.

    Attributes:
        name: upper case, as in requests.
        accepted_values: the accepted values, for error texts and documentation.
        summary: what the rule does.
        parse: returns the value of an argument; raises ValueError if it is not accepted.
        format_value: returns the argument of a value.
        requires: the names of rules of which one must be set, too; empty for none.
    """

    name: str
    accepted_values: str
    summary: str
    parse: Callable[[bytes], Any]
    format_value: Callable[[Any], bytes]
    requires: tuple[str, ...] = ()


def _integer_parser(most: int) -> Callable[[bytes], int]:
    def parse(word: bytes) -> int:
        if not word.isdigit() or (word.startswith(b"0") and word != b"0") or int(word) > most:
            raise ValueError
        return int(word)

    return parse


def _decimal(value: int) -> bytes:
    return b"%d" % value


def _rule(
    default: Any,
    name: str,
    accepts: str,
    summary: str,
    parse: Callable[[bytes], Any],
    word: Callable[[Any], bytes],
    requires: tuple[str, ...] = (),
) -> Any:
    rule = RuleDeclaration(name, accepts, summary, parse, word, requires)
    return field(default=default, metadata={"rule": rule})


def _count_rule(name: str, summary: str, requires: tuple[str, ...] = ()) -> Any:
    accepts = f"an integer from 1 to {I64_MAX}"
    return _rule(0, name, accepts, summary, _integer_parser(I64_MAX), _decimal, requires)


def _milliseconds_rule(name: str, summary: str, requires: tuple[str, ...] = ()) -> Any:
    accepts = f"milliseconds from 1 to {MILLISECONDS_MAX}"
    return _rule(0, name, accepts, summary, _integer_parser(MILLISECONDS_MAX), _decimal, requires)


def _flag_rule(name: str, summary: str, requires: tuple[str, ...] = ()) -> Any:
    return _rule(False, name, "1", summary, lambda word: bool(_integer_parser(1)(word)), _decimal, requires)


def _parse_discard(word: bytes) -> bool:
    if word.upper() not in (b"OLD", b"NEW"):
        raise ValueError
    return word.upper() == b"NEW"


def _parse_milliseconds_list(word: bytes) -> tuple[int, ...]:
    parse = _integer_parser(MILLISECONDS_MAX)
    found = tuple(parse(item) for item in word.split(b","))
    if len(found) > BACKOFF_VALUES_MAX:
        raise ValueError
    return found


def _parse_name(word: bytes) -> bytes:
    if not word:
        raise ValueError
    return word


@dataclass(frozen=True, slots=True)
class Rules:
    """A set of rules; a rule that is not set has the default value of its field."""

    @classmethod
    def declarations(cls) -> dict[bytes, tuple[str, RuleDeclaration]]:
        """Return for each rule, by its name, the name of its field and its declaration."""
        return DECLARATIONS[cls]

    @classmethod
    def has_rule(cls, word: bytes) -> bool:
        """Return whether the word, in any case, is the name of a rule."""
        return word.upper() in cls.declarations()

    def with_changes(self, words: list[bytes]) -> Self:
        """Return a copy of these rules with changes.

        Args:
            words: alternating names and values; each name must be that of a rule.

        Raises:
            InvalidRule: if a rule occurs twice, or a value or the combination is not accepted.
        """
        changes: dict[str, Any] = {}
        for name, word in zip(words[::2], words[1::2], strict=True):
            attribute, rule = self.declarations()[name.upper()]
            if attribute in changes:
                raise InvalidRule(f"{rule.name} specified multiple times")
            changes[attribute] = _parse_value(type(self), attribute, rule, word)
        found = replace(self, **changes)
        found.check()
        return found

    def check(self) -> None:
        """Raise InvalidRule if a rule is set without one that it requires."""
        given = self.explicit_values()
        for name in given:
            rule = self.declarations()[name.encode()][1]
            if rule.requires and not any(other in given for other in rule.requires):
                raise InvalidRule(f"{name} requires {' or '.join(rule.requires)}")

    def explicit_values(self) -> dict[str, bytes]:
        """Return name and value of each rule that is set, as in requests, in the order of declaration."""
        found = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value != one.default:
                rule: RuleDeclaration = one.metadata["rule"]
                found[rule.name] = rule.format_value(value)
        return found

    def to_arguments(self) -> list[bytes]:
        """Return the arguments of XCFGSET that set these rules on a stream or group without rules."""
        return [word for name, value in self.explicit_values().items() for word in (name.encode(), value)]


def _parse_value(kind: type[Rules], attribute: str, rule: RuleDeclaration, word: bytes) -> Any:
    if word in REMOVING_VALUES:
        return next(one.default for one in fields(kind) if one.name == attribute)
    try:
        return rule.parse(word)
    except ValueError:
        raise InvalidRule(f"{rule.name} must be {rule.accepted_values}; 0 or - removes the rule") from None


# They change neither data nor replies, so each server and replica applies them by itself.
HOT_RULES = ("HOT-BYTES", "HOT-AGE")
LIMIT_RULES = ("MAX-LEN", "MAX-BYTES", "MAX-AGE")


@dataclass(frozen=True, slots=True)
class StreamRules(Rules):
    """The rules of a stream: what it keeps, and what of it stays in memory."""

    max_len: int = _count_rule("MAX-LEN", "Keep at most so many entries.")
    max_bytes: int = _count_rule(
        "MAX-BYTES",
        "Keep at most so many bytes of nodes: those in memory, which MEMORY USAGE counts, and those in files,"
        " `cold-bytes` of XINFO STREAM.",
    )
    max_age_ms: int = _milliseconds_rule(
        "MAX-AGE", "Keep entries that are younger, by the time in their IDs."
    )
    exact: bool = _flag_rule(
        "EXACT", "Trim to the entry; without it whole nodes are removed, as by `~`.", requires=LIMIT_RULES
    )
    keep_unacked: bool = _flag_rule(
        "KEEP-UNACKED",
        "The limits and eviction keep entries that a group has not read or not acknowledged.",
    )
    keep_unarchived: bool = _flag_rule(
        "KEEP-UNARCHIVED", "The limits and eviction keep entries that one of the archives does not have yet."
    )
    drop_acked: bool = _flag_rule(
        "DROP-ACKED", "Remove an entry as soon as all groups, at least one, have acknowledged it."
    )
    discard_new: bool = _rule(
        False,
        "DISCARD",
        "OLD or NEW",
        "NEW: at MAX-LEN or MAX-BYTES reject XADD; OLD, the default: remove the oldest entries.",
        _parse_discard,
        lambda value: b"NEW" if value else b"OLD",
        requires=("MAX-LEN", "MAX-BYTES"),
    )
    strict: bool = _flag_rule(
        "STRICT",
        "Reject commands that would remove entries which KEEP-UNACKED or KEEP-UNARCHIVED keeps.",
        requires=("KEEP-UNACKED", "KEEP-UNARCHIVED"),
    )
    hot_bytes: int = _count_rule(
        "HOT-BYTES", "Keep at most so many bytes of nodes in memory; the oldest others move to files."
    )
    hot_age_ms: int = _milliseconds_rule(
        "HOT-AGE", "Keep entries in memory that are younger, by the time in their IDs; others move to files."
    )

    def limits_memory(self) -> bool:
        """Return whether one of the HOT_RULES is set."""
        return self.hot_bytes > 0 or self.hot_age_ms > 0


@dataclass(frozen=True, slots=True)
class GroupRules(Rules):
    """The rules of a consumer group: how it delivers entries, and when it removes consumers."""

    lease_ms: int = _milliseconds_rule(
        "LEASE", "An entry that is neither acknowledged nor claimed for so long is delivered again."
    )
    backoff_ms: tuple[int, ...] = _rule(
        (),
        "BACKOFF",
        f"1 to {BACKOFF_VALUES_MAX} delays in milliseconds, separated by commas",
        "Delay before the first, second, ... redelivery; the last value repeats.",
        _parse_milliseconds_list,
        lambda delays: b",".join(b"%d" % delay for delay in delays),
        requires=("LEASE",),
    )
    max_deliveries: int = _count_rule(
        "MAX-DELIVERIES", "Instead of one more delivery move the entry to the dead letters.", ("LEASE",)
    )
    dead_letter: bytes = _rule(
        b"",
        "DEAD-LETTER",
        "the key of a stream",
        "The stream for dead letters; `{key}:dead` without this rule.",
        _parse_name,
        lambda name: name,
        requires=("MAX-DELIVERIES",),
    )
    ordered_by: bytes = _rule(
        b"",
        "ORDERED-BY",
        "the name of a field",
        "Entries with the same value of this field are processed one after the other, in stream order.",
        _parse_name,
        lambda name: name,
        requires=("LEASE",),
    )
    max_pending: int = _count_rule(
        "MAX-PENDING", "A consumer with so many pending entries receives no others."
    )
    consumer_ttl_ms: int = _milliseconds_rule(
        "CONSUMER-TTL", "Remove a consumer that was not seen for so long; its entries are delivered again."
    )


DECLARATIONS: dict[type[Rules], dict[bytes, tuple[str, RuleDeclaration]]] = {
    kind: {one.metadata["rule"].name.encode(): (one.name, one.metadata["rule"]) for one in fields(kind)}
    for kind in (StreamRules, GroupRules)
}
NO_STREAM_RULES = StreamRules()
NO_GROUP_RULES = GroupRules()
