"""Errors about the types of columns, with the names that Spark has for types."""

from __future__ import annotations

from headrace.errors import UsageError


def wrong_type(column: str, types: tuple[str, ...], kind: str) -> UsageError:
    """Return the error for a reserved column whose type is not one of `types`."""
    return UsageError(f"The column {column} must be {' or '.join(types).upper()}, not {kind.upper()}.")


def not_from_field(column: str, kind: str) -> UsageError:
    """Return the error for a column whose type cannot be read from a field."""
    return UsageError(
        f"The column {column} is {kind.upper()}, which cannot be read from a field. Read it as a STRING and "
        "convert it in Spark."
    )


def not_from_json(column: str, part: str) -> UsageError:
    """Return the error for an array, a map or a struct with a part that cannot be read from JSON."""
    return UsageError(
        f"The column {column} contains {part.upper()}, which cannot be read from JSON: read it as a STRING "
        "and convert it in Spark."
    )


def not_a_map_key(column: str, key: str) -> UsageError:
    """Return the error for a map whose keys cannot be read from JSON."""
    return UsageError(f"The column {column} has a map with {key.upper()} keys: use STRING.")
