"""Mark the streams whose rules must be applied after a command; most commands mark none."""

from __future__ import annotations

import cython

from headrace.commands.spec import Command
from headrace.errors import CommandError
from headrace.keyspace.keyspace import Database
from headrace.keyspace.rule_registry import RuledStream, RuleRegistry
from headrace.streams.stream import Stream


def has_noack(argv: list[bytes]) -> bool:
    """Return whether an XREADGROUP has NOACK, with which delivered entries are acknowledged at once.

    May also return True if a stream is named NOACK: then the caller does unneeded work.
    """
    return any(word.upper() == b"NOACK" for word in argv[4:])


@cython.final
@cython.cclass
class RuleMarker:
    """Marks the streams of a registry whose rules have work after a command."""

    registry: RuleRegistry

    def __init__(self, registry: RuleRegistry) -> None:
        self.registry = registry

    @cython.ccall
    def after_command(self, database: Database, command: Command, argv: list[bytes]) -> cython.void:
        """Mark the streams that a command may have changed, so that their rules are applied.

        Args:
            argv: the command as it ran; its keys may differ from those of the request.
        """
        key: bytes
        if command.first_key:
            key = argv[command.first_key]
            self._mark_key(database, command, argv, key)
            return
        try:
            for at in command.key_positions(argv):
                self._mark_key(database, command, argv, argv[at])
        except CommandError:
            pass  # the command has failed for the same reason

    @cython.cfunc
    def _mark_key(self, database: Database, command: Command, argv: list[bytes], key: bytes) -> cython.void:
        value: object = database.values.find(key)
        ruled: RuledStream | None
        quiet: cython.bint = False
        if not isinstance(value, Stream):
            return
        ruled = self.registry.streams.get(value)
        if ruled is None:
            return
        if command.name == b"xadd":
            quiet = ruled.can_skip_rules()
        elif command.name == b"xack" or command.name == b"xreadgroup":
            quiet = not ruled.watches_acks and not database.has_waiters(key)
        if not quiet:
            self._mark(ruled, command.name, argv)

    def _mark(self, ruled: RuledStream, name: bytes, argv: list[bytes]) -> None:
        self.registry.changed_streams[ruled] = None
        if name in (b"xack", b"xackdel"):
            ruled.acked_ids += argv[3:]
        elif name.startswith(b"xgroup|") or (name == b"xreadgroup" and has_noack(argv)):
            ruled.acked_sweep_start_id = b"0-0"  # references of any entry may be gone
