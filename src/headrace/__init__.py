"""Redis Streams for Python, all the way into Spark."""

from headrace.errors import HeadraceError

__all__ = ["HeadraceError", "__version__"]
__version__ = "0.1.0"
