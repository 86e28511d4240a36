"""What a group does with entries that fail: said once, when the group is opened, and never changed.

delivered ──fails──▶ waits first · factor^(n-1) seconds ──▶ delivered again ── … ──▶ dead letters
    │                (still its consumer's, lease renewed)          after max_deliveries
    └─ consumer dies: idle for `lease` seconds, then any other consumer of the group takes it over
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors import UsageError

DELIVERIES_DEFAULT = 5
LEASE_DEFAULT = 30.0
SWEEP_MOST = 5.0
SECONDS_MAX = 1e9  # thirty years: for ever


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds until an entry that failed is due again: `first`, then `factor` times as long, `most` at most.

    >>> [Backoff(first=1, factor=2, most=5).after(n) for n in (1, 2, 3, 4)]
    [1.0, 2.0, 4.0, 5.0]
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 60.0

    def __post_init__(self) -> None:
        numbers = all(isinstance(one, int | float) for one in (self.first, self.factor, self.most))
        if not numbers or not (0 <= self.first <= self.most and self.factor >= 1):
            raise UsageError("a back-off needs 0 <= first <= most, and a factor of at least 1")

    def after(self, deliveries: int) -> float:
        """The seconds to wait after that many deliveries failed, 1 being the first."""
        try:
            return float(min(self.most, self.first * self.factor ** max(0, deliveries - 1)))
        except OverflowError:
            return float(self.most)


@dataclass(frozen=True, slots=True)
class Policy:
    """How a group treats failure. All its consumers should be told the same.

    max_deliveries   how often an entry is handled at most; None: for ever
    dead_letters     the stream for those that failed so often; None: they are acknowledged, and logged
    lease            seconds without a sign of life after which an entry may be taken from its consumer
    backoff          how long an entry that failed waits
    recreate         b"0" or b"$": where a group starts that was lost and is made again; None: NoSuchGroup
    """

    max_deliveries: int | None = DELIVERIES_DEFAULT
    dead_letters: bytes | None = None
    lease: float = LEASE_DEFAULT
    backoff: Backoff = field(default_factory=Backoff)
    recreate: bytes | None = None

    def __post_init__(self) -> None:
        most = self.max_deliveries
        if most is not None and not (isinstance(most, int) and most >= 1):
            raise UsageError("max_deliveries: at least 1, or None for no limit")
        if not isinstance(self.lease, int | float) or not 0.001 <= self.lease <= SECONDS_MAX:
            raise UsageError(f"lease={self.lease!r}: seconds, more than none, and at most {SECONDS_MAX:.0f}")

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return round(self.lease * 1000)

    @property
    def sweep_ms(self) -> int:
        """How often a consumer looks for entries that others left behind."""
        return max(1, round(min(self.lease / 2, SWEEP_MOST) * 1000))


def dead_letter_name(stream: bytes) -> bytes:
    """The stream for a stream's dead letters: of the same slot in a cluster, so that moving there is atomic.

    >>> dead_letter_name(b"orders"), dead_letter_name(b"{shop}orders")
    (b'{orders}:dead', b'{shop}orders:dead')

    A name with a closing brace alone has no such neighbour; it gets `name:dead`, which a cluster refuses.
    """
    _, opened, rest = stream.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    if (opened and closed and tag) or b"}" in stream:
        return stream + b":dead"
    return b"{" + stream + b"}:dead"
