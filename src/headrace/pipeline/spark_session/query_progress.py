"""Follow a streaming query until it ends, and report its micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery  # type: ignore[attr-defined]

from headrace.errors import HeadraceError
from headrace.pipeline.shared.interrupts import raise_if_interrupted
from headrace.spark.errors import explain

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class BatchProgress:
    """One completed batch: of a streaming query, or of the archive job.

    Attributes:
        number: Its number, from 0.
        rows: Rows read; entries written by the archive job.
        seconds: Its duration in seconds.
        watermark: Spark's event-time watermark in ISO 8601; None if the query has none.
        state_rows: Rows in the query's state.
    """

    number: int
    rows: int
    seconds: float
    watermark: str | None
    state_rows: int

    @property
    def rows_per_second(self) -> float:
        """Rows per second; 0 for a batch without duration."""
        return self.rows / self.seconds if self.seconds else 0.0


def follow_batches(query: StreamingQuery) -> Iterator[BatchProgress]:
    """Yield the query's micro-batches, each once, until it ends.

    The query is stopped if the caller leaves the loop early.

    Raises:
        HeadraceError: if the query fails.
        KeyboardInterrupt: after a recorded signal.
    """
    seen = -1
    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(POLL_SECONDS))  # type: ignore[arg-type]
            raise_if_interrupted()
            for batch in recent_batches(query):
                if batch.number > seen:
                    seen = batch.number
                    yield batch
    except StreamingQueryException as error:
        raise HeadraceError(f"the query failed: {explain(error)}") from error
    finally:
        if query.isActive:
            query.stop()


def recent_batches(query: StreamingQuery) -> list[BatchProgress]:
    """Return the last micro-batches of the query, as far as Spark keeps their progress."""
    return [
        BatchProgress(
            number=progress["batchId"],
            rows=progress["numInputRows"],
            seconds=progress["durationMs"].get("triggerExecution", 0) / 1000,
            watermark=progress["eventTime"].get("watermark"),
            state_rows=sum(operator["numRowsTotal"] for operator in progress["stateOperators"]),
        )
        for progress in query.recentProgress
    ]
