"""A log on a disk that can fail, with a record of what was committed and what was acknowledged."""

import pathlib
import re

from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.log import Log
from headrace.persistence.aof.manifest import Manifest, write_all
from headrace.persistence.data_directory import File
from persistence.faults import FaultyFiles

NAMES = LogFileNames()
SELECT = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"
INCR_1 = NAMES.path("appendonly.aof.1.incr.aof")
SECOND = 1000
ADD = re.compile(rb"\*2\r\n\$3\r\nADD\r\n\$\d+\r\n(\d+)\r\n")
WORD = re.compile(rb"\$(\d+)\r\n")
CHECKSUM = re.compile(rb"#CRC:(start|[0-9a-f]{8})\r\n")
Words = list[bytes]


def add(*numbers: int) -> list[tuple[int, Words]]:
    return [(0, [b"ADD", b"%d" % n]) for n in numbers]


def encoded(*numbers: int) -> bytes:
    return b"".join(b"*2\r\n$3\r\nADD\r\n$%d\r\n%d\r\n" % (len(str(n)), n) for n in numbers)


def numbers_in(files: FaultyFiles) -> list[int]:
    """Return all numbers in the log, by a reader independent of the writer."""
    manifest = Manifest.load(files, NAMES)
    if manifest is None:
        return []
    found: list[int] = []
    for line in manifest.lines_to_load():
        data = pathlib.Path(files.files.path(NAMES.path(line.file))).read_bytes()
        data = CHECKSUM.sub(b"", data.replace(SELECT, b""))
        at = 0
        while record := ADD.match(data, at):
            found.append(int(record[1]))
            at = record.end()
        last = line == manifest.lines_to_load()[-1]
        assert at == len(data) or last, f"{line.file} goes on with {data[at : at + 20]!r}"
    return found


class Bench:
    """A log, with a record of what was committed and acknowledged."""

    def __init__(self, files: FaultyFiles, given: list[int] | None = None, policy: str = "always") -> None:
        self.files = files
        self.given = given or []
        self.acknowledged = len(self.given)
        self.log = Log(files, NAMES, policy=policy)
        self.now_ms = 0

    def start(self) -> None:
        self.log.start(Manifest.load(self.files, NAMES))
        if self.log.needs_rewrite:
            self.log.create(self.write_base, rdb=False)

    def write_base(self, file: File) -> None:
        write_all(file, encoded(*self.given))

    def commit(self, count: int = 1) -> bool:
        numbers = list(range(len(self.given), len(self.given) + count))
        self.given += numbers
        done = self.log.commit(add(*numbers), self.now_ms)
        if done:
            self.acknowledged = len(self.given)
        return done

    def rewritten(self) -> bool:
        """Do a rewrite with a commit in the middle."""
        rewrite = self.log.begin_rewrite(rdb=False)
        snapshot = list(self.given)
        self.commit()
        try:
            file = self.files.create(rewrite.temporary_path)
            write_all(file, encoded(*snapshot))
            file.sync()
            file.close()
        except OSError:
            return self.log.finish_rewrite(rewrite, False)
        return self.log.finish_rewrite(rewrite, True)

    def heal(self) -> None:
        """Do what a server does until the log works again."""
        for _ in range(4):
            if self.log.needs_rewrite:
                self.rewritten()
            self.now_ms += SECOND
            self.log.tick(self.now_ms)
            if self.log.commit([], self.now_ms):
                self.acknowledged = len(self.given)
                return
        raise AssertionError(self.log.failure)


def content(files: FaultyFiles, name: str) -> bytes:
    """Return the bytes of a file, without the lines of checksums."""
    return CHECKSUM.sub(b"", raw_content(files, name))


def raw_content(files: FaultyFiles, name: str) -> bytes:
    return pathlib.Path(files.files.path(name)).read_bytes()
