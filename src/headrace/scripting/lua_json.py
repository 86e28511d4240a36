"""JSON in C for the library `cjson`: lua_json.pxd. Interpreted, sandbox/cjson.lua does all of it.

This module is never compiled.
"""

from __future__ import annotations

from headrace.scripting.lua import State


def add_json(state: State) -> None:
    """Do nothing. In lua_json.pxd this adds json_decode() and json_encode() to the shared table."""
