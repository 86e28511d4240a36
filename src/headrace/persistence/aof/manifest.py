"""The manifest: which files make up the log, and in which order they are read.

    file appendonly.aof.2.base.rdb seq 2 type b          read first: the base; at most one
    file appendonly.aof.1.base.rdb seq 1 type h          history: no longer read, about to be removed
    file appendonly.aof.1.incr.aof seq 1 type h
    file appendonly.aof.2.incr.aof seq 2 type i          next, by rising number; the last one grows
    file 7.cold seq 7 type c                             the base refers to it; in the directory cold
    # cold-owner 8a0f...                                 the text of cold/owner, if cold files were named

A line of type c exists only if the base refers to cold files. redis-server rejects such a manifest, and
ignores comments.

The set of files changes only by replacing this one small file by a rename. So a crash leaves the old set or
the new one, never a mixture; store() raises ManifestNotDurable when it cannot know which.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
from dataclasses import dataclass, field

from headrace.persistence.aof.file_names import STORE_IDENTITY, LogFileNames
from headrace.persistence.cold.cold_file import file_number
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DataDirectory, File, write_file
from headrace.resp.inline import split_line

LINE_MAX = 1024  # bytes with the line end; Redis rejects longer lines
OWNER_COMMENT = b"# cold-owner "
_UNQUOTED_PATTERN = re.compile(rb"[!#-&(-\[\]-~]+")  # printable, but not a blank, quote or backslash


class ManifestNotDurable(OSError):
    """The new manifest was put in place, but a power cut may bring back the old one."""


@dataclass(frozen=True)
class ManifestLine:
    """One file of the log: its name in the log's directory and its number."""

    file: str
    sequence: int


