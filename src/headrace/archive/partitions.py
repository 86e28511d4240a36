"""The Hive-style folders of an archive's files: one for each stream and day.

    stream=orders%3Aeu/date=2026-03-01                       the names of streams are percent-encoded
    stream=__HIVE_DEFAULT_PARTITION__/date=2026-03-01        the stream whose name is empty
    stream=orders/date=__HIVE_DEFAULT_PARTITION__            entries after the year 9999
    stream=zzzz…~3f2a9c0b17d4e586/date=2026-03-01            a name that is too long for a folder

The log of the table has the true values, which most readers use. Polars uses the names of the folders, and
so does Spark if it reads the files without the log.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
NAME_MAX = 240  # of an encoded stream: the name of a folder may have 255 bytes
DIGEST_LENGTH = 16
ESCAPE_LENGTH = 3


def partition_folder(stream: str, date: str | None) -> str:
    """Return the folder of a stream and day; the day is None after the year 9999."""
    return f"stream={folder_stream_name(stream)}/date={date or NULL_VALUE}"


def folder_stream_name(stream: str) -> str:
    """Return the name of a stream as it is encoded in the name of its folder."""
    if not stream:
        return NULL_VALUE
    encoded = quote(stream, safe="")
    if is_folder_decodable(stream):
        return encoded
    digest = hashlib.sha256(stream.encode()).hexdigest()[:DIGEST_LENGTH]
    start = encoded[: NAME_MAX - DIGEST_LENGTH - 1]
    cut = start.rfind("%", -ESCAPE_LENGTH + 1)  # of an escape that is not whole
    return f"{start if cut < 0 else start[:cut]}~{digest}"


def is_folder_decodable(stream: str) -> bool:
    """Return whether the name of a stream can be decoded from the name of its folder."""
    return len(quote(stream, safe="")) <= NAME_MAX and stream != NULL_VALUE
