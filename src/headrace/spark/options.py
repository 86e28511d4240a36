"""All options of the Spark source and sink, declared once for parsing, errors and the reference page.

Names follow Spark's Kafka source where it has an option for the same thing. They are case-insensitive.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.archive.location import ArchiveLocation, archive_location
from headrace.client.servers import Servers
from headrace.columns.time_formats import EXACT_MS_FORMAT, TIME_FORMATS
from headrace.errors import UsageError
from headrace.spark import option_values

OPTIONS_OF_SPARK = {"checkpointlocation", "queryname"}  # Spark adds these to the options of a sink or a table
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Option:
    """One option.

    scopes              where it can be given: batch, stream (reads), sink
    parse               converts its text to its value; raises ValueError
    attribute_override  the attribute of Options, if its name is not the option's
    ignored_because     why the option is accepted and has no effect; empty if it has one
    sink_default        the value in a sink if the option is not given; None: the sink uses `default`, too
    """

    name: str
    type: str
    default: str | None
    scopes: tuple[str, ...]
    help: str
    parse: Callable[[str], Any]
    aliases: tuple[str, ...] = ()
    attribute_override: str = ""
    ignored_because: str = ""
    sink_default: Any = None

    @property
    def attribute(self) -> str:
        """The name of its attribute of Options."""
        return self.attribute_override or "".join(f"_{c.lower()}" if c.isupper() else c for c in self.name)

    def default_value(self, scope: str) -> Any:
        """Return the value if the option is not given; None if there is none."""
        if scope == "sink" and self.sink_default is not None:
            return self.sink_default
        return None if self.default is None else self.parse(self.default)


READ_SCOPES = ("batch", "stream")
DEFAULT_URL = "redis://127.0.0.1:7777"  # where `headrace serve` listens by default
OPTIONS = (
    Option(
        "url",
        "URL",
        DEFAULT_URL,
        ("batch", "stream", "sink"),
        "The server: `redis://[user:password@]host:port[/database]`, `rediss://` for TLS, `unix://path`; "
        "`sentinel://host:port,…/service[/database]` for the master that Sentinels name, "
        "`cluster://host:port,…` for a cluster, with TLS `sentinels://` and `clusters://`. Further settings "
        "of redis-py are appended as `?ssl_ca_certs=…&name=value`.",
        str,
    ),
    Option(
        "subscribe",
        "names",
        None,
        READ_SCOPES,
        "The streams to read, separated by commas. A stream that does not exist yet is read from when it is "
        "created. In names of streams, here and everywhere, a byte that is not UTF-8 is written as `\\xNN`, "
        "with two lower-case hexadecimal digits. "
        "Give only one of `subscribe`, `subscribePattern` and `assign`.",
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
        'The streams to read, like `["orders", "bids"]`. Unlike with `subscribe`, names can contain commas '
        "and outer spaces, and can be empty. All streams must exist when the query begins.",
        option_values.parse_stream_array,
    ),
    Option(
        "discoveryInterval",
        "time",
        "5s",
        READ_SCOPES,
        "How often to scan the server's keys for new streams that match `subscribePattern`.",
        option_values.parse_duration,
    ),
    Option(
        "startingOffsets",
        "earliest, latest or JSON",
        None,
        READ_SCOPES,
        "Where a new query starts: `earliest`, `latest`, or JSON with the ID after which to read each stream "
        "(offsets of a checkpoint also work, and those of `offsets_after_archive`; they identify the stream, "
        "so a streaming query detects if it was recreated, or trimmed after them). A stream that the JSON "
        "does not name starts at its earliest entry. "
        "Default: `earliest` for batch, `latest` for streaming. A restarted query continues from its "
        "checkpoint.",
        option_values.parse_offsets,
    ),
    Option(
        "startingTimestamp",
        "time",
        None,
        READ_SCOPES,
        "A new query starts with the first entry of this time or later: milliseconds since 1970 or ISO 8601. "
        "Overrides `startingOffsetsByTimestamp`, which overrides `startingOffsets`.",
        option_values.parse_timestamp_as_id,
    ),
    Option(
        "startingOffsetsByTimestamp",
        "JSON",
        None,
        READ_SCOPES,
        '`startingTimestamp` for each stream, like `{"orders": 1700000000000}`. Streams that are not named '
        "start at their earliest entry.",
        option_values.parse_timestamps_as_ids,
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error or latest",
        None,
        READ_SCOPES,
        "Accepted and without effect. An ID begins with its time, so every time is a position in a stream, "
        "even if no entry is that late.",
        option_values.one_of_parser("error", "latest"),
        ignored_because="every time is a position in a stream",
    ),
    Option(
        "endingOffsets",
        "latest or JSON",
        "latest",
        ("batch",),
        "Where a batch read ends: `latest`, or JSON with the last ID to read of each stream.",
        option_values.parse_offsets,
    ),
    Option(
        "endingTimestamp",
        "time",
        None,
        ("batch",),
        "A batch read ends before the first entry of this time or later. Overrides "
        "`endingOffsetsByTimestamp`, which overrides `endingOffsets`.",
        option_values.parse_timestamp_as_id,
    ),
    Option(
        "endingOffsetsByTimestamp",
        "JSON",
        None,
        ("batch",),
        "`endingTimestamp` for each stream. A stream that is not named is read to its end.",
        option_values.parse_timestamps_as_ids,
    ),
    Option(
        "archive",
        "path",
        None,
        ("batch",),
        "An archive that `headrace archive` made: a directory, or a URL like `s3://bucket/orders`. It is "
        "read with its live streams as one table: up to the last archived ID of a stream from the files, "
        "after it from the server. Every node must see the directory. Without `subscribe`, "
        "`subscribePattern` and `assign`, all streams of the archive are read. Without a schema, an archive "
        "of typed columns is read with these, the entry's own columns and `_exact`.",
        option_values.parse_archive,
    ),
    Option(
        "archiveOnly",
        "boolean",
        "false",
        ("batch",),
        "Read only the files of `archive`, without a connection to the server, which may be down. Entries "
        "after the last archived ID are missing. `subscribePattern` selects among the archived streams.",
        option_values.parse_boolean,
    ),
    Option(
        "archiveOptions",
        "JSON",
        None,
        ("batch",),
        'Options of the object store of `archive`, like `{"AWS_ENDPOINT_URL": "http://minio:9000"}`. '
        "Others are taken from the environment variables of the same names.",
        option_values.parse_text_map,
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
        "About the maximum bytes of one micro-batch, like `64m`, estimated by MEMORY USAGE. A micro-batch "
        "has at least one entry.",
        option_values.parse_byte_count,
    ),
    Option(
        "minOffsetsPerTrigger",
        "number",
        None,
        ("stream",),
        "Wait until about this many entries can be read. `Trigger.AvailableNow` does not wait.",
        option_values.parse_positive,
    ),
    Option(
        "maxTriggerDelay",
        "time",
        "15m",
        ("stream",),
        "The maximum time that `minOffsetsPerTrigger` waits after the last micro-batch, or after the start "
        "of the query.",
        option_values.parse_duration,
    ),
    Option(
        "minPartitions",
        "number",
        None,
        READ_SCOPES,
        "The approximate number of tasks. Large ranges are split; small streams are not joined. Default: one "
        "for every 50,000 entries, but at most as many as the driver's machine has cores.",
        option_values.parse_positive,
        ("numPartitions", "stream.parallelism"),
    ),
    Option(
        "maxRecordsPerPartition",
        "number",
        None,
        READ_SCOPES,
        "About the maximum entries of one task; more tasks are made if needed.",
        option_values.parse_positive,
    ),
    Option(
        "readFrom",
        "primary or replica",
        "primary",
        READ_SCOPES,
        "`replica`: read from a replica, which takes the load off the primary. It is the server itself if "
        "that is a replica, else one of those that the server or the Sentinels name, preferably Headrace. "
        "It may be behind: what it has not received yet is read later. Progress of a group (`groupId`) is "
        "still written to the primary: name that in the URL. Not for clusters.",
        option_values.one_of_parser("primary", "replica"),
    ),
    Option(
        "reconnectTimeout",
        "time",
        None,
        (*READ_SCOPES, "sink"),
        "How long a task or the driver retries when the server is lost. Default: `20s` for one server, `90s` "
        "with Sentinels or a cluster. Then the task fails, and Spark may repeat it. `0s` does not retry.",
        option_values.parse_duration,
    ),
    Option(
        "failOnDataLoss",
        "true or false",
        "true",
        READ_SCOPES,
        "What to do if entries were trimmed, or their stream was deleted, before they were read, or if a "
        "stream was deleted and recreated: `true` fails; `false` warns and continues with the first entry "
        "that exists.",
        option_values.parse_boolean,
    ),
    Option(
        "mode",
        "PERMISSIVE, DROPMALFORMED or FAILFAST",
        "PERMISSIVE",
        READ_SCOPES,
        "What to do with a value that does not fit its column: `PERMISSIVE` makes it null (and stores the "
        "entry in `_corrupt_record`, if the schema has that column), `DROPMALFORMED` omits the entry, "
        "`FAILFAST` fails.",
        option_values.one_of_parser("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
    ),
    Option(
        "timestampFormat",
        "epoch_ms, epoch_s, iso8601 or auto",
        "epoch_ms",
        (*READ_SCOPES, "sink"),
        "The format in which a TIMESTAMP column is read and written. ISO 8601 without a zone is UTC. `auto` "
        "reads milliseconds since 1970 and ISO 8601, and writes milliseconds. `iso8601` keeps microseconds; "
        "the other formats cut them, and if the option is not given the sink fails at a time that has some. "
        "A comment in the schema sets the format of one column: `at TIMESTAMP COMMENT 'iso8601'`.",
        option_values.one_of_parser(*TIME_FORMATS),
        sink_default=EXACT_MS_FORMAT,
    ),
    Option(
        "fieldsType",
        "string or binary",
        "string",
        READ_SCOPES,
        "The type of the values of the map `fields`, if no schema is given. With `string`, bytes that are "
        "not UTF-8 are shown as `\\xNN`; with `binary`, all values are exact.",
        option_values.one_of_parser("string", "binary"),
    ),
    Option(
        "entriesPerFetch",
        "number",
        "10000",
        READ_SCOPES,
        "The maximum COUNT of each XRANGE: how many entries one request asks for.",
        option_values.parse_positive,
        ("stream.read.batch.size",),
    ),
    Option(
        "fetch",
        "auto, resp or arrow",
        "auto",
        READ_SCOPES,
        "How entries are transferred: `arrow` requests Arrow columns (XARROW, a command of Headrace), `resp` "
        "requests entries (XRANGE), and `auto` uses `arrow` if the server and the schema allow it.",
        option_values.one_of_parser("auto", "resp", "arrow"),
    ),
    Option(
        "groupId",
        "name",
        None,
        ("stream",),
        "Show the progress as a consumer group of this name, which nothing else should use: its "
        "last-delivered-id follows the query, so XINFO GROUPS shows the lag. A missing group is created. "
        "The query itself continues from its checkpoint only; if the group cannot be set, it logs a warning.",
        option_values.parse_name,
        ("stream.group.name",),
    ),
    Option(
        "acknowledgeOnCommit",
        "true or false",
        "false",
        ("stream",),
        "For a group that other consumers also read: their pending entries that the query has read are "
        "acknowledged (XACK), and the group's last-delivered-id is never moved back.",
        option_values.parse_boolean,
    ),
    Option(
        "stream.offsets",
        "JSON",
        None,
        READ_SCOPES,
        '`startingOffsets` in the form of spark-redis: `{"offsets": {"orders": {"groupName": "g", "offset": '
        '"1548083485360-0"}}}`. The group is ignored.',
        option_values.parse_spark_redis_offsets,
        attribute_override="starting_offsets",
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
        "The stream to write to, unless the rows have a column `_stream`.",
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
        "Trim the stream while writing: remove entries below this ID, in whole nodes (MINID ~).",
        option_values.parse_entry_id,
    ),
    Option(
        "trimPolicy",
        "KEEPREF, DELREF or ACKED",
        None,
        ("sink",),
        "What trimming does to the pending entries of consumer groups, on servers that support these "
        "policies (Headrace; Redis from 8.2). Default: not sent, which means KEEPREF.",
        option_values.one_of_parser("KEEPREF", "DELREF", "ACKED"),
    ),
    Option(
        "delivery",
        "exactly-once or at-least-once",
        None,
        ("sink",),
        "`exactly-once`: each row becomes one entry, also after failures and retries. `at-least-once`: a row "
        "can be added again after a failure. Default: `exactly-once` for a streaming query, `at-least-once` "
        "for a batch.",
        option_values.one_of_parser("exactly-once", "at-least-once"),
    ),
    Option(
        "queryId",
        "name",
        None,
        ("sink",),
        "The name under which the server remembers an exactly-once write. Default: Spark's ID of the "
        "streaming query; for a batch, a new name for each job. A batch job that runs again with the same "
        "name adds only the missing rows; it fails if its rows, their order or their partitions are not the "
        "same. A new checkpoint needs a new name.",
        option_values.parse_name,
    ),
    Option(
        "waitReplicas",
        "number",
        "0",
        ("sink",),
        "A task ends when so many replicas have its rows, too (WAIT). Without it a failover can lose rows of "
        "a batch that Spark counts as done. Fewer replicas are waited for, and then the task fails.",
        option_values.parse_count,
    ),
    Option(
        "keepIds",
        "true or false",
        "false",
        ("sink",),
        "When a DataFrame with the source's own columns is written, use the IDs in its column `id` instead "
        "of new ones. The rows must be sorted by ID, and in one partition for each stream.",
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
    starting_timestamp: str | None = None  # a time is stored as the last ID before it
    starting_offsets_by_timestamp: dict[str, str] | None = None
    ending_offsets: str | dict[str, str] | None = None
    ending_timestamp: str | None = None
    ending_offsets_by_timestamp: dict[str, str] | None = None
    archive: str | None = None
    archive_only: bool = False
    archive_options: dict[str, str] | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    read_from: str = "primary"
    reconnect_timeout: float | None = None
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
    wait_replicas: int = 0
    keep_ids: bool = False

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that are read by name; empty with subscribePattern, or if no option names any."""
        return self.subscribe or self.assign or ()

    def servers(self) -> Servers:
        """Return the servers to read from or to write to, not connected yet."""
        return Servers(self.url, self.reconnect_timeout, self.read_from)


