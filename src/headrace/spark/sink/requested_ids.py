"""Check the IDs that rows request before the rows are written in a transaction.

Redis does not undo a transaction if it rejects one of its entries, so no ID may be too small.
"""

from __future__ import annotations

from headrace.client.stream_names import stream_name
from headrace.errors import CommandError, UsageError
from headrace.positions.entry_ids import START, parse_id
from headrace.spark.sink.at_least_once import SinkConnection


class RowIdTooSmall(UsageError):
    """The ID of a row is not above the stream's last ID, or not above the previous row's ID."""


def last_id_from_xinfo(strings: list[bytes]) -> tuple[int, int]:
    """Return the last ID of a stream from the strings of a reply to XINFO STREAM; 0-0 if there are none.

    The first string `last-generated-id` is the name in the reply. The entries in the reply, which may have a
    field of that name, come later.
    """
    if b"last-generated-id" not in strings:
        return parse_id(START)
    return parse_id(strings[strings.index(b"last-generated-id") + 1].decode())


def check_requested_ids(
    connection: SinkConnection, stream: bytes, info: object, ids: list[str | None]
) -> None:
    """Check that the server will accept the IDs.

    Args:
        connection: the connection to the server.
        stream: the stream.
        info: the reply to XINFO STREAM.
        ids: the IDs of the rows in order; None for an ID that the server assigns.

    Raises:
        UsageError: for an ID that is too small or wrong, or if only some rows have one.
        CommandError: if the reply is an error; not if it says that the stream does not exist.
    """
    last = parse_id(START)
    if isinstance(info, list):
        properties = dict(zip(info[::2], info[1::2], strict=True))
        last = parse_id(properties[b"last-generated-id"].decode())
    elif not (isinstance(info, CommandError) and "no such key" in str(info)):
        connection.raise_error(str(info))
    check_increasing_ids(stream, last, ids)


def check_increasing_ids(stream: bytes, last: tuple[int, int], ids: list[str | None]) -> None:
    """Check that the IDs increase, starting after `last`: a transaction is not undone if one is rejected.

    Raises:
        UsageError: for an ID that is too small or wrong, or if only some rows have one.
    """
    if all(i is None for i in ids):
        return
    for text in ids:
        if text is None:
            raise UsageError(
                "Some rows have an ID and some have none: with exactly-once, give all rows IDs or none."
            )
        try:
            entry_id = parse_id(text)
        except ValueError as wrong:
            raise UsageError(f"{wrong}, like 1763676000000-0.") from None
        if entry_id <= last:
            raise RowIdTooSmall(
                f"The ID {text} is not above {last[0]}-{last[1]}, the last ID of the stream "
                f"{stream_name(stream)!r}. Sort the rows by ID, in one partition for each stream."
            )
        last = entry_id
