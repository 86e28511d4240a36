"""Redis Streams for Python, with a PySpark pipeline.

    with headrace.open() as db:
        orders = db.stream("orders")
        orders.add({"customer": "ada", "cents": 999})

The library's names are imported on first use, because the server and Spark need none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace import errors
from headrace.errors import HeadraceError
from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.api.app import App
    from headrace.api.backend import Stop
    from headrace.api.batch import Batch
    from headrace.api.consuming.consumer import Consumer
    from headrace.api.consuming.dead_letters import DeadLetter
    from headrace.api.database import Database, connect, open
    from headrace.api.delivery import Delivery
    from headrace.api.entry import Entry
    from headrace.api.group import Group
    from headrace.api.retry_policy import Backoff
    from headrace.api.rules import Retention
    from headrace.api.stream import Stream
    from headrace.api.stream_gaps import StreamGap
    from headrace.api.stream_id import StreamID
    from headrace.pipeline.querying.duckdb_query import sql

__all__ = [
    "App",
    "Backoff",
    "Batch",
    "Consumer",
    "Database",
    "DeadLetter",
    "Delivery",
    "Entry",
    "Group",
    "HeadraceError",
    "Retention",
    "Stop",
    "Stream",
    "StreamGap",
    "StreamID",
    "__version__",
    "connect",
    "errors",
    "open",
    "sql",
]

_MODULES = {
    "App": "api.app",
    "Backoff": "api.retry_policy",
    "Batch": "api.batch",
    "Consumer": "api.consuming.consumer",
    "Database": "api.database",
    "DeadLetter": "api.consuming.dead_letters",
    "Delivery": "api.delivery",
    "Entry": "api.entry",
    "Group": "api.group",
    "Retention": "api.rules",
    "Stop": "api.backend",
    "Stream": "api.stream",
    "StreamGap": "api.stream_gaps",
    "StreamID": "api.stream_id",
    "connect": "api.database",
    "open": "api.database",
    "sql": "pipeline.querying.duckdb_query",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = getattr(import_module(f"headrace.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
