"""Declare handlers at import time, and run them later on a database that the caller passes.

import time     @app.handler("orders", group="billing", codec=Order)     a Declaration: no connection
run time        app.run(db), app.run_async(db), app.run_once(db)         groups and consumers of that db
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, overload

from headrace.api import async_handlers
from headrace.api.batch import Batch
from headrace.api.codecs.arguments import IdLike, decode_name, encode_name
from headrace.api.codecs.codec import Codec, RawFields, codec_for
from headrace.api.consuming.batching import BATCH_SECONDS_DEFAULT, BatchSettings
from headrace.api.consuming.in_flight import Counters
from headrace.api.database import Database
from headrace.api.delivery import Delivery
from headrace.api.handlers import Handler, is_async_function, run_handlers
from headrace.api.retry_policy import Backoff
from headrace.api.stream_gaps import OnGap
from headrace.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")
CONSUMER_OPTIONS = ("consumer", "concurrency", "fetch_count", "on_gap")


class EntryDecorator(Protocol[T]):
    """Decorates a handler of single entries, sync or async; returns the function unchanged."""

    def __call__(self, function: Callable[[Delivery[T]], R], /) -> Callable[[Delivery[T]], R]:
        """Declare the function as a handler."""


class BatchDecorator(Protocol[T]):
    """Decorates a handler of batches, sync or async; returns the function unchanged."""

    def __call__(self, function: Callable[[Batch[T]], R], /) -> Callable[[Batch[T]], R]:
        """Declare the function as a handler."""


class HandlerOptions(TypedDict, total=False):
    """Further arguments of App.handler(): all are optional.

    Attributes:
        consumer: the name of the handler's consumer, unique in its group; None: a generated one.
        concurrency: as in Consumer.
        fetch_count: as in Consumer.
        ordered_by: a function, as in Consumer; or the name of a field, as in Group.
        on_gap: as in Consumer.
        start: as in Group.
        max_deliveries: as in Group.
        dead_letters: as in Group.
        lease: as in Group.
        backoff: as in Group.
        recreate: as in Group.
    """

    consumer: str | bytes | None
    concurrency: int
    fetch_count: int | None
    ordered_by: str | bytes | Callable[[Delivery[Any]], Any] | None
    on_gap: OnGap
    start: IdLike
    max_deliveries: int | None
    dead_letters: str | bytes | Literal[False] | None
    lease: float
    backoff: Backoff | None
    recreate: Literal["0", "$", False]


@dataclass(frozen=True, slots=True)
class HandlerDeclaration:
    """A declared handler: its function, its stream and group by name, and settings. No database yet."""

    function: Callable[[Any], Any]
    stream: str | bytes
    group: str | bytes
    codec: Any
    batch_settings: BatchSettings | None
    consumer_settings: dict[str, Any]
    group_settings: dict[str, Any]

    @property
    def stream_and_group_names(self) -> tuple[bytes, bytes]:
        """The keys of the stream and of the group."""
        return encode_name(self.stream), encode_name(self.group)

    def create_handler(self, db: Database, block: float) -> Handler:
        """Create a consumer, and its group if it does not exist; return the handler for this consumer."""
        group = db.stream(self.stream, self.codec).group(self.group, **self.group_settings)
        settings = dict(self.consumer_settings)
        consumer = group.consumer(settings.pop("consumer", None), block=block, **settings)
        return Handler(self.function, consumer, self.batch_settings)


class App:
    """Handlers of a program, declared when it is imported, without a database.

    >>> app = headrace.App()
    >>> @app.handler("orders", group="billing", codec=Order)
    ... def bill(entry: headrace.Delivery[Order]) -> None:
    ...     send_invoice(entry.value)
    >>> app.run(headrace.connect("redis://127.0.0.1:7777"))

    A handler is typed by the codec: mypy rejects one whose parameter has another type.
    """

    def __init__(self) -> None:
        self._declarations: list[HandlerDeclaration] = []
        self._running: list[Sequence[Handler]] = []

    # fmt: off
    @overload
    def handler(
        self, stream: str | bytes, *, group: str | bytes, codec: None = ..., batch: None = ...,
        **options: Unpack[HandlerOptions],
    ) -> EntryDecorator[RawFields]: ...
    @overload
    def handler(
        self, stream: str | bytes, *, group: str | bytes, codec: Literal["text"], batch: None = ...,
        **options: Unpack[HandlerOptions],
    ) -> EntryDecorator[dict[str, str]]: ...
    @overload
    def handler(
        self, stream: str | bytes, *, group: str | bytes, codec: Literal["json"], batch: None = ...,
        **options: Unpack[HandlerOptions],
    ) -> EntryDecorator[Any]: ...
    @overload
    def handler(
        self, stream: str | bytes, *, group: str | bytes, codec: type[T] | Codec[T], batch: None = ...,
        **options: Unpack[HandlerOptions],
    ) -> EntryDecorator[T]: ...
    @overload
    def handler(
        self, stream: str | bytes, *, group: str | bytes, codec: None = ..., batch: int,
        batch_seconds: float = ..., **options: Unpack[HandlerOptions],
    ) -> BatchDecorator[RawFields]: ...
    @overload
    def handler(
        self, stream: str | bytes, *, group: str | bytes, codec: Literal["text"], batch: int,
        batch_seconds: float = ..., **options: Unpack[HandlerOptions],
    ) -> BatchDecorator[dict[str, str]]: ...
    @overload
    def handler(
        self, stream: str | bytes, *, group: str | bytes, codec: Literal["json"], batch: int,
        batch_seconds: float = ..., **options: Unpack[HandlerOptions],
    ) -> BatchDecorator[Any]: ...
    @overload
    def handler(
        self, stream: str | bytes, *, group: str | bytes, codec: type[T] | Codec[T], batch: int,
        batch_seconds: float = ..., **options: Unpack[HandlerOptions],
    ) -> BatchDecorator[T]: ...
    # fmt: on

    def handler(
        self,
        stream: str | bytes,
        *,
        group: str | bytes,
        codec: Any = None,
        batch: int | None = None,
        batch_seconds: float = BATCH_SECONDS_DEFAULT,
        **options: Unpack[HandlerOptions],
    ) -> Any:
        """Declare a function that is called with each entry of a group; it may be an `async def`.

        >>> @app.handler("clicks", group="warehouse", codec=Click, batch=500, concurrency=2)
        ... async def insert(batch: headrace.Batch[Click]) -> None:
        ...     await database.insert_many(batch.values)

        The entry or batch is acknowledged when the function returns, and retried when it raises, as for
        Group.handler(). Several handlers of a group share its entries.

        Args:
            stream: the name of the stream.
            group: the name of the group; running the app creates it if it does not exist.
            codec: as in Database.stream().
            batch: the maximum number of entries of a batch; None: the function gets single entries.
            batch_seconds: `seconds` of Consumer.batches().
            options: see HandlerOptions.

        Raises:
            UsageError: if an argument is invalid, another handler has the same consumer, or handlers of one
                group have different settings of the group.
            CodecError: as for Database.stream().
        """
        unknown = sorted(options.keys() - HandlerOptions.__annotations__.keys())
        if unknown:
            known = ", ".join(HandlerOptions.__annotations__)
            raise UsageError(f"unknown option {unknown[0]!r} of a handler; there are {known}")
        codec_for(codec)  # raises CodecError here, and not when the app runs
        batches = None if batch is None else BatchSettings(batch, batch_seconds)
        # Names may be text or bytes: as text they can be compared.
        settings = {
            name: decode_name(value) if isinstance(value, bytes) else value for name, value in options.items()
        }
        consumer_settings = {name: value for name, value in settings.items() if name in CONSUMER_OPTIONS}
        group_settings = {name: value for name, value in settings.items() if name not in CONSUMER_OPTIONS}
        if callable(group_settings.get("ordered_by")):
            consumer_settings["ordered_by"] = group_settings.pop("ordered_by")

        def declare(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
            if not callable(function):
                raise UsageError(f"{function!r} is not a function: @app.handler(...) decorates one")
            made = HandlerDeclaration(
                function, stream, group, codec, batches, consumer_settings, group_settings
            )
            self._check(made)
            self._declarations.append(made)
            return function

        return declare

    def _check(self, new: HandlerDeclaration) -> None:
        """Raise UsageError if a declaration contradicts an earlier one of its group."""
        name = new.consumer_settings.get("consumer")
        for other in self._declarations:
            if other.stream_and_group_names != new.stream_and_group_names:
                continue
            if other.group_settings != new.group_settings:
                raise UsageError(
                    f"handlers of group {new.group!r} have different settings: {other.group_settings}"
                    f" and {new.group_settings}"
                )
            if name is not None and other.consumer_settings.get("consumer") == name:
                raise UsageError(f"consumer {name!r} has a handler already; each handler needs its own name")

    def run(self, db: Database, signals: bool = True) -> None:
        """Run all handlers until stop(), SIGTERM or SIGINT. A signal stops all groups of the process.

        Running handlers finish and their entries are acknowledged. Entries that no handler has begun are
        released. Then the program's own handler of the signal is called. If a handler is an `async def`, an
        event loop runs here.

        Args:
            db: the database with the streams.
            signals: handle SIGTERM and SIGINT; see Group.run().

        Raises:
            UsageError: if there is no handler.
            HeadraceError: the error that ended a handler's consumer, such as NoSuchGroup.
        """
        if any(is_async_function(one.function) for one in self._declarations):
            asyncio.run(self.run_async(db, signals))
            return
        handlers = self._create_handlers(db, math.inf)
        with self._registered(handlers):
            run_handlers(handlers, signals)

    async def run_async(self, db: Database, signals: bool = True) -> None:
        """Run all handlers in asyncio: `async` handlers in this loop, others in threads. See run()."""
        handlers = await asyncio.to_thread(self._create_handlers, db, math.inf)
        with self._registered(handlers):
            await async_handlers.run_handlers(handlers, lambda: stop_handlers(handlers), signals)

    def run_once(self, db: Database) -> Counters:
        """Handle the entries that exist, and those that handlers add meanwhile, and return. For tests.

        >>> orders.add(Order("ann", cents=1250))
        >>> assert app.run_once(db).handled == 1

        An entry whose handler raised is retried only if its back-off ends while other entries are handled.
        Otherwise the entry stays pending.

        Args:
            db: the database with the streams.

        Returns:
            The sum of the counters of all handlers.

        Raises:
            UsageError: if there is no handler.
            HeadraceError: the error that ended a handler's consumer, such as NoSuchGroup.
        """
        if any(is_async_function(one.function) for one in self._declarations):
            return asyncio.run(self.run_once_async(db))
        total = Counters()
        while True:
            handlers = self._create_handlers(db, 0.0)
            with self._registered(handlers):
                run_handlers(handlers, signals=False)
            if not add_counters_check_progress(total, handlers):
                return total

    async def run_once_async(self, db: Database) -> Counters:
        """Do what run_once() does, in asyncio."""
        total = Counters()
        while True:
            handlers = await asyncio.to_thread(self._create_handlers, db, 0.0)
            with self._registered(handlers):
                await async_handlers.run_handlers(handlers, lambda: None, False)
            if not add_counters_check_progress(total, handlers):
                return total

    def stop(self) -> None:
        """Make current calls of run() and run_async() return. Any thread or a signal handler may call it."""
        for handlers in self._running[:]:
            stop_handlers(handlers)

    def _create_handlers(self, db: Database, block: float) -> Sequence[Handler]:
        if not isinstance(db, Database):
            raise UsageError(
                f"db={db!r}: must be a Database, such as headrace.connect(url) or headrace.open(path)"
            )
        return [one.create_handler(db, block) for one in self._declarations]

    @contextmanager
    def _registered(self, handlers: Sequence[Handler]) -> Iterator[None]:
        """Let stop() end these handlers."""
        self._running.append(handlers)
        try:
            yield
        finally:
            self._running.remove(handlers)

    def __repr__(self) -> str:
        return f"App({len(self._declarations)} handlers)"


def stop_handlers(handlers: Sequence[Handler]) -> None:
    """End the consumers of these handlers."""
    for one in handlers:
        one.consumer.stop()


def add_counters_check_progress(total: Counters, handlers: Sequence[Handler]) -> bool:
    """Add the handlers' counters to `total`; return whether an entry was handled or dead-lettered.

    `skipped` is added once for each group.
    """
    skipped: dict[tuple[bytes, bytes], int] = {}  # by stream and group: each of its consumers counts them
    for each in handlers:
        counters, key = each.consumer.counters, each.consumer.stream_and_group_names
        for field in fields(Counters):
            if field.name != "skipped":
                setattr(total, field.name, getattr(total, field.name) + getattr(counters, field.name))
        skipped[key] = max(skipped.get(key, 0), counters.skipped)
    total.skipped += sum(skipped.values())
    return any(each.consumer.counters.handled + each.consumer.counters.dead_lettered for each in handlers)
