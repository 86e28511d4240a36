"""A FastStream app without a server: its streams are in a directory, and the engine is in its process.

python examples/faststream_app.py [DIRECTORY]

Any library that creates a connection pool of redis-py accepts the database's connection class. Groups,
acknowledgements and blocking reads then run in the engine. Entries that were not handled when the app exited
are in the directory, and pending when it starts again.
"""

from __future__ import annotations

import asyncio
import sys

from faststream import FastStream, Logger
from faststream.redis import RedisBroker, StreamSub
from pydantic import BaseModel

import headrace

ORDERS = [("ann", 1250), ("bob", 99), ("ann", 3000)]


class Order(BaseModel):
    """An entry of the stream `orders`."""

    customer: str
    cents: int


class Bill(BaseModel):
    """An entry of the stream `bills`."""

    customer: str
    text: str


def build(database: headrace.Database, mailed: list[str]) -> FastStream:
    """Return an app that adds ORDERS, bills them, appends the bills to `mailed`, and exits."""
    broker = RedisBroker(connection_class=database.async_connection_class())
    app = FastStream(broker)

    @broker.subscriber(stream=StreamSub("orders", group="billing", consumer="one", polling_interval=50))
    @broker.publisher(stream="bills")
    async def bill(order: Order) -> Bill:
        return Bill(customer=order.customer, text=f"{order.customer} owes {order.cents / 100:.2f}")

    @broker.subscriber(stream=StreamSub("bills", group="mail", consumer="one", polling_interval=50))
    async def mail(bill: Bill, logger: Logger) -> None:
        logger.info(bill.text)
        mailed.append(bill.text)
        if len(mailed) == len(ORDERS):
            app.exit()

    @app.after_startup
    async def order() -> None:
        for customer, cents in ORDERS:
            await broker.publish(Order(customer=customer, cents=cents), stream="orders")

    return app


async def main(directory: str | None) -> list[str]:
    """Run the app on a database in a directory or in memory; return the mailed bills."""
    mailed: list[str] = []
    with headrace.open(directory) as database:
        await build(database, mailed).run()
    return mailed


if __name__ == "__main__":
    print("\n".join(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))))
