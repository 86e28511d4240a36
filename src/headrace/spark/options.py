"""Every option of the Spark source and sink, declared once: parsing, errors and the reference come from here.

Names follow Spark's Kafka source where it has one for the same thing. They are case-insensitive.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import UsageError
from headrace.spark import option_values
from headrace.spark.decode.time_formats import TIME_FORMATS

SPARK_OPTIONS = {"checkpointlocation", "queryname"}  # Spark adds these to the options of a sink or a table
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Option:
    """One option. where: who knows it (batch, stream, sink); parse: text to value, or ValueError.

    sets: the attribute of Options, if that is not called like the option; ignored: why nothing is set at all.
    """

    name: str
    type: str
    default: str | None
    scopes: tuple[str, ...]
    help: str
    parse: Callable[[str], Any]
    aliases: tuple[str, ...] = ()
    attribute_name: str = ""
    ignored_because: str = ""

    @property
    def attribute(self) -> str:
        """The attribute of Options."""
        return self.attribute_name or "".join(f"_{c.lower()}" if c.isupper() else c for c in self.name)


READ_SCOPES = ("batch", "stream")
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
    Option(
        "subscribe",
        "names",
        None,
        READ_SCOPES,
        "The streams to read, separated by commas. One that does not exist yet is read when it does. "
        "A byte that is not UTF-8 is written as `\\xNN`, with two lower-case hexadecimal digits, here and "
        "wherever a stream is named. "
        "Say this, `subscribePattern` or `assign`.",
        option_values.parse_stream_list,
        ("stream.keys",),
    ),
    Option(
        "subscribePattern",
        "regular expression",
        None,
        READ_SCOPES,
        "Read the streams whose whole names match (Python's syntax). Streams that appear while a query runs "
        "are read from their beginning.",
        option_values.parse_regex,
    ),
    Option(
        "assign",
        "JSON",
        None,
        READ_SCOPES,
        'The streams to read, like `["orders", "bids"]`; so names with commas, spaces around them, or no '
        "letter at all can be given. All must exist when the query begins.",
        option_values.parse_stream_array,
    ),
    Option(
        "discoveryInterval",
        "time",
        "5s",
        READ_SCOPES,
        "How often to look for new streams that `subscribePattern` matches: the server's keys are scanned.",
        option_values.parse_duration,
    ),
    Option(
        "startingOffsets",
        "earliest, latest or JSON",
        None,
        READ_SCOPES,
        "Where a new query starts: `earliest`, `latest`, or by stream the ID after which to read; offsets "
        "of a checkpoint are understood, too. A stream that the JSON does not name starts at its earliest "
        "entry. "
        "Default: `earliest` for batch, `latest` for streaming. A restarted query goes on from its "
        "checkpoint.",
        option_values.parse_offsets,
    ),
    Option(
        "startingTimestamp",
        "time",
        None,
        READ_SCOPES,
        "A new query starts with the first entry of this time or later: milliseconds since 1970 or ISO 8601. "
        "Goes before `startingOffsetsByTimestamp`, which goes before `startingOffsets`.",
        option_values.parse_timestamp,
    ),
    Option(
        "startingOffsetsByTimestamp",
        "JSON",
        None,
        READ_SCOPES,
        'The same by stream, like `{"orders": 1700000000000}`; others start at their earliest entry.',
        option_values.parse_timestamps,
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error or latest",
        None,
        READ_SCOPES,
        "Accepted, and has nothing to decide: an ID begins with its time, so every time is a place in a "
        "stream, also one that no entry has reached.",
        option_values.parse_one_of("error", "latest"),
        ignored_because="every time is a place in a stream",
    ),
    Option(
        "endingOffsets",
        "latest or JSON",
        "latest",
        ("batch",),
        "Where a batch read ends: `latest`, or by stream the last ID to read.",
        option_values.parse_offsets,
    ),
    Option(
        "endingTimestamp",
        "time",
        None,
        ("batch",),
        "A batch read ends before the first entry of this time or later. Goes before "
        "`endingOffsetsByTimestamp`, which goes before `endingOffsets`.",
        option_values.parse_timestamp,
    ),
    Option(
        "endingOffsetsByTimestamp",
        "JSON",
        None,
        ("batch",),
        "The same by stream. A stream that is not named is read to its end.",
        option_values.parse_timestamps,
    ),
    Option(
        "archive",
        "path",
        None,
        ("batch",),
        "An archive that `headrace archive` has made: read it and what is live of its streams as one table. "
        "Up to the ID where a stream's archive ends its files are read, after it the server. The path must "
        "be the same on every node. Without `subscribe` and the like: all streams that are in the archive.",
        option_values.parse_directory,
    ),
    Option(
        "maxOffsetsPerTrigger",
        "number",
        None,
        ("stream",),
        "At most this many entries in one micro-batch, shared by the streams in proportion to their backlog.",
        option_values.parse_positive,
    ),
    Option(
        "maxBytesPerTrigger",
        "bytes",
        None,
        ("stream",),
        "About so many bytes at most in a micro-batch, like `64m`; at least one entry. By MEMORY USAGE.",
        option_values.parse_byte_count,
    ),
    Option(
        "minOffsetsPerTrigger",
        "number",
        None,
        ("stream",),
        "Wait until about so many entries are there. `Trigger.AvailableNow` does not wait.",
        option_values.parse_positive,
    ),
    Option(
        "maxTriggerDelay",
        "time",
        "15m",
        ("stream",),
        "But no longer than this after the last micro-batch, or the start of the query.",
        option_values.parse_duration,
    ),
    Option(
        "minPartitions",
        "number",
        None,
        READ_SCOPES,
        "How many tasks to aim at; large ranges are split, small streams are not joined. Default: enough for "
        "the cores of the driver's machine, and a task more only for every 50,000 entries.",
        option_values.parse_positive,
        ("numPartitions", "stream.parallelism"),
    ),
    Option(
        "maxRecordsPerPartition",
        "number",
        None,
        READ_SCOPES,
        "About how many entries one task may have; more tasks are made if needed.",
        option_values.parse_positive,
    ),
    Option(
        "failOnDataLoss",
        "true or false",
        "true",
        READ_SCOPES,
        "What to do when entries were trimmed, or the stream was deleted, before they were read, or when "
        "the stream was deleted and recreated: fail, or warn and go on with the first entry there is.",
        option_values.parse_boolean,
    ),
    Option(
        "mode",
        "PERMISSIVE, DROPMALFORMED or FAILFAST",
        "PERMISSIVE",
        READ_SCOPES,
        "What to do with a value that does not fit its column: make it null (and put the entry into "
        "`_corrupt_record`, if the schema has that column), leave the entry out, or fail.",
        option_values.parse_one_of("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
    ),
    Option(
        "timestampFormat",
        "epoch_ms, epoch_s, iso8601 or auto",
        "epoch_ms",
        (*READ_SCOPES, "sink"),
        "How the text of a TIMESTAMP column is read, and written. ISO 8601 without a zone is UTC. `auto` "
        "reads both milliseconds since 1970 and ISO 8601, and writes the former. A column has a format of "
        "its own if that is its comment in the schema: `at TIMESTAMP COMMENT 'iso8601'`.",
        option_values.parse_one_of(*TIME_FORMATS),
    ),
    Option(
        "fieldsType",
        "string or binary",
        "string",
        READ_SCOPES,
        "What the values of the map `fields` are, if no schema is given. As `string`, bytes that are not "
        "UTF-8 are written as `\\xNN`; as `binary`, all values are exact.",
        option_values.parse_one_of("string", "binary"),
    ),
    Option(
        "entriesPerFetch",
        "number",
        "10000",
        READ_SCOPES,
        "COUNT of each XRANGE: how many entries one request asks for.",
        option_values.parse_positive,
        ("stream.read.batch.size",),
    ),
    Option(
        "fetch",
        "auto, resp or arrow",
        "auto",
        READ_SCOPES,
        "How entries come from the server: `arrow`, as columns that it makes (XARROW, which Headrace has), "
        "`resp`, as replies of XRANGE, or `auto`: the first where the server and the schema allow it.",
        option_values.parse_one_of("auto", "resp", "arrow"),
    ),
    Option(
        "groupId",
        "name",
        None,
        ("stream",),
        "Show the progress as a consumer group of this name, which nothing else should use: its "
        "last-delivered-id follows the query, so XINFO GROUPS tells its lag. It is made where it is missing. "
        "The checkpoint alone says where the query goes on; if the group cannot be set, that is a warning.",
        option_values.parse_name,
        ("stream.group.name",),
    ),
    Option(
        "acknowledgeOnCommit",
        "true or false",
        "false",
        ("stream",),
        "For a group from which others read, too: entries that they were given and that the query has read "
        "are acknowledged (XACK), and the group's last-delivered-id is never moved back.",
        option_values.parse_boolean,
    ),
    Option(
        "stream.offsets",
        "JSON",
        None,
        READ_SCOPES,
        '`startingOffsets` as spark-redis says it: `{"offsets": {"orders": {"groupName": "g", "offset": '
        '"1548083485360-0"}}}`. The group is not looked at.',
        option_values.parse_spark_redis_offsets,
        attribute_name="starting_offsets",
    ),
    Option(
        "stream.read.block",
        "milliseconds",
        None,
        READ_SCOPES,
        "An option of spark-redis, accepted and ignored with a warning: an idle query waits by itself.",
        str,
        ignored_because="an idle query waits by itself",
    ),
    Option(
        "stream.consumer.prefix",
        "name",
        None,
        READ_SCOPES,
        "An option of spark-redis, accepted and ignored with a warning: ranges are read without consumers.",
        str,
        ignored_because="ranges are read without consumers",
    ),
    Option(
        "stream",
        "name",
        None,
        ("sink",),
        "The stream to write to, unless the rows have a `_stream`.",
        option_values.parse_name,
    ),
    Option(
        "maxLength",
        "number",
        None,
        ("sink",),
        "Trim the stream to about this many entries while writing (MAXLEN ~).",
        option_values.parse_positive,
    ),
    Option(
        "minId",
        "ID",
        None,
        ("sink",),
        "Trim the stream while writing: entries below this ID go, in whole nodes (MINID ~).",
        option_values.parse_entry_id,
    ),
    Option(
        "trimPolicy",
        "KEEPREF, DELREF or ACKED",
        None,
        ("sink",),
        "What trimming does to references that consumer groups hold, on servers that know these words "
        "(Headrace; Redis from 8.2). Default: nothing is said, which means KEEPREF.",
        option_values.parse_one_of("KEEPREF", "DELREF", "ACKED"),
    ),
    Option(
        "delivery",
        "exactly-once or at-least-once",
        None,
        ("sink",),
        "`exactly-once`: each row is one entry, whatever fails and is tried again. Default: so for a "
        "streaming query, `at-least-once` for a batch.",
        option_values.parse_one_of("exactly-once", "at-least-once"),
    ),
    Option(
        "queryId",
        "name",
        None,
        ("sink",),
        "The name under which a write is remembered for exactly once. Default: Spark's own ID of the "
        "streaming query; for a batch, one of this job's. A batch job that is run again with the same name "
        "adds only what is missing.",
        option_values.parse_name,
    ),
    Option(
        "keepIds",
        "true or false",
        "false",
        ("sink",),
        "When a frame of the source's own columns is written, give the entries the IDs that are in it, "
        "instead of new ones. The rows must come sorted, and in one partition for each stream.",
        option_values.parse_boolean,
    ),
)


@dataclass(frozen=True)
class Options:
    """The options of one read or write, parsed. Picklable; holds no connection."""

    url: str
    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: tuple[str, ...] | None = None
    discovery_interval: float = 5.0
    starting_offsets: str | dict[str, str] | None = None
    starting_timestamp: str | None = None  # times are IDs here: that before the first entry of the time
    starting_offsets_by_timestamp: dict[str, str] | None = None
    ending_offsets: str | dict[str, str] | None = None
    ending_timestamp: str | None = None
    ending_offsets_by_timestamp: dict[str, str] | None = None
    archive: str | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    mode: str = "PERMISSIVE"
    timestamp_format: str = "epoch_ms"
    fields_type: str = "string"
    entries_per_fetch: int = 10000
    fetch: str = "auto"
    group_id: str | None = None
    acknowledge_on_commit: bool = False
    stream: str | None = None
    max_length: int | None = None
    min_id: str | None = None
    trim_policy: str | None = None
    delivery: str | None = None
    query_id: str | None = None
    keep_ids: bool = False

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that are read by name; none if subscribePattern, or nothing, says which."""
        return self.subscribe or self.assign or ()


