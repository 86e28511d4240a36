"""The declaration of a directive: its name, type, default and description."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.server.config.config_types import DirectiveType, Value


@dataclass(frozen=True)
class Directive:
    """One directive.

    Attributes:
        only_value: the sole accepted value, for directives that clients set but that have no effect yet;
            `only_value_reason` gives the reason.
        unsupported_is_fatal: any other value prevents the start, because ignoring it would endanger data.
        secret: only CONFIG GET shows the value.
        alias: the directive's old name; empty for none.
    """

    name: str
    kind: DirectiveType
    default: str
    about: str
    mutable: bool = True
    only_value: Value | None = None
    only_value_reason: str = ""
    unsupported_is_fatal: bool = False
    secret: bool = False
    alias: str = ""
