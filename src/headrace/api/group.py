"""A consumer group as a Python program holds it: what it does with failures, its consumers, its state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from headrace.api import handlers
from headrace.api.codecs.arguments import IdLike, count_word, end_word, id_of, name_of, shown, start_word
from headrace.api.consuming.consumer import Consumer
from headrace.api.consuming.dead_letters import DeadLetters
from headrace.api.delivery import Delivery
from headrace.api.handlers import Handler
from headrace.api.info import ConsumerInfo, GroupInfo
from headrace.api.retry_policy import DELIVERIES_DEFAULT, LEASE_DEFAULT, Backoff, Policy, dead_letter_name
from headrace.api.stream_id import StreamID, from_reply
from headrace.errors import CommandError, NoSuchGroup, UsageError

if TYPE_CHECKING:
    from headrace.api.stream import Stream

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[[Any], Any])

PENDING_DEFAULT = 100


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """An entry that was delivered and not acknowledged.

    consumer           who has it; "" when it was given back to the group
    idle               seconds since it was delivered, or its lease renewed; inf when it was given back
    times_delivered    how often
    """

    id: StreamID
    consumer: str
    idle: float
    times_delivered: int


class Group(Generic[T]):
    """A consumer group: each entry of the stream goes to one of its consumers.

    >>> billing = orders.group("billing", max_deliveries=5, lease=30.0)
    >>> for entry in billing.consumer("worker-1"):
    ...     send_invoice(entry.value)

    start           where a group that is made begins: "0" at the oldest entry, "$" at what is added from
                    now on, a datetime at that moment, an ID behind it. A group that is there goes on where
                    it is
    max_deliveries  how often an entry is handled before it is given up; None: for ever
    dead_letters    the stream to which it goes then; None: `{orders}:dead` for the stream `orders`, braces
                    included: so in a cluster both are on one server, as they must be. False: none, what is
                    given up is acknowledged and logged
    lease           seconds without a sign of life from a consumer, after which others take over its entries.
                    Work that takes longer is fine: the lease is renewed as long as the process lives
    backoff         how long an entry that failed waits: Backoff(first=1, factor=2, most=60), in seconds
    recreate        "0" or "$": when the group was destroyed, or its stream deleted, make it again, and begin
                    there; False: consumers raise NoSuchGroup. What other consumers had pending is forgotten

    All consumers of a group should be told the same. NoSuchGroup and other refusals are in headrace.errors.
    """

    def __init__(
        self,
        stream: Stream[T],
        name: str | bytes,
        start: IdLike = "0",
        *,
        max_deliveries: int | None = DELIVERIES_DEFAULT,
        dead_letters: str | bytes | Literal[False] | None = None,
        lease: float = LEASE_DEFAULT,
        backoff: Backoff | None = None,
        recreate: Literal["0", "$", False] = False,
    ) -> None:
        if recreate not in ("0", "$", False):
            raise UsageError(f'recreate={recreate!r}: "0" or "$", where it begins, or False')
        if backoff is not None and not isinstance(backoff, Backoff):
            raise UsageError(f"backoff={backoff!r}: it is Backoff(first=1, factor=2, most=60), in seconds")
        if dead_letters is None:
            dead_letters = dead_letter_name(stream.key)
        buried = None if dead_letters is False else name_of(dead_letters)
        if buried == b"":
            raise UsageError("dead_letters: the name of a stream, or False for none")
        if buried == stream.key:
            raise UsageError("dead_letters: another stream than the one they are from")
        self.stream = stream
        self.link = stream.link
        self.key = name_of(name)
        self.policy = Policy(
            max_deliveries,
            buried,
            lease,
            Backoff() if backoff is None else backoff,
            recreate.encode() if recreate else None,
        )
        self.handlers: list[Handler] = []
        self._start = id_word(start)
        self.create()

    @property
    def name(self) -> str:
        """The group's name as text."""
        return shown(self.key)

    def __repr__(self) -> str:
        return f"Group({self.name!r} of {self.stream!r})"

    def create(self) -> bool:
        """Make the group, and its stream if there is none; False if it was there. Group() does so."""
        try:
            self.link.execute(b"XGROUP", b"CREATE", self.stream.key, self.key, self._start, b"MKSTREAM")
        except CommandError as refused:
            if str(refused).startswith("BUSYGROUP"):
                return False
            raise
        return True

    # Consumers.

    def consumer(
        self,
        name: str | bytes | None = None,
        *,
        batch: int | None = None,
        block: float = math.inf,
        concurrency: int = 1,
        ordered_by: Callable[[Delivery[T]], Any] | None = None,
    ) -> Consumer[T]:
        """One who handles entries; see Consumer.

        Give each its own name, the same after a restart: then it begins with what it had not finished.
        Without a name it gets one that nobody has, and that is removed when it ends in order; what it leaves
        behind otherwise is taken over when the lease is over.
        """
        return Consumer(self, name, batch=batch, block=block, concurrency=concurrency, ordered_by=ordered_by)

    @overload
    def handler(self, function: Function, /) -> Function: ...
    @overload
    def handler(
        self,
        /,
        *,
        consumer: str | bytes | None = ...,
        concurrency: int = ...,
        ordered_by: Callable[[Delivery[T]], Any] | None = ...,
        batch: int | None = ...,
        block: float = ...,
    ) -> Callable[[Function], Function]: ...

    def handler(
        self,
        function: Function | None = None,
        /,
        *,
        consumer: str | bytes | None = None,
        concurrency: int = 1,
        ordered_by: Callable[[Delivery[T]], Any] | None = None,
        batch: int | None = None,
        block: float = math.inf,
    ) -> Any:
        """Have a function called with each entry by run(), or by run_async(), which takes `async def`, too.

        >>> @billing.handler(consumer="worker-1", concurrency=4, ordered_by=lambda e: e["customer"])
        ... def bill(entry):
        ...     send_invoice(entry.value)
        >>> billing.run()

        When it returns the entry is acknowledged; when it raises, it is tried again after the back-off. It
        may settle the entry itself by entry.ack(), entry.retry(after=60) or entry.fail("no such customer").
        Several handlers of a group share its entries.
        """

        def register(function: Function) -> Function:
            if not callable(function):
                raise UsageError(f"{function!r} is no function: say @group.handler(consumer={function!r})")
            made = self.consumer(
                consumer, batch=batch, block=block, concurrency=concurrency, ordered_by=ordered_by
            )
            if any(one.consumer.name == made.name for one in self.handlers):
                raise UsageError(f"consumer {made.name!r} has a handler already: each needs its own name")
            self.handlers.append(Handler(function, made))
            return function

        return register if function is None else register(function)

    def run(self, signals: bool = True) -> None:
        """Run the handlers until stop(), SIGTERM or SIGINT. Then what runs is finished and acknowledged.

        What was fetched and not begun is given back: its delivery does not count, and other consumers take it
        within seconds. What waits for its next try, they take when that is due. A second signal does what it
        always does. Signals are taken in the main thread only; signals=False leaves them alone.

        Raises what made a handler's consumer end, when that was not stop(): NoSuchGroup for example.
        """
        handlers.run(self.handlers, signals)

    async def run_async(self, signals: bool = True) -> None:
        """The same in asyncio: async handlers run in this loop, others in threads."""
        await import_module("headrace.api.consuming.async_consumer").run_handlers(self, signals)

    def stop(self) -> None:
        """Have run() return, from any thread or a signal handler.

        It is for good, as a signal is: to run once more open the group anew, with its handlers.
        """
        for one in self.handlers:
            one.consumer.stop()

    @property
    def dead_letters(self) -> DeadLetters[T]:
        """What was given up. UsageError for a group without dead letters."""
        name = self.policy.dead_letters
        if name is None:
            raise UsageError("this group was told to keep no dead letters")
        return DeadLetters(self.link, name, self.stream.key, self.key, self.stream.codec)

    # What the server knows of it.

    def info(self) -> GroupInfo:
        """Pending, lag and more. NoSuchGroup if it is gone."""
        for one in self.stream.groups():
            if name_of(one.name) == self.key:
                return one
        raise NoSuchGroup(f"NOGROUP there is no group {self.name!r} of stream {self.stream.name!r}")

    def consumers(self) -> list[ConsumerInfo]:
        """Those who have a name in the group."""
        reply = self.link.execute(b"XINFO", b"CONSUMERS", self.stream.key, self.key)
        return [ConsumerInfo.read(one) for one in reply]

    def pending(
        self,
        start: IdLike | None = None,
        end: IdLike | None = None,
        count: int = PENDING_DEFAULT,
        *,
        consumer: str | bytes | None = None,
        idle: float = 0.0,
    ) -> list[PendingEntry]:
        """Entries delivered and not acknowledged, of one consumer or all, idle for so many seconds."""
        longer = (b"IDLE", b"%d" % round(idle * 1000)) if idle > 0 else ()
        whose = () if consumer is None else (name_of(consumer),)
        bounds = (start_word(start), end_word(end), count_word(count))
        rows = self.link.execute(b"XPENDING", self.stream.key, self.key, *longer, *bounds, *whose)
        return [
            PendingEntry(from_reply(id), shown(owner), math.inf if ms < 0 else ms / 1000, times)
            for id, owner, ms, times in rows
        ]

    def set(self, id: IdLike) -> None:
        """Go on behind this ID: "0" for everything once more, "$" for only what is added from now on.

        A datetime is for what was added at that moment or later. What is pending stays so.
        """
        self.link.execute(b"XGROUP", b"SETID", self.stream.key, self.key, id_word(id))

    def remove(self, consumer: str | bytes) -> None:
        """Remove the name of a consumer that runs no longer. UsageError while it has entries pending.

        They would be lost; let another consumer run until the lease is over, and it takes them over.
        """
        if rows := self.pending(count=1, consumer=consumer):
            raise UsageError(f"{shown(name_of(consumer))!r} has entries pending, {rows[0].id} for one")
        self.link.execute(b"XGROUP", b"DELCONSUMER", self.stream.key, self.key, name_of(consumer))

    def destroy(self) -> bool:
        """Remove the group and all that it knows; False if it was not there. The stream stays."""
        try:
            return bool(self.link.execute(b"XGROUP", b"DESTROY", self.stream.key, self.key))
        except CommandError as refused:
            if str(refused).startswith("ERR The XGROUP subcommand requires the key to exist"):
                return False
            raise


def id_word(id: IdLike) -> bytes:
    """Where a group goes on: behind this ID, "0" or "$"; for a datetime, at that moment."""
    if isinstance(id, datetime):
        moment = StreamID.at(id)
        return bytes(moment.previous() if moment > StreamID.MIN else moment)
    return b"$" if id in ("$", b"$") else bytes(id_of(id))
