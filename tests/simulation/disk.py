"""A simulated disk that loses what was not synced: a DataDirectory in memory, with a journal.

    process    create   write  write  sync   rename  sync_directory  write       (SimulatedFiles does them)
    journal    ─ o ────── o ───── o ──── o ───── o ────────── o ───────── o ──→
    boundaries 0   1          2      3      4       5            6           7
                                                 └ Platter.at(5): what a power cut may leave there

After a crash a file contains everything that was synced, and of later writes a prefix that may end inside a
write. Writes of a failed sync are uncertain forever, whatever later syncs return: bytes after them may then
follow zeros. Creations, renames and removals since the last sync of their directory are kept or undone, each
by itself. An image, what is left, maps names to bytes; the name of a directory ends with "/".
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headrace.errors import HeadraceError
from headrace.persistence.data_directory import FileIdentity

Image = dict[str, bytes]


def directory_of(name: str) -> str:
    """Return the directory of a name, "" for the data directory."""
    return name.rpartition("/")[0]


# ---- the journal


@dataclass(frozen=True)
class Op:
    """One operation. what: write truncate sync create make_directory rename remove sync_directory."""

    what: str
    name: str  # of the file when it was opened, or of the directory
    inode: int = -1
    data: bytes = b""
    at: int = 0  # write: offset; truncate: size; sync: number of operations of the inode it covers
    to: str = ""  # rename: the new name
    ok: bool = True  # False: a sync that failed
    mark: int = 0  # the number of recorded states when it happened

    def __str__(self) -> str:
        where = {"write": f", {len(self.data)} bytes at {self.at}", "truncate": f" to {self.at}"}
        to = f" → {self.to}" if self.to else ""
        return f"{self.what} {self.name or '.'}{to}{where.get(self.what, '')}{'' if self.ok else ': FAILED'}"


# ---- faults


@dataclass
class Faults:
    """Injected faults: the probability that operations of a kind fail, and the space left."""

    chance: Random
    failing: dict[str, float] = field(default_factory=dict)  # by Op.what, or "read" of any offset
    room: int | None = None  # bytes that can still be written; None: unlimited
    short: float = 0.0  # probability of a short write

    def strike(self, what: str, name: str) -> None:
        """Raise OSError if the operation is to fail."""
        likely = self.failing.get(what, 0.0)
        if likely and self.chance.random() < likely:
            raise OSError(errno.EIO, "simulated fault", f"{what} {name}")

    def taken(self, n: int, name: str) -> int:
        """Return how many of n bytes are written; raise OSError if none are."""
        self.strike("write", name)
        if n and self.short and self.chance.random() < self.short:
            n = self.chance.randint(1, n)
        if self.room is not None:
            if n and self.room <= 0:
                raise OSError(errno.ENOSPC, "simulated full disk", name)
            n = min(n, self.room)
            self.room -= n
        return n


# ---- the view of the process


class Inode:
    """A file without its name: its contents as readers see them."""

    def __init__(self, number: int, data: bytes = b"") -> None:
        self.number = number
        self.data = bytearray(data)
        self.operations = 0  # writes and truncations so far


def identity_of(inode: Inode) -> FileIdentity:
    """Return the identity as by stat(). The modification time is the number of operations."""
    return FileIdentity(0, inode.number, len(inode.data), inode.operations, is_regular=True)


class SimulatedFile:
    """A File on the simulated disk."""

    def __init__(self, files: SimulatedFiles, name: str, inode: Inode) -> None:
        self.files = files
        self.name = name
        self.inode = inode
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> int:
        assert not self.closed, self.name
        taken = self.files.faults.taken(len(data), self.name)
        if taken:
            part = bytes(data[:taken])
            self.files.note("write", self.name, self.inode.number, data=part, at=len(self.inode.data))
            self.inode.data += part
            self.inode.operations += 1
        return taken

    def truncate(self, size: int) -> None:
        assert not self.closed, self.name
        assert size <= len(self.inode.data), f"{self.name} is made longer"
        self.files.faults.strike("truncate", self.name)
        self.files.note("truncate", self.name, self.inode.number, at=size)
        del self.inode.data[size:]
        self.inode.operations += 1

    def sync(self) -> None:
        self.sync_up_to(self.inode.operations)

    def sync_up_to(self, operations: int) -> None:
        """End a sync that began after so many operations of the file."""
        try:
            self.files.faults.strike("sync", self.name)
        except OSError:
            self.files.note("sync", self.name, self.inode.number, at=operations, ok=False)
            raise
        self.files.note("sync", self.name, self.inode.number, at=operations)

    def size(self) -> int:
        return len(self.inode.data)

    def identity(self) -> FileIdentity:
        return identity_of(self.inode)

    def close(self) -> None:
        self.closed = True


class SimulatedSource:
    """A Source on the simulated disk."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.at = 0

    def read(self, n: int) -> bytes:
        part = self.data[self.at : self.at + n]
        self.at += len(part)
        return part

    def close(self) -> None:
        pass


