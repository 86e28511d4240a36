"""The directory of a stream in an archive: its name, or an encoded one if a directory cannot have the name.

    stream=orders%3Aeu                             Spark escapes some characters, and reads them back
    stream=a_b~1f0c2e6a9d31574a0b2c8d7e6f5a4b3c    a name that is too long, empty, not UTF-8, ...
    _headrace/names.json                           {"a_b~1f0c...": the name}

An encoded name begins with the readable characters of the name, and ends with 128 bits of its hash. So it
depends only on the name. A name that looks like an encoded one is encoded, too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from headrace.client.stream_names import stream_key

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # how Spark writes a null, or an empty name, into a path
NAMES_FILE = "names.json"
ENCODED = re.compile(r".*~[0-9a-f]{32}", re.DOTALL)
COMPONENT_BYTES_MAX = 255 - len("stream=")
PREFIX_LENGTH = 40
PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def directory_name(stream: str, ascii_only: bool = False) -> str:
    """Return the name of a stream's directory, before Spark escapes it.

    Args:
        stream: the name of the stream.
        ascii_only: whether the writer supports only ASCII in paths.
    """
    raw = stream_key(stream)
    is_text = raw == stream.encode("utf-8", "surrogateescape") and (stream.isascii() or not ascii_only)
    if is_text and is_plain(stream, raw):
        return stream
    prefix = re.sub(r"[^A-Za-z0-9._-]", "_", stream[:PREFIX_LENGTH])
    return f"{prefix}~{hashlib.sha256(raw).hexdigest()[:32]}"


def is_plain(stream: str, raw: bytes) -> bool:
    """Return whether a directory can have the name, and readers get the same name back."""
    if not raw or b"\0" in raw or stream == NULL_PARTITION or ENCODED.fullmatch(stream):
        return False
    escaped = sum(1 if byte in PLAIN or byte >= 0x80 else 3 for byte in raw)
    return escaped <= COMPONENT_BYTES_MAX


def encoded_names(streams: Iterable[str], ascii_only: bool = False) -> dict[str, str]:
    """Return the streams whose directories have encoded names, by these names."""
    found = {directory_name(stream, ascii_only): stream for stream in streams}
    return {directory: stream for directory, stream in found.items() if directory != stream}


def recorded_names(metadata: Path) -> dict[str, str]:
    """Return the streams of encoded directories from names.json; an empty dict without that file.

    Args:
        metadata: the directory _headrace of the archive.
    """
    path = metadata / NAMES_FILE
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}
