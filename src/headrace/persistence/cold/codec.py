"""Compression of cold runs. The number of a codec is stored with each run.

Zstandard is preferred: docs/performance.md compares the codecs. It needs the package
`zstandard`; if that is not installed, runs are compressed with zlib, which is in the standard library.
"""

from __future__ import annotations

import importlib.util
import threading
import zlib
from typing import Protocol

from headrace.errors import HeadraceError

ZSTD_LEVEL = 1
ZSTD_FRAME_HEADER_BYTES_MAX = 18
ZLIB_LEVEL = 1
# The most bytes that one compressed byte can stand for. Zstandard: a block of 128 KiB takes 4 bytes or more.
ZSTD_RATIO_MAX = 1 << 15
ZLIB_RATIO_MAX = 1032


class CodecError(HeadraceError):
    """Compressed bytes are damaged, or stand for another number of bytes than stated."""


class MissingCodec(HeadraceError):
    """The package that a codec needs is not installed."""


class Codec(Protocol):
    """A compression, which several threads may use at once. Both functions release the interpreter's lock.

    ratio_max: the most bytes that one compressed byte can stand for.
    """

    number: int
    ratio_max: int

    def compress(self, data: bytes) -> bytes:
        """Return data compressed."""

    def decompress(self, data: memoryview, size: int) -> bytes:
        """Return the `size` bytes that data stands for, without allocating more.

        Raises CodecError if data is damaged, or stands for another number of bytes.
        """


class ZlibCodec:
    """The format of zlib, of the standard library."""

    number = 1
    ratio_max = ZLIB_RATIO_MAX

    def compress(self, data: bytes) -> bytes:
        return zlib.compress(data, ZLIB_LEVEL)

    def decompress(self, data: memoryview, size: int) -> bytes:
        engine = zlib.decompressobj()
        try:
            found = engine.decompress(data, size + 1)  # 0 would mean: without a limit
        except zlib.error as error:
            raise CodecError(str(error)) from None
        if len(found) != size or not engine.eof or engine.unused_data:
            raise CodecError(f"it does not stand for {size} bytes")
        return found


class ZstdCodec:
    """Zstandard, of the package zstandard. Raises MissingCodec if that is not installed."""

    number = 2
    ratio_max = ZSTD_RATIO_MAX

    def __init__(self) -> None:
        try:
            import zstandard
        except ImportError:
            raise MissingCodec(
                "it is compressed by Zstandard, which needs a package: pip install 'headrace[cold]'"
            ) from None
        self.library = zstandard
        self.thread_local = threading.local()  # its objects are for one thread at a time

    def compress(self, data: bytes) -> bytes:
        engine = getattr(self.thread_local, "compressor", None)
        if engine is None:
            engine = self.thread_local.compressor = self.library.ZstdCompressor(level=ZSTD_LEVEL)
        packed: bytes = engine.compress(data)
        return packed

    def decompress(self, data: memoryview, size: int) -> bytes:
        engine = getattr(self.thread_local, "decompressor", None)
        if engine is None:
            engine = self.thread_local.decompressor = self.library.ZstdDecompressor()
        try:
            stated = self.library.frame_content_size(data[:ZSTD_FRAME_HEADER_BYTES_MAX])
            if stated != size:  # decompress() would allocate what is stated
                raise CodecError(f"it states a size of {stated} bytes, not of {size}")
            found: bytes = engine.decompress(data, allow_extra_data=False)
        except self.library.ZstdError as error:
            raise CodecError(str(error)) from None
        if len(found) != size:
            raise CodecError(f"it stands for {len(found)} bytes, not for {size}")
        return found


class CodecTable:
    """The codecs by number, each loaded when it is first needed."""

    def __init__(self) -> None:
        self._codecs: dict[int, Codec] = {}

    def get(self, number: int) -> Codec:
        """Return a codec. Raises CodecError if the number is unknown, and MissingCodec."""
        codec = self._codecs.get(number)
        if codec is None:
            if number == ZlibCodec.number:
                codec = ZlibCodec()
            elif number == ZstdCodec.number:
                codec = ZstdCodec()
            else:
                raise CodecError(f"codec {number} is unknown to this version of Headrace")
            self._codecs[number] = codec
        return codec

    def preferred(self) -> Codec:
        """Return the codec for new runs: Zstandard if its package is installed, otherwise zlib."""
        installed = importlib.util.find_spec("zstandard") is not None
        return self.get(ZstdCodec.number if installed else ZlibCodec.number)


CODECS = CodecTable()
