"""Every option of the Spark source and sink, declared once: parsing, errors and the reference come from here.

Names follow Spark's Kafka source where it has one for the same thing. They are case-insensitive.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import UsageError
from headrace.spark.offsets import parse_id

# What Spark itself puts among a sink's or a table's options.
SPARKS_OWN = {"checkpointlocation", "queryname"}


@dataclass(frozen=True)
class Option:
    """One option. where: who knows it (batch, stream, sink); parse: text to value, or ValueError."""

    name: str
    type: str
    default: str | None
    where: tuple[str, ...]
    help: str
    parse: Callable[[str], Any]
    aliases: tuple[str, ...] = ()


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("no stream is named")
    return names


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("must be at least 1")
    return number


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for word in words:
            if text.lower() == word.lower():
                return word
        raise ValueError(f"must be one of {', '.join(words)}")

    return parse


def _entry_id(text: str) -> str:
    parse_id(text)
    return text


def _offsets(text: str) -> str | dict[str, str]:
    if text.strip().lower() in ("earliest", "latest"):
        return text.strip().lower()
    try:
        offsets = json.loads(text)
    except json.JSONDecodeError:
        offsets = None
    if not isinstance(offsets, dict) or not all(isinstance(v, str) for v in offsets.values()):
        raise ValueError(
            'must be earliest, latest or JSON like {"orders": "1700000000000-0", "bids": "earliest"}'
        )
    for value in offsets.values():
        if value not in ("earliest", "latest"):
            parse_id(value)
    return offsets


READ = ("batch", "stream")
DEFAULT_URL = "redis://127.0.0.1:7777"  # where `headrace serve` listens when told nothing
OPTIONS = (
    Option(
        "url",
        "URL",
        DEFAULT_URL,
        ("batch", "stream", "sink"),
        "The server: `redis://[user:password@]host:port[/database]`, `rediss://` for TLS, `unix://path`; "
        "`sentinel://host:port,…/service[/database]` for the master that Sentinels name, "
        "`cluster://host:port,…` for a cluster, with TLS `sentinels://` and `clusters://`. What redis-py "
        "should know beyond that follows as `?ssl_ca_certs=…&name=value`.",
        str,
    ),
    Option("subscribe", "names", None, READ, "The streams to read, separated by commas.", _names),
    Option(
        "startingOffsets",
        "earliest, latest or JSON",
        None,
        READ,
        "Where a new query starts: `earliest`, `latest`, or by stream the ID after which to read, as in the "
        "offsets of a checkpoint. A stream that the JSON does not name starts at its earliest entry. "
        "Default: `earliest` for batch, `latest` for streaming. A restarted query goes on from its "
        "checkpoint.",
        _offsets,
    ),
    Option(
        "endingOffsets",
        "latest or JSON",
        "latest",
        ("batch",),
        "Where a batch read ends: `latest`, or by stream the last ID to read.",
        _offsets,
    ),
    Option(
        "maxOffsetsPerTrigger",
        "number",
        None,
        ("stream",),
        "At most this many entries in one micro-batch, shared by the streams in proportion to their backlog.",
        _positive,
    ),
    Option(
        "minPartitions",
        "number",
        None,
        READ,
        "How many tasks to aim at; large ranges are split, small streams are not joined. Default: enough for "
        "the cores of the driver's machine, and a task more only for every 50,000 entries.",
        _positive,
        ("numPartitions",),
    ),
    Option(
        "maxRecordsPerPartition",
        "number",
        None,
        READ,
        "About how many entries one task may have; more tasks are made if needed.",
        _positive,
    ),
    Option(
        "failOnDataLoss",
        "true or false",
        "true",
        READ,
        "What to do when entries were trimmed, or the stream was deleted, before they were read: fail, or "
        "warn and go on with the first entry there is.",
        _boolean,
    ),
    Option(
        "mode",
        "PERMISSIVE, DROPMALFORMED or FAILFAST",
        "PERMISSIVE",
        READ,
        "What to do with a value that does not fit its column: make it null (and put the entry into "
        "`_corrupt_record`, if the schema has that column), leave the entry out, or fail.",
        _one_of("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
    ),
    Option(
        "timestampFormat",
        "epoch_ms, epoch_s or iso8601",
        "epoch_ms",
        (*READ, "sink"),
        "How the text of a TIMESTAMP column is read, and written. ISO 8601 without a zone is UTC.",
        _one_of("epoch_ms", "epoch_s", "iso8601"),
    ),
    Option(
        "entriesPerFetch",
        "number",
        "10000",
        READ,
        "COUNT of each XRANGE: how many entries one request asks for.",
        _positive,
    ),
    Option(
        "fetch",
        "auto, resp or arrow",
        "auto",
        READ,
        "How entries come from the server: `arrow`, as columns that it makes (XARROW, which Headrace has), "
        "`resp`, as replies of XRANGE, or `auto`: the first where the server and the schema allow it.",
        _one_of("auto", "resp", "arrow"),
    ),
    Option(
        "stream", "name", None, ("sink",), "The stream to write to, unless the rows have a `_stream`.", str
    ),
    Option(
        "maxLength",
        "number",
        None,
        ("sink",),
        "Trim the stream to about this many entries while writing (MAXLEN ~).",
        _positive,
    ),
    Option(
        "minId",
        "ID",
        None,
        ("sink",),
        "Trim the stream while writing: entries below this ID go, in whole nodes (MINID ~).",
        _entry_id,
    ),
    Option(
        "trimPolicy",
        "KEEPREF, DELREF or ACKED",
        None,
        ("sink",),
        "What trimming does to references that consumer groups hold, on servers that know these words "
        "(Headrace; Redis from 8.2). Default: nothing is said, which means KEEPREF.",
        _one_of("KEEPREF", "DELREF", "ACKED"),
    ),
    Option(
        "delivery",
        "exactly-once or at-least-once",
        None,
        ("sink",),
        "`exactly-once`: each row is one entry, whatever fails and is tried again. Default: so for a "
        "streaming query, `at-least-once` for a batch.",
        _one_of("exactly-once", "at-least-once"),
    ),
    Option(
        "queryId",
        "name",
        None,
        ("sink",),
        "The name under which a write is remembered for exactly once. Default: Spark's own ID of the "
        "streaming query; for a batch, one of this job's. A batch job that is run again with the same name "
        "adds only what is missing.",
        str,
    ),
    Option(
        "keepIds",
        "true or false",
        "false",
        ("sink",),
        "When a frame of the source's own columns is written, give the entries the IDs that are in it, "
        "instead of new ones. The rows must come sorted, and in one partition for each stream.",
        _boolean,
    ),
)


@dataclass(frozen=True)
class Options:
    """The options of one read or write, parsed. Picklable; holds no connection."""

    url: str
    subscribe: tuple[str, ...] | None = None
    starting_offsets: str | dict[str, str] | None = None
    ending_offsets: str | dict[str, str] | None = None
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    mode: str = "PERMISSIVE"
    timestamp_format: str = "epoch_ms"
    entries_per_fetch: int = 10000
    fetch: str = "auto"
    stream: str | None = None
    max_length: int | None = None
    min_id: str | None = None
    trim_policy: str | None = None
    delivery: str | None = None
    query_id: str | None = None
    keep_ids: bool = False

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams to read."""
        if self.subscribe is None:
            raise UsageError('Say which streams to read: .option("subscribe", "orders,bids").')
        return self.subscribe


