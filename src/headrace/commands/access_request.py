"""Requests as access rules see them: which keys are read or written, which channels are used."""

from __future__ import annotations

import cython

from headrace.access.selector import AccessRequest
from headrace.commands.spec import Command
from headrace.errors import CommandError


def build_access_request(command: Command, argv: list[bytes]) -> AccessRequest:
    """Return the request as access rules see it. argv must fit the arity; unparsable keys count as none."""
    request = AccessRequest(command.name, argv, "no_auth" in command.flags)
    if command.has_keys:
        try:
            request.keys = command.key_positions(argv)
        except CommandError:
            request.keys = []
        uses = command.uses_of_keys(argv)
        request.uses = [uses[min(i, len(uses) - 1)] for i in range(len(request.keys))]
    if command.channels.first:
        request.channels = command.channels.positions(len(argv))
        request.literal = command.patterns
    return request
