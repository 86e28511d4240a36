"""The ACL log, newest first. The same denial within a minute is counted, not repeated."""

from __future__ import annotations

from dataclasses import dataclass

REPEAT_WINDOW_MS = 60_000  # a repeated denial after a longer time is a new entry
NAME_BYTES_MAX = 1024  # of what was denied, and of a user's name, in an entry
MERGE_CANDIDATES_MAX = 10  # newest entries that are compared with a new denial

# Reasons.
AUTH, COMMAND, KEY, CHANNEL, CERTIFICATE = b"auth", b"command", b"key", b"channel", b"tls-cert"
# The counters of INFO.
COUNTER_NAMES = {AUTH: "auth", COMMAND: "cmd", KEY: "key", CHANNEL: "channel", CERTIFICATE: "tls_cert"}
# Contexts.
TOP_LEVEL, MULTI, LUA = b"toplevel", b"multi", b"lua"


@dataclass
class Denial:
    """One entry: a denied request, and how often it was denied."""

    number: int
    reason: bytes
    context: bytes
    object: bytes  # the denied command, key or channel
    user: bytes  # the user, or the name with which a client tried to authenticate
    client: bytes  # the client's line of CLIENT LIST, the last time
    created_ms: int
    updated_ms: int
    count: int = 1


class AccessLog:
    """The latest denials, newest first: at most `max_entries`."""

    def __init__(self, max_entries: int = 128) -> None:
        self.max_entries = max_entries
        self.entries: list[Denial] = []
        self.next_number = 0
        self.reset_counters()

    def add(
        self, reason: bytes, context: bytes, what: bytes, user: bytes, client: bytes, now_ms: int
    ) -> None:
        """Log a denial; a repetition within a minute only increases the count of the earlier entry.

        Long names are cut, so that denied clients cannot fill the memory.
        """
        self.denied_counts[COUNTER_NAMES[reason]] += 1
        what, user = what[:NAME_BYTES_MAX], user[:NAME_BYTES_MAX]
        for at, entry in enumerate(self.entries[:MERGE_CANDIDATES_MAX]):
            same = (entry.reason, entry.context, entry.object, entry.user) == (reason, context, what, user)
            if same and now_ms - entry.updated_ms <= REPEAT_WINDOW_MS:
                entry.count += 1
                entry.client, entry.updated_ms = client, now_ms
                self.entries.insert(0, self.entries.pop(at))
                return
        made = Denial(self.next_number, reason, context, what, user, client, now_ms, now_ms)
        self.next_number += 1
        self.entries.insert(0, made)
        self.set_max_entries(self.max_entries)

    def set_max_entries(self, max_entries: int) -> None:
        """Limit the number of entries from now on; drop the oldest ones beyond it."""
        self.max_entries = max_entries
        del self.entries[max_entries:]

    def reset_counters(self) -> None:
        """Set all counters to zero; the entries stay."""
        self.denied_counts = dict.fromkeys(COUNTER_NAMES.values(), 0)

    def clear(self) -> None:
        """Delete all entries."""
        self.entries.clear()
