"""Open standard input for reading bytes, or raise UsageError if it is closed."""

from __future__ import annotations

import io
import sys
from typing import cast

from headrace.errors import UsageError


def standard_input() -> io.BufferedReader:
    """Return standard input as bytes. UsageError if it was closed when the program began (`<&-`)."""
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    return cast(io.BufferedReader, sys.stdin.buffer)
