"""Tell a lost output (a closed pipe, a full disk) from a lost server: both are an OSError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class OutputLostError(Exception):
    """Standard output takes no more.

    Args:
        cause: What the system said.
    """

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def writing() -> Iterator[None]:
    """Mark an OSError inside as one of the output, where those of a server are caught as well."""
    try:
        yield
    except OSError as error:
        raise OutputLostError(error) from error