def parse_options(raw: Mapping[str, str], scope: str) -> Options:
    """The options for where: batch, stream or sink. UsageError names the option and what it should be."""
    known = {n.lower(): (n, option) for option in OPTIONS for n in (option.name, *option.aliases)}
    values = {o.attribute: o.parse(o.default) for o in OPTIONS if scope in o.scopes and o.default is not None}
    used_names: dict[str, str] = {}
    for key, text in raw.items():
        if key.lower() in SPARK_OPTIONS:
            continue
        if key.lower() not in known:
            raise _unknown(key, [name for name, _ in known.values()])
        name, option = known[key.lower()]  # Spark makes all its letters small
        if scope not in option.scopes:
            raise UsageError(
                f"The option {option.name} is for {' and '.join(option.scopes)}, not for {scope}."
            )
        try:
            value = option.parse(text)
        except ValueError as error:
            raise UsageError(f"The option {name} is {text!r}: {error}.") from None
        earlier = used_names.setdefault(option.attribute, name)
        if earlier != name:
            raise UsageError(f"The options {earlier} and {name} are the same one, said twice.")
        if not option.ignored_because:
            values[option.attribute] = value
        elif name.startswith("stream."):
            log.warning("The option %s is ignored: %s.", name, option.ignored_because)
    _check_combinations(values, scope)
    return Options(**values)


