"""Directives from the environment: HEADRACE_PORT=7000 is port 7000, HEADRACE_SAVE="900 1" is save 900 1.

They override the file, and the command line overrides them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

PREFIX = "HEADRACE_"
# Kubernetes sets HEADRACE_PORT to such an address for a service named headrace; it is not a directive.
SERVICE_LINK_PREFIX = "tcp://"
SERVICE_VARIABLE_PREFIX = PREFIX + "SERVICE_"
SIMILARITY_MIN = 0.75  # PROT is as near to PORT


def directives_in(environment: Mapping[str, str], names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield variable, directive and value for each variable that names a directive, in alphabetical order."""
    known = {variable_name(name): name for name in names}
    for found in sorted(environment):
        name = known.get(found)
        if name is not None and not environment[found].startswith(SERVICE_LINK_PREFIX):
            yield found, name, environment[found]


def misspelled_variables(environment: Mapping[str, str], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield variables that nearly name a directive, each with the correct name."""
    known = [variable_name(name).removeprefix(PREFIX) for name in names]
    for found in sorted(environment):
        word = found.removeprefix(PREFIX)
        if found.startswith(PREFIX) and not found.startswith(SERVICE_VARIABLE_PREFIX) and word not in known:
            yield from (
                (found, PREFIX + near) for near in difflib.get_close_matches(word, known, 1, SIMILARITY_MIN)
            )


def variable_name(name: str) -> str:
    """Return the environment variable of a directive."""
    return PREFIX + name.upper().replace("-", "_")
