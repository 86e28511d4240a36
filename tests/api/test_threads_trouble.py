"""Threads that write, read and wait while the disk fails now and then: nothing is lost, none is stuck."""

import random
import threading
import time

import pytest

import headrace
from headrace.errors import CommandError, HeadraceError, NotOnDisk
from support.waiting import wait_until

THREADS = 6
STEPS = 40


class Moody:
    """A file that writes in pieces, and fails when it is told to."""

    def __init__(self, file, chance: random.Random) -> None:
        self.file = file
        self.chance = chance
        self.full = False
        self.bad = False

    def write(self, data):
        if self.full:
            raise OSError(28, "No space left on device")
        return self.file.write(data[: len(data) // 2 or len(data)] if self.chance.random() < 0.05 else data)

    def sync(self) -> None:
        if self.bad:
            self.bad = False
            raise OSError(5, "Input/output error")
        self.file.sync()

    def __getattr__(self, name):
        return getattr(self.file, name)


class Worker:
    """What one thread does, and which entries it was told are there."""

    def __init__(self, db: headrace.Database, number: int, seed: int) -> None:
        self.db = db
        self.number = number
        self.chance = random.Random(seed * 100 + number)
        self.added: list[bytes] = []
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        steps = [self.add] * 4 + [self.add_many] * 2 + [self.read, self.talk, self.trouble, self.expire]
        steps += [self.db.compact, lambda: self.db.execute("BGREWRITEAOF")]
        try:
            for n in range(STEPS):
                self.tag = f"{self.number}-{n}"
                try:
                    self.chance.choice(steps)()
                except (NotOnDisk, CommandError):
                    pass  # refused, or in memory and perhaps on the disk later
                except HeadraceError as wrong:  # of compact()
                    if not any(word in str(wrong) for word in ("rewritten", "synced", "space", "Input")):
                        raise
        except BaseException as failure:
            self.failure = failure

    def add(self) -> None:
        self.db.backend.add(b"s", b"*", {"t": self.tag})
        self.added.append(self.tag.encode())

    def add_many(self) -> None:
        tags = [f"{self.tag}.{i}" for i in range(3)]
        self.db.backend.add_many(b"s", [{"t": tag} for tag in tags])
        self.added += [tag.encode() for tag in tags]

    def read(self) -> None:
        words = [b"XREADGROUP", b"GROUP", b"g", b"c%d" % self.number, b"STREAMS", b"s", b">"]
        self.db.backend.execute_blocking_read(words, 0.01)

    def talk(self) -> None:
        talk = self.db.engine_session()
        talk.send(b"XREAD BLOCK 5 STREAMS s $\r\nECHO done\r\n")
        heard = b""
        while not heard.endswith(b"done\r\n"):
            more = talk.receive(20)
            assert more, "nothing for so long"
            heard += more
        talk.close()

    def expire(self) -> None:
        self.db.execute("SET", f"x{self.number}", "y", "PX", self.chance.randint(1, 30))

    def trouble(self) -> None:
        file = self.db.backend.storage.log._file
        if isinstance(file, Moody) and self.chance.random() < 0.5:
            file.bad = True
        elif isinstance(file, Moody):
            file.full = True
            time.sleep(0.01)
            file.full = False


@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_nothing_is_lost_and_nobody_is_stuck(tmp_path, fsync) -> None:
    db = headrace.open(tmp_path, fsync=fsync)
    storage = db.backend.storage
    storage.rewrite_min_bytes = 5000
    db.compact()
    use = storage.log._use
    storage.log._use = lambda file: use(Moody(file, random.Random(1)))
    db.compact()  # in a moody file from now on
    db.execute("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    workers = [Worker(db, number, seed=7) for number in range(THREADS)]
    for worker in workers:
        worker.thread.start()
    for worker in workers:
        worker.thread.join(60)
        assert not worker.thread.is_alive()
        assert worker.failure is None, worker.failure
    if isinstance(storage.log._file, Moody):
        storage.log._file.full = storage.log._file.bad = False
    wait_until(lambda: not db.info().disk_error)
    there = db.execute("XRANGE", "s", "-", "+")
    pending = db.execute("XPENDING", "s", "g")
    db.close()
    tags = [fields[1] for _, fields in there]
    assert len(tags) == len(set(tags))
    assert {tag for worker in workers for tag in worker.added} <= set(tags)
    with headrace.open(tmp_path) as again:
        assert again.execute("XRANGE", "s", "-", "+") == there
        assert again.execute("XPENDING", "s", "g") == pending
