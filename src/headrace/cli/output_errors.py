"""Distinguish a failed output (a closed pipe, a full disk) from a lost server: both raise OSError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class OutputLostError(Exception):
    """Writing to standard output failed with the OSError `cause`."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def wrap_output_errors() -> Iterator[None]:
    """Convert an OSError in the block into OutputLostError: callers take an OSError for a lost server."""
    try:
        yield
    except OSError as error:
        raise OutputLostError(error) from error
