"""Options are parsed from one declaration, and a wrong one is refused by name."""

from __future__ import annotations

import pickle

import pytest

from headrace.errors import UsageError
from headrace.spark.options import OPTIONS, options_table, parse_options


def test_names_are_case_insensitive_and_defaults_stand_where_nothing_is_said() -> None:
    options = parse_options({"SUBSCRIBE": " a, b ,a", "numPartitions": "3", "mode": "failfast"}, "stream")
    assert options.streams == ("a", "b")
    assert options.min_partitions == 3
    assert options.mode == "FAILFAST"
    assert options.url == "redis://127.0.0.1:7777"
    assert options.fail_on_data_loss is True
    assert pickle.loads(pickle.dumps(options)) == options


def test_offsets_are_words_or_ids_by_stream() -> None:
    assert parse_options({"startingOffsets": "Latest"}, "stream").starting_offsets == "latest"
    by_stream = parse_options({"startingOffsets": '{"a": "5-1", "b": "earliest"}'}, "batch")
    assert by_stream.starting_offsets == {"a": "5-1", "b": "earliest"}


@pytest.mark.parametrize(
    ("raw", "where", "message"),
    [
        ({"subscibe": "a"}, "batch", "Did you mean subscribe"),
        ({"maxOffsetsPerTrigger": "5"}, "batch", "maxOffsetsPerTrigger is for stream, not for batch"),
        ({"maxOffsetsPerTrigger": "0"}, "stream", "at least 1"),
        ({"minPartitions": "few"}, "stream", "minPartitions is 'few'"),
        ({"failOnDataLoss": "perhaps"}, "stream", "true or false"),
        ({"mode": "strict"}, "stream", "PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"startingOffsets": "now"}, "stream", "earliest, latest or JSON"),
        ({"startingOffsets": '{"a": 5}'}, "stream", "earliest, latest or JSON"),
        ({"startingOffsets": '{"a": "x-1"}'}, "stream", "no entry ID"),
        ({"startingOffsets": "latest"}, "batch", "cannot start at latest"),
        ({"endingOffsets": "earliest"}, "batch", "cannot end at earliest"),
        ({"subscribe": " , "}, "batch", "no stream is named"),
    ],
)
def test_a_wrong_option_is_refused_by_name(raw: dict[str, str], where: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_options(raw, where)


def test_a_read_without_a_stream_is_told_what_to_add() -> None:
    with pytest.raises(UsageError, match="subscribe"):
        _ = parse_options({}, "batch").streams


def test_what_spark_puts_among_the_options_is_passed_over() -> None:
    parse_options({"checkpointLocation": "cp"}, "sink")


def test_the_reference_has_a_line_for_every_option() -> None:
    lines = options_table().splitlines()[2:]
    assert [line.split("`")[1] for line in lines] == [option.name for option in OPTIONS]