@dataclass
class Manifest:
    """The files of a log. history lists files that are to be removed; the numbers of incrs rise strictly.

    cold lists the cold files that the base needs, with numbers of their own. cold_owner is the identity of
    the log in the directory of its cold files: see cold_owner.py. cold_owner is empty until a base needs cold
    files.
    """

    base: ManifestLine | None = None
    history: list[ManifestLine] = field(default_factory=list)
    incrs: list[ManifestLine] = field(default_factory=list)
    cold: list[ManifestLine] = field(default_factory=list)
    cold_owner: str = field(default="", compare=False)

    @classmethod
    def parse(cls, data: bytes, file: str = "") -> Manifest:
        """Parse a manifest by the rules of Redis. Raises Damaged with the offset of the wrong line."""
        manifest = cls()
        at = 0
        if not data:
            raise Damaged(0, "an empty manifest", file)
        for text in io.BytesIO(data):
            try:
                manifest._parse_line(text)
            except ValueError as error:
                raise Damaged(at, str(error), file) from None
            at += len(text)
        if manifest.base is None and not manifest.incrs:
            raise Damaged(0, "no file to read in it", file)
        return manifest

    def lines_to_load(self) -> list[ManifestLine]:
        """Return the files that a starting server reads, in order."""
        return [*([self.base] if self.base else []), *self.incrs]

    def lines(self) -> list[ManifestLine]:
        """Return all files but cold ones, history first."""
        return [*self.history, *self.lines_to_load()]

    def max_sequence(self) -> int:
        """Return the highest number in use; 0 if there are no files."""
        return max((line.sequence for line in self.lines()), default=0)

    def cold_names(self) -> frozenset[str]:
        """Return the names of the cold files."""
        return frozenset(line.file for line in self.cold)

    def text(self) -> bytes:
        """Return the bytes of the manifest as they are stored."""
        lines = [(self.base, b"b")] if self.base else []
        lines += [(line, b"h") for line in self.history]
        lines += [(line, b"i") for line in self.incrs]
        lines += [(line, b"c") for line in self.cold]
        owner = OWNER_COMMENT + self.cold_owner.encode() + b"\n" if self.cold_owner else b""
        return owner + b"".join(
            b"file %b seq %d type %b\n" % (_quoted(line.file), line.sequence, kind) for line, kind in lines
        )

    def store(self, files: DataDirectory, names: LogFileNames) -> None:
        """Replace the stored manifest by this one.

        Raises:
            ManifestNotDurable: after a power cut either the old or the new one is in place.
            OSError: the old one is still in place.
        """
        self.write_temporary(files, names)
        try:
            self.replace_stored(files, names)
            files.sync_directory(names.directory)
        except OSError as error:
            raise ManifestNotDurable(*error.args) from error

    def write_temporary(self, files: DataDirectory, names: LogFileNames) -> None:
        """Write this manifest beside the stored one, and sync it. Raises OSError."""
        write_file(files, names.temporary_manifest, lambda file: write_all(file, self.text()))

    def replace_stored(self, files: DataDirectory, names: LogFileNames) -> None:
        """Put the prepared manifest in place; the caller then syncs its directory. Raises OSError."""
        files.rename(names.temporary_manifest, names.manifest)

    @classmethod
    def load(cls, files: DataDirectory, names: LogFileNames) -> Manifest | None:
        """Read the stored manifest; return None if there is no log.

        Raises Damaged, also if a file is missing that cannot be in an object store.

        Before the first manifest is stored, every incr file is empty, and no base but the first exists. If
        other files exist without a manifest, the manifest was lost, which is damage.
        """
        if not files.exists(names.manifest):
            for name in files.list(names.directory):
                counts = names.is_incr(name) or names.base_number(name) > 1
                if counts and files.size(names.path(name)) > 0:
                    what = f"{names.path(name)} holds a log, but the manifest is missing"
                    raise Damaged(0, what, names.manifest, f"restore it, or move {names.directory} away")
            return None
        with contextlib.closing(files.open_source(names.manifest)) as source:
            manifest = cls.parse(source.read(source.size), names.manifest)
        paths = [names.path(line.file) for line in manifest.lines_to_load()]
        if not files.exists(names.cold_path(STORE_IDENTITY)):  # else they may be in an object store
            paths += [names.cold_path(line.file) for line in manifest.cold]
        for path in paths:
            if not files.exists(path):
                what = f"it names {path.removeprefix(names.path(''))}, which is missing"
                raise Damaged(0, what, names.manifest, "put the file back where it was")
        return manifest

    def _parse_line(self, text: bytes) -> None:
        """Parse one line, with its line end; raise ValueError if it is wrong."""
        if text.startswith(b"#"):
            if text.startswith(OWNER_COMMENT):
                self.cold_owner = text.removeprefix(OWNER_COMMENT).strip().decode(errors="replace")
            return
        if len(text) > LINE_MAX:
            raise ValueError(f"a line of more than {LINE_MAX} bytes")
        if not text.endswith(b"\n"):
            raise ValueError("the last line has no end")
        if not text.strip():
            raise ValueError("a blank line")
        words = split_line(text.rstrip(b"\r\n"))
        if words is None or len(words) < 6 or len(words) % 2:
            raise ValueError("a line that is not `file NAME seq NUMBER type b|c|h|i`")
        values = {key.lower(): value for key, value in zip(words[::2], words[1::2], strict=True)}
        name = values.get(b"file", b"").decode(errors="surrogateescape")
        if not name or "/" in name:
            raise ValueError("a line without a file name, or with a path")
        number = values.get(b"seq", b"")
        if not number.isdigit() or not 0 < int(number) < 1 << 63:
            raise ValueError("a line without a number of 1 or more")
        self._add(ManifestLine(name, int(number)), values.get(b"type", b""))

    def _add(self, line: ManifestLine, kind: bytes) -> None:
        if kind == b"b":
            if self.base is not None:
                raise ValueError("a second base")
            self.base = line
        elif kind == b"h":
            self.history.append(line)
        elif kind == b"i":
            if self.incrs and line.sequence <= self.incrs[-1].sequence:
                raise ValueError("incr files whose numbers do not rise")
            self.incrs.append(line)
        elif kind == b"c":
            if file_number(line.file) != line.sequence:
                raise ValueError("a cold file whose name does not have its number")
            self.cold.append(line)
        else:
            raise ValueError("a type that is not b, c, h or i")


def write_all(file: File, data: bytes | bytearray | memoryview) -> None:
    """Write all of data, by several writes if needed. After an OSError a part of it may be written."""
    taken = file.write(data)
    while taken < len(data):
        with memoryview(data)[taken:] as rest:
            more = file.write(rest)
        if more == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken += more


def _quoted(name: str) -> bytes:
    """Return a file name as it is written in the manifest, quoted if necessary."""
    word = name.encode(errors="surrogateescape")
    if _UNQUOTED_PATTERN.fullmatch(word):
        return word
    return b'"%b"' % b"".join(
        b"%c" % c if _UNQUOTED_PATTERN.match(b"%c" % c) else b"\\x%02x" % c for c in word
    )
