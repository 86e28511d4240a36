"""A job queue: four jobs at a time, those of one customer in order, failures tried again or put aside.

python examples/job_queue.py

Pictures are to be made smaller. The service that does it fails now and then: the job is tried again after a
pause that doubles. One picture is broken: after four deliveries it is a dead letter, with the error. One job
names a file that is no picture: it is put aside at once, for trying again is no use. In the end the broken
picture is mended, and its dead letter is given to the group once more.
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
    """What is in the queue."""

    customer: str
    picture: str
    width: int = 320


@dataclass
class Studio:
    """The service, with its moods."""

    chance: random.Random = field(default_factory=lambda: random.Random(2))
    broken: set[str] = field(default_factory=lambda: {"cyn-3.jpg"})
    made: dict[str, list[str]] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def resize(self, job: Job) -> None:
        """Takes a while; raises when it fails."""
        time.sleep(0.005)
        with self.lock:
            self.tries[job.picture] += 1
            if job.picture in self.broken:
                raise OSError("image file is truncated")
            if self.chance.random() < 0.25:
                raise TimeoutError("the service did not answer")
            self.made.setdefault(job.customer, []).append(job.picture)


def workers(jobs: Stream[Job], studio: Studio) -> Group[Job]:
    """The group, and what it does with a job."""
    group = jobs.group("studio", max_deliveries=4, backoff=Backoff(initial=0.02, multiplier=2, maximum=1))

    # `block` ends run() when nothing was to be done for so long; without it SIGTERM does.
    @group.handler(consumer="worker-1", concurrency=4, ordered_by=lambda entry: entry["customer"], block=0.3)
    def resize(entry: Delivery[Job]) -> None:
        if not entry.value.picture.endswith(".jpg"):
            entry.fail("not a picture")
            return
        studio.resize(entry.value)

    return group


def outcome(name: str, studio: Studio, letters: list[DeadLetter[Job]]) -> str:
    """What became of a job, in a word or two."""
    for letter in letters:
        if letter.value.picture == name:
            return f"[red]dead letter[/]: {letter.error}"
    return "done" if studio.tries[name] == 1 else f"done, at try {studio.tries[name]}"


def main(path: Path | None = None, console: Console | None = None) -> tuple[Studio, list[DeadLetter[Job]]]:
    """The story; the studio, and the dead letters that there were."""
    console = console or Console()
    studio = Studio()
    with headrace.open(path) as database:
        jobs = database.stream("jobs", codec=Job)
        pictures = [Job(who, f"{who}-{n}.jpg") for n in range(1, 6) for who in CUSTOMERS]
        jobs.add_many([*pictures, Job("dan", "notes.txt")])

        workers(jobs, studio).run()
        letters = list(jobs.group("studio").dead_letters)
        table = Table("entry", "customer", "picture", "what became of it", title="Jobs")
        for entry in jobs:
            job = entry.value
            table.add_row(str(entry.id), job.customer, job.picture, outcome(job.picture, studio, letters))
        console.print(table)

        studio.broken.clear()
        group = workers(jobs, studio)
        mended = group.dead_letters.retry(*(each.id for each in letters if "truncated" in each.error))
        group.run()
        console.print(f"Mended and tried again: {mended}; dead letters left: {len(group.dead_letters)}.")
    return studio, letters


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)  # each failure is logged, which would fill the screen here
    main()
