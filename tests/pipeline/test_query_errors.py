"""Messages for errors of queries, from texts of Spark 4."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headrace.pipeline.querying.spark_errors import query_error_message


@dataclass
class Columns:
    stream: str
    fields: tuple[str, ...]


PARSE = (
    "\n[PARSE_SYNTAX_ERROR] Syntax error at or near '>'. SQLSTATE: 42601 (line 3, pos 14)\n\n== SQL ==\n"
    "SELECT sum(item) OVER FROM payments\nWHERE item = 'pear'\n  AND count > > 5\n--------------^^^\n"
)
COLUMN = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column or parameter with name `t`.`itm` cannot "
    "be resolved. Did you mean one of the following? [`_sequence`]. SQLSTATE: 42703; line 1 pos 7;\n"
    "'Project ['itm]\n+- SubqueryAlias payments\n"
)
TABLE = (
    "[TABLE_OR_VIEW_NOT_FOUND] The table or view `ordrs:eu` cannot be found. Verify it.\nSearch path: "
    "[`system`.`builtin`].\nSQLSTATE: 42P01; line 1 pos 28;\n'Project [*]\n+- 'Join Inner, true\n"
)
GROUP = (
    "[MISSING_GROUP_BY] The query has no GROUP BY clause.\nAdd GROUP BY. SQLSTATE: 42803; line 1 "
    "pos 0;\nAggregate [item#13]\n+- SubqueryAlias payments\n"
)
CAST = (
    "An error occurred while calling o69.getResult.\n: org.apache.spark.SparkException: Exception thrown in "
    "awaitResult:\n\tat org.apache.spark.util.A.b(A.scala:1)\nCaused by: java.lang.RuntimeException: outer\n"
    "\tat a.b(C.java:2)\nCaused by: org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The "
    "value 'pear' cannot be cast. SQLSTATE: 22018\n== SQL (line 1, position 8) ==\nSELECT cast(item AS int)\n"
    "       ^^^^\n\n\tat org.apache.B.c(B.scala:3)\n\t... 5 more\n"
)
OURS = (
    "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File 'x', line 1, in f\n"
    "headrace.errors.UsageError: the option x is wrong\n SQLSTATE: 38000"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            PARSE,
            "[PARSE_SYNTAX_ERROR] Syntax error at or near '>'. SQLSTATE: 42601 (line 3, pos 14), "
            "at AND count > >>>> 5",
        ),
        (
            COLUMN,
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column or parameter with name `t`.`itm` "
            "cannot be resolved. SQLSTATE: 42703; line 1 pos 7; did you mean `item`?; payments has item, n",
        ),
        (TABLE, "there is no stream 'ordrs:eu'; did you mean 'orders:eu'?"),
        (
            GROUP,
            "[MISSING_GROUP_BY] The query has no GROUP BY clause.\nAdd GROUP BY. SQLSTATE: 42803; "
            "line 1 pos 0",
        ),
        (CAST, "[CAST_INVALID_INPUT] The value 'pear' cannot be cast. SQLSTATE: 22018"),
        (OURS, "the option x is wrong"),
    ],
)
def test_the_message_is_complete_and_without_plan_or_stack(text: str, message: str) -> None:
    tables = [Columns("payments", ("item", "n"))]
    assert query_error_message(Exception(text), tables, ["bids", "orders:eu"]) == message
