"""A job queue: four jobs at a time, in order per customer, with retries and dead letters.

python examples/job_queue.py

Pictures are resized by a service that sometimes fails; the job is retried after a delay that doubles. One
picture is broken: after four deliveries it becomes a dead letter, with the error. One job names a file that
is not a picture: it becomes a dead letter at once, because a retry cannot help. At the end the broken picture
is repaired, and its dead letter is retried.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

import headrace
from headrace import Backoff, DeadLetter, Delivery, Group, Stream

CUSTOMERS = ("ann", "bob", "cyn", "dan")


@dataclass
class Job:
    """A job in the queue."""

    customer: str
    picture: str
    width: int = 320


@dataclass
class ResizeService:
    """A service that resizes pictures, and fails at random."""

    generator: random.Random = field(default_factory=lambda: random.Random(2))
    broken: set[str] = field(default_factory=lambda: {"cyn-3.jpg"})
    made: dict[str, list[str]] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def resize(self, job: Job) -> None:
        """Resize a picture. OSError or TimeoutError if it fails."""
        time.sleep(0.005)
        with self.lock:
            self.attempts[job.picture] += 1
            if job.picture in self.broken:
                raise OSError("image file is truncated")
            if self.generator.random() < 0.25:
                raise TimeoutError("the service did not answer")
            self.made.setdefault(job.customer, []).append(job.picture)


def create_group(jobs: Stream[Job], service: ResizeService) -> Group[Job]:
    """Return the consumer group with its handler."""
    group = jobs.group("studio", max_deliveries=4, backoff=Backoff(initial=0.02, multiplier=2, maximum=1))

    # run() returns after `block` seconds without a job; without `block` it runs until SIGTERM.
    @group.handler(consumer="worker-1", concurrency=4, ordered_by=lambda entry: entry["customer"], block=0.3)
    def resize(entry: Delivery[Job]) -> None:
        if not entry.value.picture.endswith(".jpg"):
            entry.fail("not a picture")
            return
        service.resize(entry.value)

    return group


def outcome(name: str, service: ResizeService, letters: list[DeadLetter[Job]]) -> str:
    """Return the result of a job as text."""
    for letter in letters:
        if letter.value.picture == name:
            return f"[red]dead letter[/]: {letter.error}"
    return "done" if service.attempts[name] == 1 else f"done, attempt {service.attempts[name]}"


def main(
    path: Path | None = None, console: Console | None = None
) -> tuple[ResizeService, list[DeadLetter[Job]]]:
    """Run the queue twice; return the service and the dead letters of the first run."""
    console = console or Console()
    service = ResizeService()
    with headrace.open(path) as database:
        jobs = database.stream("jobs", codec=Job)
        pictures = [Job(who, f"{who}-{n}.jpg") for n in range(1, 6) for who in CUSTOMERS]
        jobs.add_many([*pictures, Job("dan", "notes.txt")])

        create_group(jobs, service).run()
        letters = list(jobs.group("studio").dead_letters)
        table = Table("entry", "customer", "picture", "result", title="Jobs")
        for entry in jobs:
            job = entry.value
            table.add_row(str(entry.id), job.customer, job.picture, outcome(job.picture, service, letters))
        console.print(table)

        service.broken.clear()
        group = create_group(jobs, service)
        retried = group.dead_letters.retry(*(each.id for each in letters if "truncated" in each.error))
        group.run()
        console.print(f"Repaired and retried: {retried}; dead letters left: {len(group.dead_letters)}.")
    return service, letters


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)  # otherwise each failure is logged
    main()
