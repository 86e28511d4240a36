"""The type of a directive that is the URL of an object store."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import UsageError
from headrace.persistence.cold.object_store import check_url
from headrace.server.config.config_types import Value, single_word


@dataclass(frozen=True)
class StoreUrl:
    """The URL of an object store, or nothing."""

    syntax = "URL"

    def parse(self, words: list[str]) -> Value:
        """Parse one argument, which may be empty."""
        url = single_word(words)
        if url:
            try:
                check_url(url)
            except UsageError as error:
                raise ValueError(str(error)) from None
        return url

    def show(self, value: Value) -> str:
        """Return the URL as given: it contains no credentials."""
        return str(value)
