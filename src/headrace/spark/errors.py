"""Errors of the source and the sink as a Spark user sees them: one sentence, without a traceback.

Spark calls readers and writers in Python processes of its own. It copies the traceback of an exception into
the message of its own exception, so a sentence that says what to do would be lost between 50 lines. It omits
the traceback if SPARK_HIDE_TRACEBACK is set. If a worker fails for a reason that the sentence explains,
`brief_errors` sets this variable before the worker exits. Unexpected errors keep their traceback.
"""

from __future__ import annotations

import errno
import functools
import inspect
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from redis.exceptions import RedisError

from headrace.client.connection_errors import connection_error
from headrace.errors import HeadraceError, UsageError

HIDE_TRACEBACK_VARIABLE = "SPARK_HIDE_TRACEBACK"  # PySpark reads it when it reports an exception of a worker

# The methods of data sources, readers and writers that Spark calls in its workers.
METHODS_CALLED_BY_SPARK = {
    "schema", "reader", "streamReader", "writer", "streamWriter",
    "partitions", "pushFilters", "read",
    "initialOffset", "latestOffset", "reportLatestOffset", "prepareForTriggerAvailableNow",
    "getDefaultReadLimit", "stop",
    "write", "commit", "abort",
}  # fmt: skip

UNREACHABLE_ERRNOS = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}

# `headrace.errors.UsageError: sentence`, as Python and Spark print an exception of Headrace.
HEADRACE_ERROR_PATTERN = re.compile(r"\b(headrace(?:\.\w+)+): (\S.*)")
USAGE_ERROR_NAMES = {"UsageError", "RowIdTooSmall", "BadRowError"}  # the subclasses are in packages above
SQLSTATE_SUFFIX_PATTERN = re.compile(r"( SQLSTATE: \w+)+$")
SOURCE_NOT_FOUND_TEXT = "DATA_SOURCE_NOT_FOUND] Failed to find the data source: headrace"

T = TypeVar("T")
log = logging.getLogger(__name__)


def brief_errors(kind: type[T]) -> type[T]:
    """Wrap the methods of a class that Spark calls, so that their errors are shown as one sentence."""
    for name, method in list(vars(kind).items()):
        if name in METHODS_CALLED_BY_SPARK:
            setattr(kind, name, _with_brief_errors(method))
    return kind


def _with_brief_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method with its errors shown as one sentence."""
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def generate(self: Any, *arguments: Any, **named: Any) -> Iterator[Any]:
            with _explained(self):
                yield from method(self, *arguments, **named)

        return generate

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        with _explained(self):
            return method(self, *arguments, **named)

    return call


@contextmanager
def _explained(source: Any) -> Iterator[None]:
    """Name the server in connection errors; hide the traceback of these and of Headrace's own errors."""
    try:
        yield
    except HeadraceError:
        _hide_traceback()
        raise
    except (RedisError, OSError) as error:
        if not _is_connection_failure(error):
            raise
        _hide_traceback()
        raise connection_error(_url(source), error) from error


def _is_connection_failure(error: Exception) -> bool:
    """Return whether the server cannot be reached; other OSErrors are about files."""
    if isinstance(error, RedisError | ConnectionError | TimeoutError | socket.gaierror):
        return True
    return isinstance(error, OSError) and error.errno in UNREACHABLE_ERRNOS


def _url(source: Any) -> str:
    """Return the URL of a reader or writer, or the one in the options of a data source."""
    options = getattr(source, "_options", None)
    return str(options.url if options is not None else source.options.get("url", "the server"))


def _hide_traceback() -> None:
    """Make PySpark report this error without its traceback, if this process is a worker of Spark."""
    log.debug("An error that is shown without its traceback", exc_info=True)
    if is_spark_worker():
        os.environ[HIDE_TRACEBACK_VARIABLE] = "1"


def is_spark_worker(module: str | None = None) -> bool:
    """Return whether Spark started this process to run Python for it.

    Args:
        module: the module of PySpark that it must run; any if None.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = "" if spec is None else str(spec.name)
    return name.startswith("pyspark.") and (module in (None, name) or module in sys.modules)


def explain(error: BaseException) -> str:
    """Return in one line why Spark failed: the sentence of Headrace, or else Spark's own first line.

        try:
            rows.show()
        except Exception as error:
            print(headrace.spark.explain(error))

    Call it while the Spark session is open: Spark keeps the text of most errors there.

    Args:
        error: the exception that Spark raised, or the exception() of a streaming query.

    Returns:
        One line without a stack trace.
    """
    found = _headrace_error(str(error))
    return found[1] if found else _spark_sentence(error)


def as_headrace_error(error: Exception) -> HeadraceError:
    """Convert an error of Spark to one that the command line shows in one line.

    Returns:
        UsageError if a worker raised one or a subclass, else HeadraceError.
    """
    found = _headrace_error(str(error))
    if found is None:
        return HeadraceError(f"Spark: {_spark_sentence(error)}")
    is_usage_error = found[0].rpartition(".")[2] in USAGE_ERROR_NAMES
    return UsageError(found[1]) if is_usage_error else HeadraceError(found[1])


def _headrace_error(text: str) -> tuple[str, str] | None:
    """Return the class and the sentence of the last error of Headrace in a text of Spark."""
    found = HEADRACE_ERROR_PATTERN.findall(text)
    if not found:
        return None
    kind, sentence = found[-1]
    return kind, SQLSTATE_SUFFIX_PATTERN.sub("", sentence.strip())


def _spark_sentence(error: BaseException) -> str:
    text = str(error)
    if SOURCE_NOT_FOUND_TEXT in text:
        return (
            "Spark does not find the format headrace, because it runs another Python than this program: call "
            f"headrace.spark.register(spark), or set PYSPARK_PYTHON={sys.executable} before Spark starts."
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):  # an exception of other Python code in a worker
        head = line.partition(":")[0]
        if head.endswith(("Error", "Exception")) and not line.startswith("at "):
            return SQLSTATE_SUFFIX_PATTERN.sub("", line)
    java = getattr(error, "java_exception", None)  # of Py4JJavaError, whose own first line has no reason
    if java is not None:
        lines = [*str(java.getMessage()).splitlines(), *lines]
    return SQLSTATE_SUFFIX_PATTERN.sub("", lines[0]) if lines else type(error).__name__
