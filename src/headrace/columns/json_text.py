"""Format values of Python's json module as JSON text, the same for all inputs of a stream.

The text has no spaces. Keys keep their order, nulls are kept, and non-ASCII text is not escaped. Numbers are
formatted like fields: doubles like repr(), decimals with all their digits.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal


def float_text(value: float) -> str:
    """Return a double as the shortest decimal that reads back as the same double."""
    return repr(value)


def json_text(value: object) -> str:
    """Return a value of Python's json module as JSON text."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_string(key)}:{json_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float):
        # JSON has no infinities and no NaN.
        return float_text(value) if math.isfinite(value) else json_string(float_text(value))
    return json.dumps(value, ensure_ascii=False)


def json_string(text: str) -> str:
    """Return a text as a string of JSON, in quotes."""
    return json.dumps(text, ensure_ascii=False)
