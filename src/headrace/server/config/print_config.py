"""`headrace serve --print-config`: the effective values and their origins, as a file that can be read again.

# /etc/headrace.conf, line 3
maxclients 5000

# default
hz 10
"""

from __future__ import annotations

from headrace.server.config.config import Config
from headrace.server.config.directives import DIRECTIVES
from headrace.server.config.rewrite import line_of

DEFAULT = "default"


def format_config(config: Config) -> str:
    """Return all directives, set ones first and defaults last. Passwords are not shown."""
    groups: dict[str, list[str]] = {}
    for directive in DIRECTIVES:
        value = config.requested_value(directive.name)
        line = line_of(directive, value).decode("utf-8", "backslashreplace")
        if directive.secret and config.formatted(directive.name):
            line = f"# {directive.name} is set, and not shown"
        groups.setdefault(config.origins.get(directive.name, DEFAULT), []).append(line)
    defaults = groups.pop(DEFAULT, [])
    groups[DEFAULT] = defaults
    return "\n".join(
        f"# {origin}\n" + "".join(f"{line}\n" for line in lines) for origin, lines in groups.items()
    )
