"""The class Command: one row declares all of a command, and everything else is derived from it.

    Command("getrange", 4, run_getrange, "readonly", keys="1: RO access", group="string", since="2.4.0",
            summary="Return a part of a string.", syntax="key start end")

    arity            number of arguments, the name included; -3 means three or more
    flags            those that COMMAND shows, and INTERNAL_FLAGS
    keys             where they are and how they are used: see key_specs.py
      find_keys      a function from argv to their positions, if they are not at fixed ones
      varying_use    a function from argv to the flags of the key, if they depend on options
      stores_in      a function from argv to (database, key), if a key is stored in another database
    channels         positions of channels that access rules must allow: "1" or "1..-1"
      patterns       the same for patterns
    secrets          positions of possible passwords, or a function from argv to them: too many rather
                     than too few, because malformed requests may contain passwords, too
    tips             what proxies and clients of a cluster should know, in Redis's terms: request_policy says
                     to which nodes a request goes, response_policy how the replies are combined
    categories       ACL categories beside those that the flags and the group imply; "-name" drops one

A container such as CONFIG has subcommands with full names: "config|get".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import cython

from headrace.access.selector import AccessRequest
from headrace.commands.key_specs import (
    KeyFlags,
    KeySpec,
    Span,
    parse_key_specs,
    parse_span,
    required_access,
    shown_span,
)
from headrace.errors import CommandError

SINCE_HEADRACE = "headrace 0.1.0"  # `since` of the commands that Redis does not have
REDACTED = b"(redacted)"  # replaces passwords where other clients see requests
# Flags that COMMAND does not show.
INTERNAL_FLAGS = frozenset(
    {
        "at_once",  # not queued inside MULTI
        "schedules",  # may add entries to a stream of scheduled entries, which the server appends to another
    }
)

# The ACL category implied by a flag, and by a group.
FLAG_CATEGORIES = {
    "write": "write",
    "admin": "admin",
    "pubsub": "pubsub",
    "blocking": "blocking",
    "readonly": "read",
}
GROUP_CATEGORIES = {"string": "string", "stream": "stream", "generic": "keyspace", "connection": "connection"}
GROUP_CATEGORIES["transactions"] = "transaction"


@cython.final
@cython.cclass
class Command:
    """One command or subcommand. Immutable."""

    name: bytes  # lower case; "config|get" for a subcommand
    last_name_part: bytes  # the last part of the name: b"get" of "config|get"
    name_argument_count: cython.int  # number of arguments that form the name: 1, or 2 for a subcommand
    arity: cython.int
    run: Callable[..., object] | None  # None for a container, which has only subcommands
    flags: frozenset[str]
    has_keys: cython.bint
    first_key: cython.int  # 0 if it has none, or find_keys
    last_key: cython.int
    key_step: cython.int
    find_keys: Callable[[list[bytes]], list[int]] | None
    key_specs: tuple[KeySpec, ...]
    shown_key_span: Span  # their range, as COMMAND shows it
    key_flags: tuple[KeyFlags, ...]  # of the first key, of the second, ...; the last ones apply to the rest
    key_access_bits: list[int]  # the same: READ, WRITE, READ_WRITE or 0, for access rules
    find_key_flags: Callable[[list[bytes]], KeyFlags] | None
    find_destination: Callable[[list[bytes]], tuple[int, bytes] | None] | None  # a key in another database
    channels: Span
    channels_are_patterns: cython.bint  # the channels are patterns
    secrets: Span | Callable[[list[bytes]], list[int]] | None
    tips: list[str]
    group: str
    since: str
    summary: str
    syntax: str
    complexity: str
    categories: frozenset[str]
    subcommands: dict[bytes, Command]  # by their last part, in lower and upper case
    write: cython.bint
    readonly: cython.bint
    blocking: cython.bint
    denyoom: cython.bint
    noscript: cython.bint  # scripts may not call it
    may_schedule_entries: cython.bint
    queueable: cython.bint  # queued inside MULTI; MULTI, EXEC and a few others run at once

    def __init__(
        self,
        name: str,
        arity: cython.int,
        run: Callable[..., object] | None,
        flags: str = "",
        keys: str = "",
        find_keys: Callable[[list[bytes]], list[int]] | None = None,
        varying_use: Callable[[list[bytes]], KeyFlags] | None = None,
        stores_in: Callable[[list[bytes]], tuple[int, bytes] | None] | None = None,
        channels: str = "",
        patterns: str = "",
        secrets: str | Callable[[list[bytes]], list[int]] = "",
        tips: str = "",
        group: str = "generic",
        since: str = "1.0.0",
        summary: str = "",
        syntax: str = "",
        complexity: str = "O(1)",
        categories: str = "",
        subcommands: Iterable[Command] = (),
    ) -> None:
        self.name = name.encode()
        self.last_name_part = name.rpartition("|")[2].encode()
        self.name_argument_count = 1 + name.count("|")
        self.arity = arity
        self.run = run
        self.flags = frozenset(flags.split())
        self._set_keys(parse_key_specs(keys), find_keys)
        self.find_key_flags = varying_use
        self.find_destination = stores_in
        self.channels = parse_span(channels or patterns)
        self.channels_are_patterns = patterns != ""
        self.secrets = (parse_span(secrets) if secrets else None) if isinstance(secrets, str) else secrets
        self.tips = tips.split()
        self.group = group
        self.since = since
        self.summary = summary
        self.syntax = syntax
        self.complexity = complexity
        self.categories = _categories(self.flags, group, categories, run is not None)
        self.subcommands = {}
        for sub in subcommands:
            self.subcommands[sub.last_name_part] = sub
            self.subcommands[sub.last_name_part.upper()] = sub
        self.write = "write" in self.flags
        self.readonly = "readonly" in self.flags
        self.blocking = "blocking" in self.flags
        self.noscript = "noscript" in self.flags
        self.denyoom = "denyoom" in self.flags
        self.queueable = "at_once" not in self.flags
        self.may_schedule_entries = "schedules" in self.flags
        self.flags -= INTERNAL_FLAGS
        if find_keys is not None:
            self.flags |= {"movablekeys"}

    def _set_keys(
        self, specs: tuple[KeySpec, ...], find_keys: Callable[[list[bytes]], list[int]] | None
    ) -> None:
        self.find_keys = find_keys
        self.key_specs = specs
        self.shown_key_span = shown_span(specs)
        self.key_flags = tuple([spec.flags for spec in specs])
        self.key_access_bits = [required_access(flags) for flags in self.key_flags]
        is_channel = specs != () and "not_key" in specs[0].flags
        self.first_key, self.last_key, self.key_step = Span() if is_channel else self.shown_key_span
        self.has_keys = self.first_key != 0 or find_keys is not None

    @cython.ccall
    def accepts_argument_count(self, words: cython.Py_ssize_t) -> cython.bint:
        """Return whether a request may have that many arguments, the name included."""
        return words == self.arity if self.arity > 0 else words >= -self.arity

    @cython.ccall
    def subcommand(self, word: bytes) -> Command | None:
        """Return the subcommand of that name, ignoring case, or None."""
        found = self.subcommands.get(word)
        return found if found is not None else self.subcommands.get(word.lower())

    def unique_subcommands(self) -> list[Command]:
        """Return each subcommand once."""
        return [sub for word, sub in self.subcommands.items() if word == sub.last_name_part]

    def key_positions(self, argv: list[bytes]) -> list[int]:
        """Return the positions of keys in argv, which must fit the arity. May raise CommandError."""
        if self.find_keys is not None:
            return self.find_keys(argv)
        if not self.first_key:
            return []
        last = self.last_key if self.last_key >= 0 else len(argv) + self.last_key
        return [at for at in range(self.first_key, last + 1, self.key_step) if at < len(argv)]

    def keys_with_databases(self, database: int, argv: list[bytes]) -> list[tuple[int, bytes]]:
        """Return each key that the request names, with its database; `database` is the selected one.

        May raise CommandError.
        """
        found = [(database, argv[at]) for at in self.key_positions(argv)]
        other = None if self.find_destination is None else self.find_destination(argv)
        return found if other is None else [*found, other]

    def flags_of_keys(self, argv: list[bytes]) -> tuple[KeyFlags, ...]:
        """Return the flags of the keys of one request, like key_flags; they may depend on its options."""
        return self.key_flags if self.find_key_flags is None else (self.find_key_flags(argv),)

    @cython.ccall
    def access_request(self, argv: list[bytes]) -> AccessRequest:
        """Return the request as access rules see it; argv must fit the arity.

        If its keys cannot be parsed, the request has none.
        """
        request: AccessRequest = AccessRequest(self.name, argv, "no_auth" in self.flags)
        if self.has_keys:
            try:
                request.key_positions = self.key_positions(argv)
            except CommandError:
                request.key_positions = []
            uses = (
                self.key_access_bits
                if self.find_key_flags is None
                else [required_access(self.find_key_flags(argv))]
            )
            request.key_uses = [uses[min(i, len(uses) - 1)] for i in range(len(request.key_positions))]
        if self.channels.first:
            request.channel_positions = self.channels.positions(len(argv))
            request.channels_are_patterns = self.channels_are_patterns
        return request

    def without_secrets(self, argv: list[bytes]) -> list[bytes]:
        """Return the request's arguments with possible passwords redacted; argv itself if there are none."""
        if self.secrets is None:
            return argv
        words = list(argv)
        found = self.secrets.positions(len(argv)) if isinstance(self.secrets, Span) else self.secrets(argv)
        for at in found:
            words[at] = REDACTED
        return words


def _categories(flags: frozenset[str], group: str, more: str, runs: bool) -> frozenset[str]:
    """Return the ACL categories implied by flags and group, and the additional ones; `-name` drops one."""
    if not runs:
        return frozenset(more.split()) or frozenset({"slow"})
    found = set(more.split())
    found |= {FLAG_CATEGORIES[flag] for flag in flags if flag in FLAG_CATEGORIES}
    if "scripting" in found:
        found.discard("read")  # the commands of a script are checked themselves
    if "admin" in flags:
        found.add("dangerous")
    if group in GROUP_CATEGORIES:
        found.add(GROUP_CATEGORIES[group])
    found.add("fast" if "fast" in flags else "slow")
    return frozenset(name for name in found if name[0] != "-" and f"-{name}" not in found)
