"""Skip and count commands for data types that Headrace does not have, in a log or from a primary.

A skipped command may have overwritten a string or a stream at the server that wrote it. Then the key is
removed here, because its present value is older.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.engine.engine import Engine
from headrace.engine.replaying import Replayer
from headrace.errors import ForeignCommand, to_text
from headrace.keyspace.key_table import KeyTable

# Commands of other types that overwrite a key of any type, or change strings: the index of that key.
OVERWRITTEN_KEY_INDEXES = {
    b"SINTERSTORE": 1,
    b"SUNIONSTORE": 1,
    b"SDIFFSTORE": 1,
    b"ZINTERSTORE": 1,
    b"ZUNIONSTORE": 1,
    b"ZDIFFSTORE": 1,
    b"ZRANGESTORE": 1,
    b"GEOSEARCHSTORE": 1,
    b"SETBIT": 1,
    b"BITFIELD": 1,
    b"PFADD": 1,
    b"PFMERGE": 1,
    b"BITOP": 2,
}
STORE_OPTION_COMMANDS = frozenset(
    {b"SORT", b"GEORADIUS", b"GEORADIUSBYMEMBER"}
)  # the key follows STORE or STOREDIST
# Failures that show that a key has a type which does not exist here.
FOREIGN_ERRORS = (b"WRONGTYPE", b"ERR no such key", b"ERR Bad data format")
NAME_BYTES_MAX = 60  # bytes of a name that are kept and logged
NAMES_MAX = 1000  # names counted


class SkippingReplayer:
    """Replays the commands of a log on an engine's keyspace, and skips those for other types.

    Attributes:
        skipped_counts: how many commands were skipped, by name.
    """

    def __init__(self, engine: Engine, now_ms: int) -> None:
        self.skipped_counts: dict[str, int] = {}
        self._keyspace = engine.keyspace
        self._replayer = Replayer(engine, now_ms)

    def replay(self, argv: list[bytes]) -> bytes | None:
        """Replay or skip a command; return its error text or None. Raises InvalidLogCommand."""
        name = argv[0].upper()
        if name == b"COPY" and len(argv) > 2 and argv[1] not in self._values():
            self._skip_copy(argv)  # logs contain only copies that were made: of a key of another type
            return None
        try:
            error = self._replayer.replay(argv)
        except ForeignCommand:
            self._skip(name, argv)
            return None
        if error is not None and error.startswith(FOREIGN_ERRORS):
            self._skip(name, argv)
            return None
        return error

    def _values(self) -> KeyTable:
        return self._keyspace.databases[self._replayer.session.database].values

    def _skip(self, name: bytes, argv: list[bytes]) -> None:
        count_name(self.skipped_counts, shortened_name(name))
        key = overwritten_key(name, argv)
        if key is not None and key in self._values():
            self._replayer.replay([b"DEL", key])

    def _skip_copy(self, argv: list[bytes]) -> None:
        database = self._replayer.session.database
        target = copy_target_database(argv)
        if target is not None:
            self._replayer.replay([b"SELECT", target])
        self._skip(b"COPY", argv)
        self._replayer.replay([b"SELECT", b"%d" % database])


def log_replayer_and_skipped(
    engine: Engine, now_ms: int, skip_foreign_types: bool
) -> tuple[Callable[[list[bytes]], bytes | None], dict[str, int]]:
    """Return the function that replays the commands of a log, and how many it has skipped, by name."""
    if not skip_foreign_types:
        return Replayer(engine, now_ms).replay, {}
    skipping = SkippingReplayer(engine, now_ms)
    return skipping.replay, skipping.skipped_counts


def overwritten_key(name: bytes, argv: list[bytes]) -> bytes | None:
    """Return the key that a skipped command overwrites at its server, whatever its type; None for none."""
    at = OVERWRITTEN_KEY_INDEXES.get(name, 0)
    if name in (b"RENAME", b"RENAMENX", b"COPY"):
        at = 2
    elif name == b"RESTORE":
        at = 1
    elif name in STORE_OPTION_COMMANDS:
        stores = [i + 1 for i, word in enumerate(argv) if word.upper() in (b"STORE", b"STOREDIST")]
        at = stores[-1] if stores else 0
    return argv[at] if 0 < at < len(argv) else None


def copy_target_database(argv: list[bytes]) -> bytes | None:
    """Return the database that COPY copies to; None if it names none."""
    words = [word.upper() for word in argv]
    return argv[words.index(b"DB", 3) + 1] if b"DB" in words[3:-1] else None


def shortened_name(name: bytes) -> str:
    """Return a command's name as text, cut to NAME_BYTES_MAX bytes, for counters and messages."""
    return to_text(name[:NAME_BYTES_MAX])


def count_name(counters: dict[str, int], name: str) -> None:
    """Count a name; after NAMES_MAX different names, new ones are ignored."""
    if name in counters or len(counters) < NAMES_MAX:
        counters[name] = counters.get(name, 0) + 1
