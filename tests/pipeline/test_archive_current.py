"""A run of `headrace archive` without new entries: it does not need Spark."""

from __future__ import annotations

import pathlib

import pytest

from headrace.cli.main import main
from headrace.pipeline.archiving.archive_streams import entry_schema, publish_if_current, source_options
from headrace.spark.arrow_schemas import spark_columns
from headrace.spark.options import parse_options
from headrace.spark.source.stream_reader import HeadraceStreamReader
from support.archives import ArchiveMaker
from support.stream_server import StreamServer

ENTRIES = [(f"{n}-0", {"n": n}) for n in range(1, 6)]


@pytest.fixture
def command(
    tmp_path: pathlib.Path, stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """A command that archives a stream whose entries are all archived, where Spark cannot start."""
    stream_server.add("s", ENTRIES)
    options = parse_options(source_options(stream_server.url, ["s"], 10, fail_on_loss=True), "stream")
    reader = HeadraceStreamReader(options, spark_columns(entry_schema(None)))
    reader.prepareForTriggerAvailableNow()
    reached = reader.latestOffset({}, reader.getDefaultReadLimit())
    reader.stop()
    ArchiveMaker(tmp_path / "archive").add("s", ENTRIES, reached=reached)
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    return ["archive", "--stream", "s", "--to", str(tmp_path / "archive"), "--url", stream_server.url]


def test_a_run_without_new_entries_does_not_start_spark(
    command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    output, error = capfd.readouterr()
    assert "0 entries written" in output and "holds 5 entries" in output and error == ""
    assert main([*command, "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")


def test_a_run_without_new_entries_deletes_old_days(
    command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--keep", "30d"]) == 0
    assert "Deleted from the archive: 5 entries" in capfd.readouterr().out


def test_an_archive_is_current_until_there_are_new_entries(
    command: list[str], stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    assert publish_if_current(stream_server.url, ["s"], tmp_path / "archive")
    stream_server.add("s", [("6-0", {"n": 6})])
    assert not publish_if_current(stream_server.url, ["s"], tmp_path / "archive")


def test_a_recreated_stream_is_reported_before_spark_starts(
    command: list[str], stream_server: StreamServer, capfd: pytest.CaptureFixture[str]
) -> None:
    stream_server.client.delete("s")
    stream_server.add("s", [("1-0", {"n": "other"})])
    assert main(command) != 0
    error = capfd.readouterr().err
    assert "--allow-loss" in error and "Spark" not in error
