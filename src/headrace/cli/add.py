"""`headrace add`: add entries to a stream, from the command line or from JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from headrace.cli.completion import complete_streams
from headrace.cli.output import bytes_from_json
from headrace.cli.output_errors import writing
from headrace.cli.stream_client import StreamClient, clients_of, name_bytes
from headrace.cli.streams import url_option
from headrace.client.connection import Words
from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.servers import servers_at
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.standard_input import standard_input
from headrace.plurals import plural

AT_ONCE = 500  # entries in one pipeline
LINE_MAX = 64 << 20  # bytes of one line of JSON
TAILED = {"stream", "id", "fields"}  # the keys of a line that `tail --json` prints
Fields = list[bytes]  # names and values in turn


@click.command(
    "add",
    epilog="""\b
Examples:
  headrace add orders item=pear count=3
  headrace add orders item pear count 3
  headrace add --maxlen 100000 --json orders < orders.jsonl
  headrace tail --from 1h --json orders | headrace add --json orders-copy
""",
)
@click.argument("stream", shell_complete=complete_streams)
@click.argument("words", nargs=-1, metavar="[FIELD=VALUE | FIELD VALUE]...")
@click.option("--json", "from_json", is_flag=True, help="Read standard input, a JSON object a line.")
@click.option("--id", "entry_id", metavar="ID", default="*", help="The ID; made by the server if left out.")
@click.option("--maxlen", type=click.IntRange(min=0), help="Trim the stream to about this many entries.")
@url_option
def command(
    stream: str, words: tuple[str, ...], from_json: bool, entry_id: str, maxlen: int | None, url: str
) -> None:
    """Add an entry to a stream, or one for each line of JSON, and print their IDs.

    Fields are FIELD=VALUE if every word has an equals sign, otherwise FIELD VALUE in turn. A stream that does
    not exist is created.
    """
    if from_json and words:
        raise UsageError("--json reads entries from standard input: leave out the fields")
    if from_json and entry_id != "*":
        raise UsageError("--id is for one entry: leave it out with --json")
    source = standard_input() if from_json else None
    single = [] if from_json else fields_of(words)
    with servers_at(url) as servers, clients_of(servers, [stream]) as [client]:
        adder = Adder(client, entry_id, maxlen)
        if source is None:
            adder.add([single])
            return
        for batch in batches(source, adder):
            adder.add(batch)


class Adder:
    """Adds entries and prints their IDs.

    Args:
        client: Of the stream.
        entry_id: The ID that entries get, * for one that the server makes.
        maxlen: About how many entries to keep; None for all.
    """

    def __init__(self, client: StreamClient, entry_id: str, maxlen: int | None) -> None:
        self.client = client
        trim: Words = () if maxlen is None else ("MAXLEN", "~", maxlen)
        self.head: Words = ("XADD", client.key, *trim, entry_id)
        self.added = 0

    def add(self, entries: list[Fields]) -> None:
        """Add entries in one pipeline. HeadraceError says how many were added if not all were."""
        try:
            replies = self.client.pipeline([(*self.head, *fields) for fields in entries])
        except CONNECTION_ERRORS as error:
            raise HeadraceError(
                f"{error}; {self.summary()}, and it is unknown whether the next {len(entries)} were"
            ) from error
        failed: Exception | None = None
        for reply in replies:
            if isinstance(reply, Exception):
                failed = failed or reply
            else:
                with writing():
                    click.echo(reply.decode())
                self.added += 1
        if failed is not None:
            raise HeadraceError(f"the server rejected an entry: {failed}; {self.summary()}")

    def summary(self) -> str:
        """Return how many entries were added, for an error message."""
        return f"{plural(self.added, 'entry')} added"


def fields_of(words: tuple[str, ...]) -> Fields:
    """Return the fields that words on the command line give. UsageError if they give none."""
    if not words:
        raise UsageError("name the fields: FIELD=VALUE or FIELD VALUE, or use --json")
    if all("=" in word[1:] for word in words):
        return [name_bytes(part) for word in words for part in split_word(word)]
    if len(words) % 2:
        without = next((word for word in words if "=" not in word), words[-1])
        raise UsageError(f"{without!r} is neither FIELD=VALUE nor a field with a value: {len(words)} words")
    return [name_bytes(word) for word in words]


def split_word(word: str) -> tuple[str, str]:
    """Return field and value of FIELD=VALUE; the value may have equals signs."""
    name, _, value = word.partition("=")
    return name, value


def batches(source: BinaryIO, adder: Adder) -> Iterator[list[Fields]]:
    """Return entries from lines of JSON, some at a time; those before a wrong line are added."""
    batch: list[Fields] = []
    wrong: UsageError | None = None
    for number, text in enumerate(iter(lambda: source.readline(LINE_MAX + 1), b""), 1):
        try:
            if len(text) > LINE_MAX:
                raise ValueError(f"longer than {LINE_MAX >> 20} MiB")
            if text.strip():
                batch.append(fields_from_json(parse_line(text)))
        except (ValueError, RecursionError) as error:
            wrong = UsageError(f"line {number}: {error}")
            break
        if len(batch) == AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
    if wrong is not None:
        wrong.args = (f"{wrong}; {adder.summary()}",)
        raise wrong


class NumberText(str):
    """A number of JSON as it is written: 10.50 stays 10.50."""


def parse_line(text: bytes) -> Any:
    """Return a line of JSON, the numbers in its fields as text. ValueError if it is not valid."""
    line = text.decode("utf-8-sig")
    exact = json.loads(
        line,
        parse_int=NumberText,
        parse_float=NumberText,
        parse_constant=rejected_constant,
        object_pairs_hook=object_of,
    )
    if isinstance(exact, dict):
        plain = json.loads(line)  # in which numbers of nested values are numbers
        return {
            name: plain[name] if isinstance(value, dict | list) else value for name, value in exact.items()
        }
    return exact


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. ValueError if a name occurs twice, since one value would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))
        raise ValueError(f"{twice!r} occurs twice in an object")
    return found


def rejected_constant(name: str) -> Any:
    """Raise ValueError for NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{name} is not JSON")


def fields_from_json(value: Any) -> Fields:
    """Return the fields of an object of JSON, or of a line that `headrace tail --json` printed.

    A null is a missing value and is left out; a nested value becomes its JSON text.

    Raises:
        ValueError: if it is not an object, or has no fields.
    """
    if not isinstance(value, dict):
        raise ValueError(f'expected a JSON object, such as {{"item": "pear"}}, not {type(value).__name__}')
    pairs: Any = value
    if set(value) == TAILED and isinstance(value["fields"], dict | list):
        pairs = value["fields"]
    if isinstance(pairs, dict):
        pairs = [pair for pair in pairs.items() if pair[1] is not None]
    fields: Fields = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError("fields are not pairs of a name and a value")
        fields += [bytes_from_json(each) for each in pair]
    if not fields:
        raise ValueError("the entry has no fields")
    return fields