class SimulatedRandomAccessFile:
    """A RandomAccessFile on the simulated disk."""

    def __init__(self, files: SimulatedFiles, name: str, inode: Inode) -> None:
        self.files = files
        self.name = name
        self.inode = inode
        self.closed = False

    def read_at(self, offset: int, n: int) -> bytes:
        assert not self.closed, self.name
        self.files.faults.strike("read", self.name)
        return bytes(self.inode.data[offset : offset + n])

    def size(self) -> int:
        return len(self.inode.data)

    def close(self) -> None:
        assert not self.closed, self.name
        self.closed = True


class SimulatedFiles:
    """A DataDirectory that begins with an image, all of which is durable."""

    def __init__(self, image: Image | None = None, chance: Random | None = None) -> None:
        self.image = dict(image or {})
        self.faults = Faults(chance or Random(0))
        self.journal: list[Op] = []
        self.mark = 0
        self.names: dict[str, Inode] = {}
        self.directories = {""}
        self.inodes = 0
        self.locked = False
        for name, data in self.image.items():
            if name.endswith("/"):
                self.directories.add(name[:-1])
            else:
                self.names[name] = self._inode(data)

    def _inode(self, data: bytes = b"") -> Inode:
        self.inodes += 1
        return Inode(self.inodes - 1, data)

    def note(self, what: str, name: str, inode: int = -1, **more: Any) -> None:
        """Append an operation to the journal."""
        self.journal.append(Op(what, name, inode, mark=self.mark, **more))

    def create(self, name: str) -> SimulatedFile:
        file = self.open_append(name)
        if file.inode.data:
            file.truncate(0)
        return file

    def open_append(self, name: str) -> SimulatedFile:
        inode = self.names.get(name)
        if inode is None:
            self.faults.strike("create", name)
            if directory_of(name) not in self.directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", name)
            inode = self.names[name] = self._inode()
            self.note("create", name, inode.number)
        return SimulatedFile(self, name, inode)

    def open_source(self, name: str) -> SimulatedSource:
        return SimulatedSource(bytes(self._found(name).data))

    def open_random_access(self, name: str) -> SimulatedRandomAccessFile:
        return SimulatedRandomAccessFile(self, name, self._found(name))

    def exists(self, name: str) -> bool:
        return name in self.names or name in self.directories

    def size(self, name: str) -> int:
        return len(self._found(name).data)

    def identity(self, name: str) -> FileIdentity:
        return identity_of(self._found(name))

    def list(self, directory: str) -> list[str]:
        places = [*self.names, *(place for place in self.directories if place)]
        return sorted(place.rpartition("/")[2] for place in places if directory_of(place) == directory)

    def make_directory(self, name: str) -> None:
        if name not in self.directories:
            self.faults.strike("make_directory", name)
            self.directories.add(name)
            self.note("make_directory", name)

    def rename(self, old: str, new: str) -> None:
        inode = self._found(old)
        self.faults.strike("rename", old)
        if directory_of(new) not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", new)
        self.note("rename", old, inode.number, to=new)
        del self.names[old]
        self.names[new] = inode

    def remove(self, name: str) -> None:
        if name in self.names:
            self.faults.strike("remove", name)
            self.note("remove", name)
            del self.names[name]

    def sync_directory(self, name: str) -> None:
        if name not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", name)
        self.faults.strike("sync_directory", name)
        self.note("sync_directory", name)

    def lock(self) -> None:
        if self.locked:
            raise HeadraceError("the simulated directory is in use")
        self.locked = True

    def check_lock(self) -> None:
        assert self.locked

    def unlock(self) -> None:
        self.locked = False

    def _found(self, name: str) -> Inode:
        if name not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self.names[name]


# ---- crashes


@dataclass
class Loose:
    """A write or truncation that may be lost."""

    op: Op
    state: str  # "volatile", "doomed" (a sync of it failed), "durable" (but something doomed lies before it)