def _attribute(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def parse_options(raw: Mapping[str, str], where: str) -> Options:
    """The options for where: batch, stream or sink. UsageError names the option and what it should be."""
    known = {n.lower(): option for option in OPTIONS for n in (option.name, *option.aliases)}
    values = {
        _attribute(o.name): o.parse(o.default) for o in OPTIONS if where in o.where and o.default is not None
    }
    for key, text in raw.items():
        option = known.get(key.lower())
        if option is None:
            if key.lower() in SPARKS_OWN:
                continue
            close = difflib.get_close_matches(key.lower(), known, 1)
            hint = f" Did you mean {known[close[0]].name}?" if close else ""
            raise UsageError(f"headrace has no option {key!r}.{hint}")
        if where not in option.where:
            raise UsageError(
                f"The option {option.name} is for {' and '.join(option.where)}, not for {where}."
            )
        try:
            values[_attribute(option.name)] = option.parse(text)
        except ValueError as wrong:
            raise UsageError(f"The option {option.name} is {text!r}: {wrong}.") from None
    if where == "batch" and values.get("starting_offsets") == "latest":
        raise UsageError("A batch read cannot start at latest: nothing would be read.")
    if where == "batch" and values.get("ending_offsets") == "earliest":
        raise UsageError("A batch read cannot end at earliest: nothing would be read.")
    return Options(**values)


def options_table() -> str:
    """The options as a Markdown table, for docs/spark.md."""
    rows = ["| Option | Value | Default | For | Meaning |", "|---|---|---|---|---|"]
    for o in OPTIONS:
        names = "`, `".join((o.name, *o.aliases))
        default = f"`{o.default}`" if o.default is not None else ""
        rows.append(f"| `{names}` | {o.type} | {default} | {', '.join(o.where)} | {o.help} |")
    return "\n".join(rows) + "\n"
