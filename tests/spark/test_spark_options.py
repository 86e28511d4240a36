"""Options are parsed from one declaration, and errors name the wrong one."""

from __future__ import annotations

import pickle

import pytest

from headrace.errors import UsageError
from headrace.spark.options import OPTIONS, parse_options


def test_option_names_are_case_insensitive_and_options_have_defaults() -> None:
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
        ({"minpartitions": "few"}, "stream", "minPartitions is 'few': must be a whole number"),
        ({"numpartitions": "1.5"}, "stream", "numPartitions is '1.5': must be a whole number"),
        (
            {"minPartitions": "3", "numpartitions": "3"},
            "stream",
            "minPartitions and numPartitions mean the same",
        ),
        ({"queryId": ""}, "sink", "queryId is '': must not be empty"),
        ({"stream": ""}, "sink", "stream is '': must not be empty"),
        ({"groupId": ""}, "stream", "groupId is '': must not be empty"),
        ({"archive": ""}, "batch", "archive is '': must not be empty"),
        ({"failOnDataLoss": "perhaps"}, "stream", "true or false"),
        ({"mode": "strict"}, "stream", "PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"startingOffsets": "now"}, "stream", "earliest, latest or JSON"),
        ({"startingOffsets": '{"a": 5}'}, "stream", "earliest, latest or JSON"),
        ({"startingOffsets": '{"a": "x-1"}'}, "stream", "not an entry ID"),
        ({"startingOffsets": "latest"}, "batch", "startingOffsets is latest"),
        ({"endingOffsets": "earliest"}, "batch", "endingOffsets is earliest"),
        ({"subscribe": " , "}, "batch", "at least one stream"),
        ({"subscribePattern": "("}, "batch", "not a regular expression"),
        ({"subscribePattern": "a{9999999999}"}, "batch", "not a regular expression"),
        ({"subscribePattern": "(" * 5000 + ")" * 5000}, "batch", "not a regular expression"),
        ({"assign": "a,b"}, "batch", "must be JSON like"),
        ({"assign": "[]"}, "batch", "must be JSON like"),
        ({"subscribe": "a", "assign": '["a"]'}, "batch", "subscribe and assign exclude each other"),
        ({"subscribe": "a", "subscribePattern": "a"}, "stream", "subscribe and subscribePattern exclude"),
        ({"subscribe": "a", "stream.keys": "b"}, "stream", "mean the same"),
        ({"startingOffsets": "earliest", "stream.offsets": '{"offsets": {}}'}, "stream", "mean the same"),
        ({"startingOffsets": '{"a": "latest"}'}, "batch", "startingOffsets is latest"),
        ({"startingOffsets": '{"a": -1}'}, "batch", "startingOffsets is latest"),
        ({"endingOffsets": '{"a": -2}'}, "batch", "endingOffsets is earliest"),
        ({"startingOffsets": '{"a": 5}'}, "stream", "must be earliest, latest or JSON"),
        ({"startingTimestamp": "yesterday"}, "stream", "milliseconds since 1970"),
        ({"startingTimestamp": "-1"}, "stream", "must be a time from 1970 on"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 5}}'}, "stream", "must be JSON like"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "stream", "must be one of error, latest"),
        ({"endingTimestamp": "5"}, "stream", "endingTimestamp is for batch, not for stream"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "stream",
            "5, more than",
        ),
        ({"maxTriggerDelay": "5 apples"}, "stream", "a time like"),
        ({"maxBytesPerTrigger": "5 apples"}, "stream", "a number of bytes"),
        ({"acknowledgeOnCommit": "true"}, "stream", "needs the option groupId"),
        ({"stream.offsets": '{"a": "5-1"}'}, "stream", "must be JSON like"),
    ],
)
def test_errors_name_the_wrong_option(raw: dict[str, str], where: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_options(raw, where)


def test_a_time_is_stored_as_the_last_id_before_it() -> None:
    before = f"1699999999999-{2**64 - 1}"
    for text in ("1700000000000", "2023-11-14T22:13:20Z", "2023-11-14 22:13:20", "2023-11-14T23:13:20+01:00"):
        assert parse_options({"startingTimestamp": text}, "stream").starting_timestamp == before
    assert parse_options({"startingTimestamp": "0"}, "stream").starting_timestamp == "0-0"
    between = parse_options({"startingTimestamp": "2023-11-14T22:13:19.999001"}, "stream")
    assert between.starting_timestamp == before, (
        "the first entry of a later time is that of the next millisecond"
    )
    raw = {"endingOffsetsByTimestamp": '{"a": 1700000000000, "b": "1970-01-01"}'}
    by_stream = parse_options(raw, "batch")
    assert by_stream.ending_offsets_by_timestamp == {"a": before, "b": "0-0"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5), ("500ms", 0.5), ("15m", 900), ("1 Hour", 3600), ("2 minutes", 120), ("1.5 d", 129600)],
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert parse_options({"maxTriggerDelay": text}, "stream").max_trigger_delay == seconds


@pytest.mark.parametrize(("text", "count"), [("7", 7), ("16k", 16384), ("2MB", 2 << 20), ("1 g", 1 << 30)])
def test_bytes_have_units(text: str, count: int) -> None:
    assert parse_options({"maxBytesPerTrigger": text}, "stream").max_bytes_per_trigger == count


def test_the_names_of_spark_redis_mean_the_same(caplog: pytest.LogCaptureFixture) -> None:
    theirs = {
        "stream.keys": "a,b",
        "stream.read.batch.size": "100",
        "stream.parallelism": "2",
        "stream.group.name": "g",
        "stream.offsets": '{"offsets": {"a": {"groupName": "g", "offset": "5-1"}, "b": {"offset": "$"}}}',
    }
    ours = {
        "subscribe": "a,b",
        "entriesPerFetch": "100",
        "minPartitions": "2",
        "groupId": "g",
        "startingOffsets": '{"a": "5-1", "b": "latest"}',
    }
    assert parse_options(theirs, "stream") == parse_options(ours, "stream")
    assert not caplog.records
    ignored = {"stream.read.block": "500", "stream.consumer.prefix": "c"}
    assert parse_options(ours | ignored, "stream") == parse_options(ours, "stream")
    assert [record.args[0] for record in caplog.records if record.args] == list(ignored)  # type: ignore[index]


def test_every_option_has_an_attribute_and_its_default() -> None:
    for where in ("batch", "stream", "sink"):
        options = parse_options({}, where)
        for option in OPTIONS:
            assert option.ignored_because or hasattr(options, option.attribute), option.name
            if option.default is not None and where in option.scopes:
                assert getattr(options, option.attribute) == option.default_value(where)


def test_options_that_spark_adds_are_ignored() -> None:
    parse_options({"checkpointLocation": "cp"}, "sink")