class Body:
    """The contents of one inode on the platter."""

    def __init__(self, solid: bytes = b"") -> None:
        self.solid = bytearray(solid)
        self.loose: list[Loose] = []
        self.folded = 0  # number of operations in solid

    def sync(self, operations: int, ok: bool) -> None:
        for one in self.loose[: operations - self.folded]:
            if one.state == "volatile":
                one.state = "durable" if ok else "doomed"
        while self.loose and self.loose[0].state == "durable":
            carry_out(self.solid, self.loose.pop(0).op)
            self.folded += 1

    def content(self, chance: Random, mode: str) -> bytes:
        """Return contents that a crash may leave."""
        if not self.loose:
            return bytes(self.solid)
        left = bytearray(self.solid)
        uncertain = sum(one.state != "durable" for one in self.loose)
        kept = {"kept": uncertain, "forgotten": 0}.get(mode, chance.randint(0, uncertain))
        for one in self.loose:
            if one.state == "durable":
                carry_out(left, one.op)
                continue
            if kept > 0:
                carry_out(left, one.op)
            elif kept == 0 and mode == "torn":
                carry_out(left, one.op, chance)
            kept -= 1
        return bytes(left)


def carry_out(data: bytearray, op: Op, torn_by: Random | None = None) -> None:
    """Apply a write, a part of a write, or a truncation."""
    if op.what == "truncate":
        if torn_by is None:
            del data[op.at :]
        return
    part = op.data if torn_by is None else op.data[: torn_by.randint(0, len(op.data))]
    if len(data) < op.at and part:
        data += bytes(op.at - len(data))  # the bytes before it were lost
    data[op.at : op.at + len(part)] = part


class Platter:
    """The disk at one boundary of a journal; apply() moves to the next one."""

    def __init__(self, image: Image) -> None:
        self.names: dict[str, int] = {}  # durable names: name -> inode, -1 for a directory
        self.bodies: dict[int, Body] = {-1: Body()}
        self.pending: list[tuple[frozenset[str], dict[str, int | None]]] = []  # (directories, name changes)
        for name, data in image.items():
            if name.endswith("/"):
                self.names[name] = -1
            else:
                self.names[name] = len(self.bodies) - 1
                self.bodies[len(self.bodies) - 1] = Body(data)

    def apply(self, op: Op) -> None:
        """Apply the operation."""
        if op.what in ("write", "truncate"):
            self.bodies[op.inode].loose.append(Loose(op, "volatile"))
        elif op.what == "sync":
            self.bodies[op.inode].sync(op.at, op.ok)
        elif op.what == "sync_directory":
            self._settle(op.name)
        else:
            self._change_names(op)

    def _settle(self, directory: str) -> None:
        """Make the changes in the directory durable, and earlier changes of the same names."""
        certain: list[dict[str, int | None]] = []
        loose: list[tuple[frozenset[str], dict[str, int | None]]] = []
        touched: set[str] = set()
        for places, change in reversed(self.pending):
            if directory in places or touched & change.keys():
                certain.append(change)
                touched |= change.keys()
            else:
                loose.append((places, change))
        for change in reversed(certain):
            rewire(self.names, change)
        self.pending = loose[::-1]

    def _change_names(self, op: Op) -> None:
        change: dict[str, int | None]
        if op.what == "create":
            self.bodies[op.inode] = Body()
            change = {op.name: op.inode}
        elif op.what == "make_directory":
            change = {op.name + "/": -1}
        elif op.what == "rename":
            change = {op.name: None, op.to: op.inode}
        else:
            assert op.what == "remove", op.what
            change = {op.name: None}
        places = {directory_of(name.rstrip("/")) for name in change}
        self.pending.append((frozenset(places), change))

    def image(self, chance: Random, mode: str) -> Image:
        """Return an image that a crash here may leave.

        Modes: kept: everything; forgotten: only what is durable; torn: all names, and of each file some
        writes, the last of them in part; mixed: at random.
        """
        names = dict(self.names)
        keep = len(self.pending)
        ordered = True
        if mode == "forgotten":
            keep = 0
        elif mode == "mixed":
            keep = chance.randint(0, keep)
            ordered = chance.random() < 0.5
        for i, (_, change) in enumerate(self.pending):
            if (i < keep) if ordered else (chance.random() < 0.6):
                rewire(names, change)
        image: Image = {}
        for name, inode in sorted(names.items()):
            place = directory_of(name.rstrip("/"))
            if place and place + "/" not in names:
                continue  # its directory does not exist
            inner = chance.choice(("kept", "forgotten", "torn")) if mode == "mixed" else mode
            image[name] = self.bodies[inode].content(chance, inner)
        return image


def rewire(names: dict[str, int], change: dict[str, int | None]) -> None:
    """Apply changes of names."""
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def boundaries(files: SimulatedFiles) -> Iterator[tuple[int, Platter]]:
    """Yield the platter before the first operation of the journal, and after each."""
    platter = Platter(files.image)
    yield 0, platter
    for i, op in enumerate(files.journal):
        platter.apply(op)
        yield i + 1, platter
