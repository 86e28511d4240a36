"""Create an archive, or open an existing one for writing: its columns, its properties, its time zone.

    stream, date | id, timestamp, sequence | fields, or a column for each field | _exact

The table says that files have statistics of `timestamp` only. Readers take the statistics of a column as
bounds, and some take a missing bound as one that no value satisfies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.archive.delta_log import LOG_DIRECTORY, explain_table_errors
from headrace.archive.delta_schema import delta_json
from headrace.archive.files import (
    EXACT_COLUMN,
    PARTITION_COLUMNS,
    ZONE_KEY,
    archive_of_table,
    check_not_old_layout,
    existing_table,
    open_table,
)
from headrace.archive.location import ArchiveLocation
from headrace.archive.table import ArchiveTable
from headrace.archive.verification import check_exclusive_commits
from headrace.columns.declarations import type_name
from headrace.errors import UsageError

if TYPE_CHECKING:
    from deltalake import DeltaTable

STATISTICS_PROPERTY = "delta.dataSkippingStatsColumns"
TABLE_PROPERTIES = {
    "delta.checkpointInterval": "100",
    # Of no other column: values such as NaN, and columns without a value in a file, have no bounds.
    STATISTICS_PROPERTY: "timestamp",
}

# That the object store was found to create a commit only if it does not exist.
EXCLUSIVE_COMMITS_PROPERTY = "headrace.exclusive-commits"
VERIFIED_VALUE = "verified"

FIELDS_COLUMN = pa.field("fields", pa.map_(pa.string(), pa.string()))
HEAD_COLUMNS = [
    pa.field("id", pa.string()),
    pa.field("timestamp", pa.timestamp("us", "UTC")),
    pa.field("sequence", pa.int64()),
]
PAIR_TYPE = pa.struct([("name", pa.binary()), ("value", pa.binary())])
EXACT_FIELD = pa.field(EXACT_COLUMN, pa.list_(pa.field("element", PAIR_TYPE)))
TAIL_COLUMNS = [EXACT_FIELD]


def create_or_open(location: ArchiveLocation, fields: pa.Schema | None, zone: str) -> ArchiveTable:
    """Create an archive, or open the existing one; new fields become new columns.

    Args:
        location: Where it is.
        fields: A typed column for each of these fields; None for one map of all fields.
        zone: The time zone of its days.

    Raises:
        UsageError: if the archive has a column of another type, a map of fields where columns are wanted, or
            another time zone; the directory holds other files; or the object store ignores conditions.
        HeadraceError: if the store fails.
    """
    check_no_other_files(location)
    with explain_table_errors(location):
        table = existing_table(location)
        if table is None:
            check_no_archive_files(location)
            check_store_exclusive(location)
            # Another job may create it at the same time, so the columns are checked also then.
            table = create_table(location, fields, zone)
            ArchiveTable(location, table).sync_log()
        opened = ArchiveTable(location, table)
        missing = missing_columns(location, opened.opened_archive.columns, fields)
        if opened.opened_archive.zone != zone:
            raise UsageError(
                f"{location} has days of time zone {opened.opened_archive.zone}, not {zone}; set --time-zone"
            )
        lacking = lacking_properties(location, table)
        if EXCLUSIVE_COMMITS_PROPERTY in lacking:
            check_store_exclusive(location)
        if lacking:
            table.alter.set_table_properties(lacking, raise_if_not_exists=False)
        if missing:
            table.alter.add_columns(delta_fields(missing))
        if lacking or missing:
            opened = ArchiveTable(location, open_table(location))
    return opened


def check_store_exclusive(location: ArchiveLocation) -> None:
    """Raise HeadraceError if the archive is in an object store that lets two jobs make the same commit."""
    if not location.is_local:
        check_exclusive_commits(location)


def required_properties(location: ArchiveLocation) -> dict[str, str]:
    """Return the properties that a table must have before a job writes to it.

    A table without STATISTICS_PROPERTY looks as if its files had statistics of all columns. Then filters
    find no rows in deltalake, pandas and DuckDB.
    """
    exclusive = {} if location.is_local else {EXCLUSIVE_COMMITS_PROPERTY: VERIFIED_VALUE}
    return {STATISTICS_PROPERTY: TABLE_PROPERTIES[STATISTICS_PROPERTY]} | exclusive


def lacking_properties(location: ArchiveLocation, table: DeltaTable) -> dict[str, str]:
    """Return the required properties that a table of an earlier version, or a restored one, lacks."""
    known = table.metadata().configuration
    required = required_properties(location)
    return {name: value for name, value in required.items() if known.get(name) != value}


def check_no_other_files(location: ArchiveLocation) -> None:
    """Raise UsageError if a new archive would share its directory with other files."""
    if not location.is_local or not location.path.exists():
        return
    names = [path.name for path in location.path.iterdir()] if location.path.is_dir() else ["a file"]
    check_not_old_layout(location)
    if names and LOG_DIRECTORY not in names:
        raise UsageError(f"{location} is not empty and not an archive; give another --to")


def check_no_archive_files(location: ArchiveLocation) -> None:
    """Raise UsageError if a directory has the files of an archive, but no commit of its table any more."""
    if (
        location.is_local
        and location.path.exists()
        and any(p.name != LOG_DIRECTORY for p in location.path.iterdir())
    ):
        raise UsageError(
            f"{location} has files, but {LOG_DIRECTORY} has no commit any more; restore it from a copy of "
            "the archive, or give another --to"
        )


def create_table(location: ArchiveLocation, fields: pa.Schema | None, zone: str) -> DeltaTable:
    """Create the table of an empty archive, or open it if another job has just created it.

    Raises:
        UsageError: if Delta has no such columns, or the directory cannot be created.
    """
    from deltalake import DeltaTable, Schema

    typed = [FIELDS_COLUMN] if fields is None else list(fields)
    partitions = [pa.field("stream", pa.string()), pa.field("date", pa.date32())]
    columns = pa.schema([*partitions, *HEAD_COLUMNS, *typed, *TAIL_COLUMNS])
    try:
        schema = Schema.from_json(delta_json(columns))
    except ValueError as error:
        raise UsageError(f"a Delta table cannot have such columns: {error}") from error
    if location.is_local:
        try:
            location.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{location}: cannot create an archive: {error.strerror}") from error
    return DeltaTable.create(
        location.deltalake_uri,
        schema,
        mode="ignore",
        partition_by=list(PARTITION_COLUMNS),
        name="headrace archive",
        description="Entries of streams, archived by headrace",
        configuration={ZONE_KEY: zone, **TABLE_PROPERTIES, **required_properties(location)},
        storage_options=location.storage_options(),
        raise_if_key_not_exists=False,
    )


def missing_columns(
    location: ArchiveLocation, existing: pa.Schema, fields: pa.Schema | None
) -> list[pa.Field]:
    """Return the fields for which the archive has no column yet.

    Raises:
        UsageError: if a column has another type, or a name that differs from that of a field only in case; or
            only one of archive and `fields` has a map of all fields.
    """
    known = {column.name: column for column in existing}
    has_map = "fields" in known and known["fields"].type == FIELDS_COLUMN.type
    if (fields is None) != has_map:
        own = {column.name for column in (*HEAD_COLUMNS, *TAIL_COLUMNS)}
        written = type_name(pa.struct([column for column in existing if column.name not in own]))
        has, instead = ("all in one map", "omit --fields") if has_map else (written, "give --fields infer")
        raise UsageError(f"{location} was written with other fields ({has}); {instead}, or another --to")
    folded = {column.name.lower(): column.name for column in existing}
    missing = []
    for column in [] if fields is None else fields:
        if column.name not in known:
            if other := folded.get(column.name.lower()):
                raise UsageError(
                    f"{location} has a column {other!r}; {column.name!r} differs from it only in case"
                )
            missing.append(column)
        elif known[column.name].type != column.type:
            raise UsageError(
                f"{location} was written with other fields ({column.name} "
                f"{type_name(known[column.name].type)}, not {type_name(column.type)}); give another --to"
            )
    return missing


def with_archived_types(location: ArchiveLocation, inferred: pa.Schema) -> pa.Schema:
    """Return inferred fields with the types that the archive, if it exists, has for them already.

    Fields whose names differ from a column only in case are left out: `_exact` stores their entries.
    """
    with explain_table_errors(location):
        table = existing_table(location)
        if table is None:
            return inferred
        known = {column.name: column for column in archive_of_table(location, table).columns}
    folded = {name.lower() for name in known}
    return pa.schema(
        [
            known.get(column.name, column)
            for column in inferred
            if column.name in known or column.name.lower() not in folded
        ]
    )


def delta_fields(columns: list[pa.Field]) -> list[Any]:
    """Return columns as fields of deltalake."""
    from deltalake import Schema

    return list(Schema.from_json(delta_json(pa.schema(columns))).fields)