def parse_fields_type(raw: Mapping[str, str]) -> str:
    """The option fieldsType among the options of a read. UsageError if it is neither string nor binary."""
    [option] = [each for each in OPTIONS if each.name == "fieldsType"]
    text = next((text for key, text in raw.items() if key.lower() == option.name.lower()), option.default)
    try:
        kind: str = option.parse(text or "")
    except ValueError as error:
        raise UsageError(f"The option {option.name} is {text!r}: {error}.") from None
    return kind


def _unknown(key: str, names: list[str]) -> UsageError:
    close = difflib.get_close_matches(key.lower(), [name.lower() for name in names], 1)
    hint = "".join(f" Did you mean {name}?" for name in names if name.lower() in close)
    return UsageError(f"headrace has no option {key!r}.{hint}")


def _check_combinations(values: Mapping[str, Any], scope: str) -> None:
    """What no option says alone."""
    sources = {"subscribe": "subscribe", "subscribePattern": "subscribe_pattern", "assign": "assign"}
    chosen = [name for name, attribute in sources.items() if attribute in values]
    if len(chosen) > 1:
        raise UsageError(f"Say only one of {' and '.join(chosen)}.")
    minimum, maximum = values.get("min_offsets_per_trigger"), values.get("max_offsets_per_trigger")
    if minimum and maximum and minimum > maximum:
        raise UsageError(
            f"minOffsetsPerTrigger is {minimum}, more than maxOffsetsPerTrigger, which is {maximum}."
        )
    if values.get("acknowledge_on_commit") and not values.get("group_id"):
        raise UsageError("acknowledgeOnCommit needs a groupId: in which group?")
    if scope == "batch" and _contains(values.get("starting_offsets"), "latest"):
        raise UsageError("A batch read cannot start at latest: nothing would be read.")
    if scope == "batch" and _contains(values.get("ending_offsets"), "earliest"):
        raise UsageError("A batch read cannot end at earliest: nothing would be read.")


def _contains(offsets: str | dict[str, str] | None, word: str) -> bool:
    return word in (offsets.values() if isinstance(offsets, dict) else (offsets,))
