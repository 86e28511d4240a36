"""A FastStream app that needs no server: its streams are in a directory, the engine is in its own process.

python examples/faststream_app.py [DIRECTORY]

Whatever makes a pool of redis-py's connections takes the database's connection class, and then knows no
difference: groups, acknowledgements and blocking reads are the engine's. What was not handled when the app
ended is in the directory, and pending, when it starts again.
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
    customer: str
    cents: int


class Bill(BaseModel):
    customer: str
    text: str


def build(database: headrace.Database, mailed: list[str]) -> FastStream:
    """An app that bills ORDERS when it starts, mails the bills, notes them in `mailed`, and then ends."""
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
    """Run the app on a database in the directory, or in memory; the bills that were mailed."""
    mailed: list[str] = []
    with headrace.open(directory) as database:
        await build(database, mailed).run()
    return mailed


if __name__ == "__main__":
    print("\n".join(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))))