def parse_options(raw: Mapping[str, str], scope: str) -> Options:
    """Parse the options of one read or write.

    Args:
        raw: the texts of the options by name, in any case.
        scope: "batch", "stream" or "sink".

    Raises:
        UsageError: for an unknown option, a wrong value, or options that exclude each other.
    """
    known = {n.lower(): (n, option) for option in OPTIONS for n in (option.name, *option.aliases)}
    defaults = {o.attribute: o.default_value(scope) for o in OPTIONS if scope in o.scopes}
    values = {attribute: value for attribute, value in defaults.items() if value is not None}
    used_names: dict[str, str] = {}
    for key, text in raw.items():
        if key.lower() in OPTIONS_OF_SPARK:
            continue
        if key.lower() not in known:
            raise _unknown(key, [name for name, _ in known.values()])
        name, option = known[key.lower()]  # Spark converts names to lower case
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
            raise UsageError(f"The options {earlier} and {name} mean the same: give only one of them.")
        if not option.ignored_because:
            values[option.attribute] = value
        elif name.startswith("stream."):
            log.warning("The option %s is ignored: %s.", name, option.ignored_because)
    _check_combinations(values, scope)
    return Options(**values)


def parse_fields_type(raw: Mapping[str, str]) -> str:
    """Return the option fieldsType among the options of a read.

    Raises:
        UsageError: if it is neither string nor binary.
    """
    kind: str = _parse_one(raw, "fieldsType")
    return kind


