"""Following a streaming query until it ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery  # type: ignore[attr-defined]

from headrace.errors import HeadraceError
from headrace.pipeline.interrupts import raise_if_noted
from headrace.spark.errors import explain

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Batch:
    """One micro-batch that is done."""

    number: int
    rows: int
    seconds: float
    watermark: str | None
    state_rows: int

    @property
    def rows_per_second(self) -> float:
        """How fast its rows went through."""
        return self.rows / self.seconds if self.seconds else 0.0


def follow(query: StreamingQuery) -> Iterator[Batch]:
    """The query's micro-batches, each once, until it ends; the query is stopped if the caller leaves early.

    HeadraceError if the query fails.
    """
    seen = -1
    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(POLL_SECONDS))  # type: ignore[arg-type]
            raise_if_noted()
            for batch in batches_of(query):
                if batch.number > seen:
                    seen = batch.number
                    yield batch
    except StreamingQueryException as error:
        raise HeadraceError(f"the query failed: {cause(error)}") from error
    finally:
        if query.isActive:
            query.stop()


def batches_of(query: StreamingQuery) -> list[Batch]:
    """What the query remembers of its last micro-batches."""
    return [
        Batch(
            number=progress["batchId"],
            rows=progress["numInputRows"],
            seconds=progress["durationMs"].get("triggerExecution", 0) / 1000,
            watermark=progress["eventTime"].get("watermark"),
            state_rows=sum(operator["numRowsTotal"] for operator in progress["stateOperators"]),
        )
        for progress in query.recentProgress
    ]


def cause(error: Exception) -> str:
    """Return the line of a query's failure that says what happened."""
    return explain(error)
