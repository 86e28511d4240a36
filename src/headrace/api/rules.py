"""Arguments and replies for the rules of streams and groups, which the server applies automatically."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from headrace.errors import (
    CommandError,
    InvalidSyntax,
    NoSuchKey,
    NotSupported,
    UnknownSubcommand,
    UsageError,
)
from headrace.streams.rules import REMOVING_VALUES

Duration: TypeAlias = float | timedelta  # seconds


def duration_ms(duration: Duration, name: str) -> int:
    """Return whole milliseconds, at least 1. Raises UsageError if the duration is not positive."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e11:
        raise UsageError(f"{name}: must be a positive number of seconds or a timedelta, not {duration!r}")
    return max(1, round(seconds * 1000))


def checked_non_negative(name: str, number: int, hint: str = "") -> int:
    """Return the number. Raises UsageError if it is not a non-negative integer."""
    if not isinstance(number, int) or number < 0:
        raise UsageError(f"{name}={number!r}: must be an integer of at least 0{hint}")
    return number


def rule_limit_or_zero(name: str, number: int | None) -> int:
    """Return a limit; 0 for None, no limit. Raises UsageError if it is not a non-negative integer."""
    return 0 if number is None else checked_non_negative(name, number, ", or None for no limit")


def check_rule_value(name: bytes | None, argument: str) -> None:
    """Raise UsageError if `name` cannot be the value of a rule, because this value removes the rule."""
    if name in REMOVING_VALUES:
        raise UsageError(f"{argument}={name!r}: a rule cannot have this name, which would remove the rule")


def rules_error(rejected: CommandError) -> CommandError:
    """Return the error to raise: NotSupported if the server has no rules, otherwise the rejection itself."""
    if isinstance(rejected, InvalidSyntax | NotSupported | UnknownSubcommand | NoSuchKey):
        return NotSupported(f"{rejected} (rules of streams and groups need a Headrace server)")
    return rejected


def rules_from_reply(reply: Any) -> dict[str, str]:
    """Return the rules in a reply to XINFO, as values by name; {} if there are none."""
    pairs = dict(zip(reply[::2], reply[1::2], strict=True))
    words = [word.decode("utf-8", "surrogateescape") for word in pairs.get(b"rules", ())]
    return dict(zip(words[::2], words[1::2], strict=True))


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Rules by which a Headrace server trims a stream, or moves entries to files: see docs/rules.md.

    >>> db.stream("orders", retention=Retention(max_age=timedelta(days=7), keep_unacked=True))

    None sets no limit.

    Attributes:
        max_len: keep at most this many entries.
        max_bytes: keep at most this many bytes of nodes.
        max_age: keep entries that are younger than this, in seconds or as a timedelta.
        exact: trim entry by entry; False: by whole nodes, which is cheaper.
        keep_unacked: keep what a group has not read or not acknowledged.
        keep_unarchived: keep what is not archived.
        drop_acked: remove an entry as soon as all groups have acknowledged it.
        strict: reject commands that would remove what keep_unacked or keep_unarchived keeps.
        discard: what happens at max_len or max_bytes. `"old"`: the oldest entries are removed. `"new"`: new
            entries are rejected.
        hot_bytes: keep at most this many bytes of nodes in memory; older ones move to files.
        hot_age: keep entries in memory that are younger than this, in seconds or as a timedelta. Others move
            to files.
    """

    max_len: int | None = None
    max_bytes: int | None = None
    max_age: Duration | None = None
    exact: bool = False
    keep_unacked: bool = False
    keep_unarchived: bool = False
    drop_acked: bool = False
    discard: Literal["old", "new"] = "old"
    strict: bool = False
    hot_bytes: int | None = None
    hot_age: Duration | None = None

    def xcfgset_arguments(self) -> list[bytes]:
        """Return the arguments of XCFGSET that set these rules and remove all others.

        Raises:
            UsageError: if a value is invalid.
        """
        if self.discard not in ("old", "new"):
            raise UsageError(f"discard: must be 'old' or 'new', not {self.discard!r}")
        max_len, max_bytes = (
            rule_limit_or_zero("max_len", self.max_len),
            rule_limit_or_zero("max_bytes", self.max_bytes),
        )
        if self.exact and not (max_len or max_bytes or self.max_age is not None):
            raise UsageError("exact=True: needs max_len, max_bytes or max_age")
        rules = {
            b"MAX-LEN": max_len,
            b"MAX-BYTES": max_bytes,
            b"MAX-AGE": 0 if self.max_age is None else duration_ms(self.max_age, "max_age"),
            b"EXACT": int(self.exact),
            b"KEEP-UNACKED": int(self.keep_unacked),
            b"KEEP-UNARCHIVED": int(self.keep_unarchived),
            b"DROP-ACKED": int(self.drop_acked),
            b"STRICT": int(self.strict),
            b"HOT-BYTES": rule_limit_or_zero("hot_bytes", self.hot_bytes),
            b"HOT-AGE": 0 if self.hot_age is None else duration_ms(self.hot_age, "hot_age"),
        }
        found = [word for name, value in rules.items() for word in (name, b"%d" % value)]
        return [*found, b"DISCARD", b"NEW" if self.discard == "new" else b"-"]
