"""A consumer group: how it treats failures, its consumers, its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from headrace.api import handlers
from headrace.api.batch import Batch
from headrace.api.codecs.arguments import (
    IdLike,
    count_argument,
    decode_name,
    encode_name,
    range_end,
    range_start,
    to_stream_id,
)
from headrace.api.consuming.batching import BATCH_SECONDS_DEFAULT, BatchSettings
from headrace.api.consuming.consumer import Consumer
from headrace.api.consuming.dead_letters import DeadLetters
from headrace.api.delivery import Delivery
from headrace.api.handlers import Handler
from headrace.api.info import ConsumerInfo, GroupInfo
from headrace.api.retry_policy import (
    LEASE_DEFAULT,
    MAX_DELIVERIES_DEFAULT,
    Backoff,
    RetryPolicy,
)
from headrace.api.rules import (
    Duration,
    check_rule_value,
    duration_ms,
    rule_limit_or_zero,
    rules_error,
    rules_from_reply,
)
from headrace.api.stream_gaps import OnGap
from headrace.api.stream_id import StreamID, id_from_reply
from headrace.client.server_errors import ADVICE_BY_ERROR_CLASS
from headrace.companion_keys import dead_letter_name
from headrace.errors import CommandError, KeyRequired, NoSuchGroup, NoSuchKey, UsageError

if TYPE_CHECKING:
    from headrace.api.stream import Stream

T = TypeVar("T")
R = TypeVar("R")

PENDING_DEFAULT = 100


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """An entry that was delivered and is not acknowledged.

    Attributes:
        id: the entry's ID.
        consumer: the consumer that has it; "" if it was released to the group.
        idle: seconds since its delivery or the last renewal of its lease; inf if it was released.
        times_delivered: the number of deliveries.
    """

    id: StreamID
    consumer: str
    idle: float
    times_delivered: int


class Group(Generic[T]):
    """A consumer group: each entry of the stream is delivered to one of its consumers.

    >>> billing = orders.group("billing", max_deliveries=5, lease=30.0)
    >>> for entry in billing.consumer("worker-1"):
    ...     send_invoice(entry.value)

    The object only holds the settings. create(), or the first consumer, creates the group on the server if it
    does not exist, and its stream. Methods that need the group raise NoSuchGroup if it or its stream does not
    exist. All consumers of a group should use the same settings.

    Args:
        stream: the stream.
        name: the name of the group.
        start: where a new group starts. `"0"`: at the oldest entry. `"$"`: at entries added from now on. A
            datetime: at entries added then or later. An ID: after that ID. An existing group keeps its
            position.
        max_deliveries: how often an entry is delivered before it becomes a dead letter. None: no limit, also
            for an entry that cannot be decoded; only fail() makes dead letters then.
        dead_letters: the stream for dead letters. None: `{orders}:dead` for the stream `orders`; the braces
            keep both in one slot of a cluster, which is required. False: none; such entries are acknowledged
            and logged.
        lease: seconds after which other consumers claim an entry that its consumer has not renewed. Work may
            take longer, because a consumer renews its entries while its process lives.
        backoff: how long a failed entry waits: Backoff(initial=1, multiplier=2, maximum=60), in seconds.
        ordered_by: the name of a field. Entries with the same value of it are handled one after the other, in
            stream order, by all consumers of the group together. The server does that, and redelivers what
            consumers leave: `lease`, `max_deliveries` and `dead_letters` become rules of the group, see
            docs/rules.md. None: do not change the rules of the group. If a group has the rule LEASE, the
            rule replaces `lease`. If the group also has the rule MAX-DELIVERIES, its rules replace
            `max_deliveries` and `dead_letters`; otherwise these two arguments apply.
        recreate: `"0"` or `"$"`: recreate a deleted group or stream and start there; what other consumers had
            pending is lost. False: consumers raise NoSuchGroup.

    Raises:
        UsageError: if an argument is invalid.
    """

    def __init__(
        self,
        stream: Stream[T],
        name: str | bytes,
        start: IdLike = "0",
        *,
        max_deliveries: int | None = MAX_DELIVERIES_DEFAULT,
        dead_letters: str | bytes | Literal[False] | None = None,
        lease: float = LEASE_DEFAULT,
        backoff: Backoff | None = None,
        ordered_by: str | bytes | None = None,
        recreate: Literal["0", "$", False] = False,
    ) -> None:
        if recreate not in ("0", "$", False):
            raise UsageError(f'recreate={recreate!r}: must be "0", "$" or False')
        if backoff is not None and not isinstance(backoff, Backoff):
            raise UsageError(
                f"backoff={backoff!r}: must be Backoff(initial=1, multiplier=2, maximum=60), in seconds"
            )
        if dead_letters is None:
            dead_letters = dead_letter_name(stream.key)
        dead_letter_key = None if dead_letters is False else encode_name(dead_letters)
        if dead_letter_key == b"":
            raise UsageError("dead_letters: must be the name of a stream, or False for none")
        if dead_letter_key == stream.key:
            raise UsageError("dead_letters: must be another stream than the group's own")
        if ordered_by is not None:
            check_rule_value(encode_name(ordered_by), "ordered_by")
            check_rule_value(dead_letter_key, "dead_letters")
        self.stream = stream
        self.backend = stream.backend
        self.key = encode_name(name)
        self._own_policy = self.policy = RetryPolicy(
            max_deliveries,
            dead_letter_key,
            lease,
            Backoff() if backoff is None else backoff,
            recreate.encode() if recreate else None,
        )
        self.handlers: list[Handler] = []
        self._start = group_start_id(start)
        self._ordered_by = None if ordered_by is None else encode_name(ordered_by)
        self._opened = False  # the group was created, or found to exist

    @property
    def name(self) -> str:
        """The group's name as text."""
        return decode_name(self.key)

    def __repr__(self) -> str:
        return f"Group({self.name!r} of {self.stream!r})"

    def create(self) -> bool:
        """Create the group, and its stream, if they do not exist. With `ordered_by`, also set its rules.

        Returns:
            True; False if the group already existed.

        Raises:
            NotSupported: if the group has `ordered_by`, and the server is not Headrace.
            CommandError: if the server rejects the group.
        """
        created = True
        try:
            self.backend.request(b"XGROUP", b"CREATE", self.stream.key, self.key, self._start, b"MKSTREAM")
        except CommandError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
            created = False
        if self._ordered_by is not None:
            self._set_own_rules(self._ordered_by)
        self._adopt_rules()
        self._opened = True
        return created

    def open(self) -> None:
        """Create the group before its first consumer; later calls do nothing.

        A group that is deleted after that is not created again, unless `recreate` is given.
        """
        if not self._opened:
            self.create()

    def _request(self, *words: bytes) -> Any:
        """Execute a command on the group, and return its reply. Raises NoSuchGroup also without a stream."""
        try:
            return self.backend.request(*words)
        except NoSuchGroup:
            raise self._no_such_group_error() from None
        except CommandError as error:
            if isinstance(error, NoSuchKey) or str(error) == KeyRequired.text:
                raise self._no_such_group_error() from None
            raise

    def _no_such_group_error(self) -> NoSuchGroup:
        return missing_group(self.name, self.stream.name)

    # Rules.

    def set_rules(
        self,
        *,
        lease: Duration | None = None,
        backoff: Sequence[Duration] = (),
        max_deliveries: int | None = None,
        dead_letters: str | bytes | None = None,
        ordered_by: str | bytes | None = None,
        max_pending: int | None = None,
        consumer_ttl: Duration | None = None,
    ) -> None:
        """Replace the rules by which the server delivers to all clients of this group: see docs/rules.md.

        With a lease, the server also redelivers the entries of consumers of this library. Consumers that
        are already running rely on that only after a restart. Durations are seconds or a timedelta.

        Args:
            lease: an entry that is not acknowledged for this long is delivered again; None: never.
            backoff: delays before the first, second, ... redelivery; the last one repeats.
            max_deliveries: after this many deliveries move the entry to the dead letters. None: the server
                has no limit; consumers of this library use the limit of their Group, by default 5.
            dead_letters: the stream of the dead letters; None: `{orders}:dead` for the stream `orders`.
            ordered_by: entries with equal values of this field are processed one after the other.
            max_pending: a consumer with this many pending entries receives no others; None: no limit.
            consumer_ttl: remove a consumer that was not seen for this long; None: never.

        Raises:
            UsageError: if an argument is invalid.
            NoSuchGroup: if the group does not exist.
            NotSupported: if the server is not Headrace.
            CommandError: if the server rejects the combination of rules.
        """
        if isinstance(backoff, str | bytes) or not isinstance(backoff, Iterable):
            raise UsageError(f"backoff={backoff!r}: must be a list of delays, such as [1, 10, 60]")
        delays = b",".join(b"%d" % duration_ms(delay, "backoff") for delay in backoff)
        words = [b"LEASE", b"%d" % (0 if lease is None else duration_ms(lease, "lease"))]
        words += [b"BACKOFF", delays or b"-"]
        words += [b"MAX-DELIVERIES", b"%d" % rule_limit_or_zero("max_deliveries", max_deliveries)]
        target = None if dead_letters is None else encode_name(dead_letters)
        field = None if ordered_by is None else encode_name(ordered_by)
        check_rule_value(target, "dead_letters")
        check_rule_value(field, "ordered_by")
        words += [b"DEAD-LETTER", b"-" if target is None else target]
        words += [b"ORDERED-BY", b"-" if field is None else field]
        words += [b"MAX-PENDING", b"%d" % rule_limit_or_zero("max_pending", max_pending)]
        ttl = 0 if consumer_ttl is None else duration_ms(consumer_ttl, "consumer_ttl")
        words += [b"CONSUMER-TTL", b"%d" % ttl]
        self._send_rules(words)
        self._adopt_rules()

    def _set_own_rules(self, ordered_by: bytes) -> None:
        """Set the rule ORDERED-BY, and those that correspond to the arguments of the group."""
        policy = self._own_policy
        most, target = b"0", b"-"
        if policy.max_deliveries is not None and policy.dead_letters is not None:
            most = b"%d" % policy.max_deliveries
            target = policy.dead_letters
        words = [b"LEASE", b"%d" % policy.lease_ms, b"ORDERED-BY", ordered_by]
        self._send_rules([*words, b"MAX-DELIVERIES", most, b"DEAD-LETTER", target])

    def _send_rules(self, words: list[bytes]) -> None:
        try:
            self._request(b"XGROUP", b"CFGSET", self.stream.key, self.key, *words)
        except CommandError as rejected:
            raise rules_error(rejected) from None

    def _adopt_rules(self) -> None:
        """Let consumers follow the rules of the group, if the server redelivers."""
        self.policy = self._own_policy
        rules = {name: word.encode("utf-8", "surrogateescape") for name, word in self.rules().items()}
        if "LEASE" not in rules:
            return
        delays = [int(delay) for delay in rules.get("BACKOFF", b"0").split(b",")]
        self.policy = replace(
            self._own_policy,
            lease=int(rules["LEASE"]) / 1000,
            server_rule_arguments=tuple(word for name in rules for word in (name.encode(), rules[name])),
            ordered_by=rules.get("ORDERED-BY"),
            server_backoff_max_ms=max(delays),
            consumer_ttl_ms=int(rules.get("CONSUMER-TTL", 0)),
        )
        if "MAX-DELIVERIES" in rules:
            dead_letters = rules.get("DEAD-LETTER", dead_letter_name(self.stream.key))
            most = int(rules["MAX-DELIVERIES"])
            self.policy = replace(
                self.policy, max_deliveries=most, dead_letters=dead_letters, server_limits_deliveries=True
            )

    def rules(self) -> dict[str, str]:
        """Return the rules of the group, by the names that XGROUP CFGSET uses; {} if there are none.

        Raises:
            NoSuchGroup: if the group does not exist.
        """
        return rules_from_reply(self._row())

    def _row(self) -> list[Any]:
        """Return what XINFO GROUPS says about the group."""
        for row in self._request(b"XINFO", b"GROUPS", self.stream.key):
            if row[1] == self.key:
                found: list[Any] = row
                return found
        raise self._no_such_group_error()

    # Consumers.

    def consumer(
        self,
        name: str | bytes | None = None,
        *,
        fetch_count: int | None = None,
        block: float = math.inf,
        concurrency: int = 1,
        ordered_by: Callable[[Delivery[T]], Any] | None = None,
        on_gap: OnGap = "warn",
    ) -> Consumer[T]:
        """Return a consumer of this group; see Consumer. The first consumer creates the group.

        Args:
            name: choose one that no other consumer of the group has, and use it again after a restart:
                then the consumer starts with its unfinished entries. None: a unique name is generated, and
                the consumer is removed when it stops and has no pending entries; after a crash other
                consumers claim its entries when the lease is over.
            fetch_count: as in Consumer.
            block: as in Consumer.
            concurrency: as in Consumer.
            ordered_by: as in Consumer.
            on_gap: as in Consumer.

        Raises:
            UsageError: if an argument is invalid.
            NotSupported: if the group has `ordered_by`, and the server is not Headrace.
            CommandError: if the server rejects the group.
        """
        return Consumer(
            self,
            name,
            fetch_count=fetch_count,
            block=block,
            concurrency=concurrency,
            ordered_by=ordered_by,
            on_gap=on_gap,
        )

    @overload
    def handler(self, function: Callable[[Delivery[T]], R], /) -> Callable[[Delivery[T]], R]: ...
    @overload
    def handler(
        self,
        /,
        *,
        batch: None = ...,
        consumer: str | bytes | None = ...,
        concurrency: int = ...,
        ordered_by: Callable[[Delivery[T]], Any] | None = ...,
        fetch_count: int | None = ...,
        block: float = ...,
        on_gap: OnGap = ...,
    ) -> Callable[[Callable[[Delivery[T]], R]], Callable[[Delivery[T]], R]]: ...
    @overload
    def handler(
        self,
        /,
        *,
        batch: int,
        batch_seconds: float = ...,
        consumer: str | bytes | None = ...,
        concurrency: int = ...,
        ordered_by: Callable[[Delivery[T]], Any] | None = ...,
        fetch_count: int | None = ...,
        block: float = ...,
        on_gap: OnGap = ...,
    ) -> Callable[[Callable[[Batch[T]], R]], Callable[[Batch[T]], R]]: ...

    def handler(
        self,
        function: Callable[[Any], Any] | None = None,
        /,
        *,
        batch: int | None = None,
        batch_seconds: float = BATCH_SECONDS_DEFAULT,
        consumer: str | bytes | None = None,
        concurrency: int = 1,
        ordered_by: Callable[[Delivery[T]], Any] | None = None,
        fetch_count: int | None = None,
        block: float = math.inf,
        on_gap: OnGap = "warn",
    ) -> Any:
        """Register a function that run() calls with each entry. run_async() also accepts an `async def`.

        >>> @billing.handler(consumer="worker-1", concurrency=4, ordered_by=lambda e: e["customer"])
        ... def bill(entry):
        ...     send_invoice(entry.value)
        >>> billing.run()

        When the function returns, the entry is acknowledged. When it raises, the entry is retried after the
        back-off. The function may settle the entry itself with entry.ack(), entry.retry(after=60) or
        entry.fail("no such customer"). Several handlers of a group share its entries. Decorating a function
        creates the group if it does not exist.

        With `batch` the function gets a Batch, which is acknowledged or retried as a whole:

        >>> @warehouse.handler(batch=500)
        ... def insert(batch):
        ...     database.insert_many(batch.values)

        Args:
            function: called with a Delivery, or with a Batch.
            batch: the maximum number of entries of a batch; None: the function gets single entries.
            batch_seconds: `seconds` of Consumer.batches().
            consumer: the name of its consumer, as in consumer().
            concurrency: as in Consumer.
            ordered_by: as in Consumer.
            fetch_count: as in Consumer.
            block: as in Consumer.
            on_gap: as in Consumer.

        Raises:
            UsageError: if the consumer already has a handler, or an argument is invalid.
        """
        batches = None if batch is None else BatchSettings(batch, batch_seconds)

        def register(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
            if not callable(function):
                raise UsageError(
                    f"{function!r} is not a function: write @group.handler(consumer={function!r})"
                )
            made = self.consumer(
                consumer,
                fetch_count=fetch_count,
                block=block,
                concurrency=concurrency,
                ordered_by=ordered_by,
                on_gap=on_gap,
            )
            if any(one.consumer.name == made.name for one in self.handlers):
                raise UsageError(
                    f"consumer {made.name!r} has a handler already; each handler needs its own name"
                )
            self.handlers.append(Handler(function, made, batches))
            return function

        return register if function is None else register(function)

    def run(self, signals: bool = True) -> None:
        """Run the handlers until stop(), SIGTERM or SIGINT.

        Then running handlers finish and their entries are acknowledged. Fetched entries that no handler has
        begun are released: their delivery does not count, and other consumers claim them within seconds.
        Entries that wait for a retry are claimed when it is due. A signal stops all groups that run in the
        process. Then the program's own handler of that signal is called. A second signal has the
        effect that it had before run().

        Args:
            signals: handle SIGTERM and SIGINT. Groups in other threads are stopped, too, if a group runs in
                the main thread, where Python handles signals.

        Raises:
            UsageError: if there is no handler, or one is an `async def`.
            HeadraceError: the error that ended a handler's consumer, such as NoSuchGroup. All handlers are
                stopped then, as by stop().
        """
        handlers.run_handlers(self.handlers, signals)

    async def run_async(self, signals: bool = True) -> None:
        """Run the handlers in asyncio: `async` handlers in this loop, others in threads.

        Args:
            signals: as in run().

        Raises:
            UsageError: if there is no handler.
            HeadraceError: the error that ended a handler's consumer, such as NoSuchGroup.
        """
        from headrace.api import async_handlers

        await async_handlers.run_handlers(self.handlers, self.stop, signals)

    def stop(self) -> None:
        """Make run() return. It may be called from any thread or a signal handler.

        The stop is permanent, also after an error of run(), and a further run() returns at once. To run
        again, open the group again and register its handlers.
        """
        for one in self.handlers:
            one.consumer.stop()

    @property
    def dead_letters(self) -> DeadLetters[T]:
        """The dead letters of this group.

        Raises:
            NoSuchGroup: if the group does not exist.
            UsageError: if the group keeps no dead letters.
        """
        self._adopt_rules()
        name = self.policy.dead_letters
        if name is None:
            raise UsageError("this group keeps no dead letters (dead_letters=False)")
        return DeadLetters(self.backend, name, self.stream.key, self.key, self.stream.codec)

    # State on the server.

    def info(self) -> GroupInfo:
        """Return pending count, lag and more.

        Raises:
            NoSuchGroup: if the group does not exist.
        """
        return GroupInfo.from_reply(self._row())

    def consumers(self) -> list[ConsumerInfo]:
        """Return the consumers of the group.

        Raises:
            NoSuchGroup: if the group does not exist.
        """
        reply = self._request(b"XINFO", b"CONSUMERS", self.stream.key, self.key)
        return [ConsumerInfo.from_reply(one) for one in reply]

    def pending(
        self,
        start: IdLike | None = None,
        end: IdLike | None = None,
        count: int = PENDING_DEFAULT,
        *,
        consumer: str | bytes | None = None,
        idle: float = 0.0,
    ) -> list[PendingEntry]:
        """Return entries that were delivered and are not acknowledged.

        Args:
            start: the first ID; None for the oldest.
            end: the last ID; None for the newest.
            count: the maximum number of entries.
            consumer: only entries of this consumer; None for all.
            idle: only entries that have been idle for at least this many seconds.

        Raises:
            UsageError: if `count` is not a non-negative integer.
            NoSuchGroup: if the group does not exist.
        """
        longer = (b"IDLE", b"%d" % round(idle * 1000)) if idle > 0 else ()
        whose = () if consumer is None else (encode_name(consumer),)
        bounds = (range_start(start), range_end(end), count_argument(count))
        rows = self._request(b"XPENDING", self.stream.key, self.key, *longer, *bounds, *whose)
        return [
            PendingEntry(id_from_reply(id), decode_name(owner), math.inf if ms < 0 else ms / 1000, times)
            for id, owner, ms, times in rows
        ]

    def set_position(self, id: IdLike) -> None:
        """Continue after this ID: `"0"` to read all entries again, `"$"` to read only new ones.

        With a datetime, continue with entries added at that moment or later. Pending entries stay pending.

        Raises:
            NoSuchGroup: if the group does not exist.
        """
        self._request(b"XGROUP", b"SETID", self.stream.key, self.key, group_start_id(id))

    def remove_consumer(self, consumer: str | bytes) -> None:
        """Remove a consumer that no longer runs.

        With the rule ORDERED-BY, its pending entries are left to other consumers.

        Raises:
            NoSuchGroup: if the group does not exist.
            UsageError: if the consumer has pending entries, which would be lost. Wait until another consumer
                has claimed them, which happens when their lease is over.
        """
        if "ORDERED-BY" in self.rules():
            try:
                self._remove_consumer(consumer)
            except NoSuchGroup:
                raise
            except CommandError as rejected:
                raise UsageError(str(rejected).removeprefix("ERR ")) from None
            return
        if rows := self.pending(count=1, consumer=consumer):
            raise UsageError(
                f"{decode_name(encode_name(consumer))!r} has entries pending, {rows[0].id} for one"
            )
        self._remove_consumer(consumer)

    def _remove_consumer(self, consumer: str | bytes) -> None:
        self._request(b"XGROUP", b"DELCONSUMER", self.stream.key, self.key, encode_name(consumer))

    def destroy(self) -> bool:
        """Delete the group and its pending entries; the stream stays. Returns False if it did not exist."""
        try:
            return bool(self._request(b"XGROUP", b"DESTROY", self.stream.key, self.key))
        except NoSuchGroup:
            return False


def missing_group(group: str, stream: str) -> NoSuchGroup:
    """Return the error for a group that does not exist, or whose stream does not."""
    error = NoSuchGroup(f"NOGROUP there is no group {group!r} of stream {stream!r}")
    error.add_note(ADVICE_BY_ERROR_CLASS[NoSuchGroup])
    return error


def group_start_id(id: IdLike) -> bytes:
    """Return the ID after which a group starts: this ID, or "$"; for a datetime, the last ID before it."""
    if isinstance(id, datetime):
        moment = StreamID.at(id)
        return bytes(moment.previous() if moment > StreamID.MIN else moment)
    return b"$" if id in ("$", b"$") else bytes(to_stream_id(id))
