"""The policy of a group for entries that fail: set when the group is opened, and never changed.

delivered ──fails──▶ waits initial · multiplier^(n-1) seconds ──▶ delivered again ── … ──▶ dead letters
    │                (the consumer keeps it, lease renewed)                  after max_deliveries
    └─ consumer dies: idle for `lease` seconds, then any other consumer of the group claims it
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from headrace.errors import UsageError

MAX_DELIVERIES_DEFAULT = 5
LEASE_DEFAULT = 30.0
CLAIM_INTERVAL_MAX_S = 5.0
SECONDS_MAX = 1e9  # thirty years: no limit


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off: how long a failed entry waits before its next delivery.

    >>> [Backoff(initial=1, multiplier=2, maximum=5).delay(n) for n in (1, 2, 3, 4)]
    [1.0, 2.0, 4.0, 5.0]

    Args:
        initial: seconds to wait after the first failure.
        multiplier: each wait is this many times as long as the one before; at least 1.
        maximum: the longest wait in seconds.

    Raises:
        UsageError: unless 0 <= initial <= maximum and multiplier >= 1.
    """

    initial: float = 1.0
    multiplier: float = 2.0
    maximum: float = 60.0

    def __post_init__(self) -> None:
        numbers = all(isinstance(one, int | float) for one in (self.initial, self.multiplier, self.maximum))
        if not numbers or not (0 <= self.initial <= self.maximum and self.multiplier >= 1):
            raise UsageError("a back-off needs 0 <= initial <= maximum and multiplier >= 1")

    def delay(self, deliveries: int) -> float:
        """Return the seconds to wait after that many failed deliveries, 1 being the first."""
        try:
            return float(min(self.maximum, self.initial * self.multiplier ** max(0, deliveries - 1)))
        except OverflowError:
            return float(self.maximum)


@dataclass(frozen=True)
class RetryPolicy:
    """How a group treats failures; see Group for the meaning of each setting.

    Attributes:
        max_deliveries: the most deliveries of an entry; None: no limit.
        dead_letters: the stream for entries that failed max_deliveries times; None: such entries are
            acknowledged and logged.
        lease: seconds without a renewal after which another consumer may claim an entry.
        backoff: how long a failed entry waits.
        recreate_start: b"0" or b"$": where a recreated group starts; None: raise NoSuchGroup.
        server_rule_arguments: the arguments of XGROUP CFGSET that set the rules of the group, if it has the
            rule LEASE. Then the server redelivers, and consumers do not look for idle entries. Empty: the
            group has no such rule.
        ordered_by: the field of the rule ORDERED-BY; None: there is no such rule.
        server_limits_deliveries: the group has the rules LEASE and MAX-DELIVERIES, so the server itself moves
            an entry to the dead letters instead of delivering it too often.
        server_backoff_max_ms: the longest delay of the rule BACKOFF.
        consumer_ttl_ms: the value of the rule CONSUMER-TTL, which ends leases of inactive consumers; 0: there
            is no such rule.
    """

    max_deliveries: int | None = MAX_DELIVERIES_DEFAULT
    dead_letters: bytes | None = None
    lease: float = LEASE_DEFAULT
    backoff: Backoff = field(default_factory=Backoff)
    recreate_start: bytes | None = None
    server_rule_arguments: tuple[bytes, ...] = ()
    ordered_by: bytes | None = None
    server_limits_deliveries: bool = False
    server_backoff_max_ms: int = 0
    consumer_ttl_ms: int = 0

    def __post_init__(self) -> None:
        most = self.max_deliveries
        if most is not None and not (isinstance(most, int) and most >= 1):
            raise UsageError("max_deliveries: must be at least 1, or None for no limit")
        if not isinstance(self.lease, int | float) or not 0.001 <= self.lease <= SECONDS_MAX:
            raise UsageError(f"lease={self.lease!r}: must be seconds from 0.001 to {SECONDS_MAX:.0f}")

    @cached_property  # read for each entry
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return round(self.lease * 1000)

    @cached_property
    def ownership_ms(self) -> int:
        """Milliseconds after the renewal of an entry in which no other consumer receives the entry."""
        return min(self.lease_ms, self.consumer_ttl_ms or self.lease_ms)

    @property
    def released_idle_ms(self) -> int:
        """The idle time that makes a released entry available to other consumers at once."""
        return self.lease_ms + self.server_backoff_max_ms

    @property
    def claim_interval_ms(self) -> int:
        """How often a consumer looks for idle entries of others, in milliseconds."""
        return max(1, round(min(self.lease / 2, CLAIM_INTERVAL_MAX_S) * 1000))
