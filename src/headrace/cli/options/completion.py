"""Complete the names of streams in a shell."""

from __future__ import annotations

from itertools import islice

import click
from click.shell_completion import CompletionItem
from redis.exceptions import RedisError

from headrace.cli.options.profiles import resolve_url
from headrace.cli.options.server_options import PROFILE_KEY
from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.servers import Servers
from headrace.console.escaping import is_printable
from headrace.errors import HeadraceError

NAMES_MAX = 1000


def complete_streams(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of streams with the typed prefix; none if the server cannot be reached."""
    try:
        url = resolve_url(context.params.get("url"), context.meta.get(PROFILE_KEY))
        with Servers(url, reconnect_timeout=0) as servers:
            names = servers.iter_streams()
            matching = (name for name in names if name.startswith(incomplete) and is_printable(name))
            return [CompletionItem(name) for name in sorted(islice(matching, NAMES_MAX))]
    except (HeadraceError, RedisError, *CONNECTION_ERRORS):
        return []
