"""The position of a replay, as the key on the server holds it.

    2:184000:1357081200000-17:1388530740000-0:kept 5f0c9a1e77d0b3c2 384000 1388530740000-0:900000:9af3c01e -
        run 2, entries of this run, last entry replayed, last one to replay, IDs kept or new; `:done` at the
        end if it is complete; the process that started the run, entries of all runs; then the source: the
        end of the stream when the replay began, and the ID of the archive's table

Earlier versions wrote only the first word.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors import CommandError
from headrace.positions.entry_ids import parse_id
from headrace.positions.position import Position, parse_position

ID_MODES = ("new", "kept")  # indexed by whether entries keep their IDs
DONE_WORD = "done"
REJECTED_SIGN = "!"
EMPTY_SIGN = "-"


@dataclass(frozen=True)
class SourceIdentity:
    """What identifies the source of a replay: it changes if the source is replaced by another one.

    Attributes:
        live_end: The end of the stream on the server when the replay began; None if there was none.
        table_id: The ID of the archive's table; empty without an archive.
    """

    live_end: Position | None = None
    table_id: str = ""

    def __str__(self) -> str:
        return f"{EMPTY_SIGN if self.live_end is None else self.live_end} {self.table_id or EMPTY_SIGN}"

    @classmethod
    def parse(cls, live: str, table: str) -> SourceIdentity:
        """Parse the two words of a text. ValueError if the first one is not a position."""
        return cls(None if live == EMPTY_SIGN else parse_position(live), "" if table == EMPTY_SIGN else table)


@dataclass(frozen=True)
class ReplayPosition:
    """The position of a replay.

    Attributes:
        run_number: The number of its last run, from 1.
        rows: Entries that this run has added.
        last_source_id: The source ID of the last entry added.
        upto: The ID at which the replay ends, inclusive.
        keep_ids: Whether entries keep their IDs.
        done: Whether the replay is complete.
        process: Identifies the process that started the run; empty if an earlier version did.
        total_rows: Entries that all runs have added, as far as recorded.
        source: The source, as it was when the replay began.
    """

    run_number: int
    rows: int
    last_source_id: str
    upto: str
    keep_ids: bool
    done: bool = False
    process: str = ""
    total_rows: int = 0
    source: SourceIdentity = field(default_factory=SourceIdentity)

    def encode(self) -> bytes:
        """Return the value of the key."""
        end = f":{DONE_WORD}" if self.done else ""
        where = (
            f"{self.run_number}:{self.rows}:{self.last_source_id}:{self.upto}:{ID_MODES[self.keep_ids]}{end}"
        )
        return f"{where} {self.process or EMPTY_SIGN} {self.total_rows} {self.source}".encode()

    @classmethod
    def parse(cls, value: bytes | None, key: bytes) -> ReplayPosition | None:
        """Parse the value of a key; return None if there is no key.

        Raises:
            CommandError: if the value is not a position, or records that entries were rejected.
        """
        if value is None:
            return None
        text = value.decode(errors="replace")
        run, rows, last, rest = (text.split(":", 3) + [""] * 3)[:4]
        if last == REJECTED_SIGN:
            raise CommandError(
                f"the server rejected entries of this replay: {rest}. Delete the key {key.decode()!r} to "
                "begin again"
            )
        where, *words = rest.split(" ")
        upto, _, rest = where.partition(":")
        id_mode, _, end = rest.partition(":")
        try:
            parse_id(last), parse_id(upto), ("", DONE_WORD).index(end)
            process, total, live, table = words or (EMPTY_SIGN, rows, EMPTY_SIGN, EMPTY_SIGN)
            return cls(
                int(run),
                int(rows),
                last,
                upto,
                ID_MODES.index(id_mode) == 1,
                end == DONE_WORD,
                "" if process == EMPTY_SIGN else process,
                int(total),
                SourceIdentity.parse(live, table),
            )
        except ValueError as error:
            raise CommandError(
                f"the key {key.decode()!r} holds {value!r}, which is not the position of a replay; "
                "delete the key to begin again"
            ) from error
