"""Paths that users give for local files: plain paths and file:// URLs. Other URL schemes are rejected.

`Path("s3://bucket/x")` is the relative path `s3:/bucket/x`. Without this check an archive would be written
to a local folder named `s3:`, and `trim` would delete the originals.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from headrace.errors import UsageError

# Path() turns `s3://` into `s3:/`, and Hadoop accepts `hdfs:/path`. One letter is a drive of Windows.
SCHEME_PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
LOCAL_HOSTS = ("", "localhost")


def local_path(given: str | os.PathLike[str]) -> Path:
    """Return the path of a local file or directory.

    Args:
        given: a path, or a URL of the form `file:///path`.

    Returns:
        The path. A relative path stays relative.

    Raises:
        UsageError: if the text is empty or a URL of another scheme or host.
    """
    text = os.fspath(given)
    if not text:
        raise UsageError("the path is empty; give a path of a file system that this machine sees")
    match = SCHEME_PATTERN.match(text)
    if match is None:
        return Path(given)
    scheme, rest = match[1].lower(), text[match.end() :]
    if scheme != "file":
        raise UsageError(
            f"{text}: {scheme}:// is not supported; give a path of a file system that this machine sees, "
            "or mount it"
        )
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
        if host not in LOCAL_HOSTS:
            raise UsageError(f"{text}: the host {host!r} is not this machine; write file:///path")
        rest = f"/{path}"
    return Path(unquote(rest))