def parse_archive_location(raw: Mapping[str, str]) -> ArchiveLocation:
    """Return the location that the options archive and archiveOptions of a read give.

    Raises:
        UsageError: if it is not a location of an archive, or its options are wrong.
    """
    return archive_location(_parse_one(raw, "archive"), _parse_one(raw, "archiveOptions"))


def _parse_one(raw: Mapping[str, str], name: str) -> Any:
    """Return the value of one option; UsageError if it is wrong."""
    [option] = [each for each in OPTIONS if each.name == name]
    text = next((text for key, text in raw.items() if key.lower() == name.lower()), option.default)
    try:
        return None if text is None else option.parse(text)
    except ValueError as error:
        raise UsageError(f"The option {name} is {text!r}: {error}.") from None


def _unknown(key: str, names: list[str]) -> UsageError:
    close = difflib.get_close_matches(key.lower(), [name.lower() for name in names], 1)
    hint = "".join(f" Did you mean {name}?" for name in names if name.lower() in close)
    return UsageError(f"Unknown option {key!r}.{hint or ' See docs/options.md.'}")


def _check_combinations(values: Mapping[str, Any], scope: str) -> None:
    """Raise UsageError for options that exclude or require each other."""
    sources = {"subscribe": "subscribe", "subscribePattern": "subscribe_pattern", "assign": "assign"}
    chosen = [name for name, attribute in sources.items() if attribute in values]
    if len(chosen) > 1:
        raise UsageError(f"The options {' and '.join(chosen)} exclude each other: give only one of them.")
    minimum, maximum = values.get("min_offsets_per_trigger"), values.get("max_offsets_per_trigger")
    if minimum and maximum and minimum > maximum:
        raise UsageError(
            f"minOffsetsPerTrigger is {minimum}, more than maxOffsetsPerTrigger, {maximum}: lower it."
        )
    if values.get("acknowledge_on_commit") and not values.get("group_id"):
        raise UsageError("acknowledgeOnCommit needs the option groupId: the group to acknowledge in.")
    if values.get("archive_only") and not values.get("archive"):
        raise UsageError("archiveOnly needs the option archive: the archive to read.")
    if scope == "batch" and _contains(values.get("starting_offsets"), "latest"):
        raise UsageError("startingOffsets is latest: a batch would have no rows. Give earliest or an ID.")
    if scope == "batch" and _contains(values.get("ending_offsets"), "earliest"):
        raise UsageError(
            "endingOffsets is earliest, where a batch read has no entries: give latest or an ID."
        )


def _contains(offsets: str | dict[str, str] | None, word: str) -> bool:
    return word in (offsets.values() if isinstance(offsets, dict) else (offsets,))
