"""A job without a Spark session of the caller: it starts one, and stops it."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from pyspark import SparkContext

import headrace.pipeline

pytestmark = pytest.mark.whole


def test_a_local_session_is_started_and_stopped_silently(
    tmp_path: Path, server_url: str, client: redis.Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    client.xadd("s", {"n": "1"}, id="1-0")
    client.xadd("s", {"n": "many"}, id="2-0")
    done = headrace.pipeline.archive("s", to=tmp_path / "archive", url=server_url, fields="n INT")
    assert (done.archived, done.misfits) == (2, {("s", "n"): 1})
    (tmp_path / "rows.csv").write_text("n\n3\n4\n")
    loaded = headrace.pipeline.load(
        tmp_path / "rows.csv", stream="s", url=server_url, format="csv", options={"header": "true"}
    )
    assert loaded.added == 2 and client.xlen("s") == 4
    assert SparkContext._active_spark_context is None
    shown = capfd.readouterr()
    assert shown.out + shown.err == ""
