"""Offsets are ordered as numbers, kept in one order of keys, and never go back."""

from __future__ import annotations

import json

import pytest

from headrace.positions.entry_ids import format_id, parse_id
from headrace.positions.offsets import advance_offsets, cap_offsets, sorted_offsets


def test_ids_are_numbers_not_text() -> None:
    assert parse_id("10-0") > parse_id("5-1")
    assert parse_id("7") == (7, 0)
    assert format_id(parse_id(f"{2**64 - 1}-{2**64 - 1}")) == f"{2**64 - 1}-{2**64 - 1}"


@pytest.mark.parametrize("text", ["", "-", "1-", "-1", "a-1", "1-1-1", "+1-1", "1_0-1", f"{2**64}-0", "٣-1"])
def test_texts_that_are_not_ids_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="not an entry ID"):
        parse_id(text)


def test_equal_offsets_have_the_same_json() -> None:
    assert json.dumps(sorted_offsets({"b": "1-0", "a": "2-0"})) == json.dumps(
        sorted_offsets({"a": "2-0", "b": "1-0"})
    )
    assert list(advance_offsets({"b": "1-0"}, {"a": "5-0"})) == ["a", "b"]


def test_offsets_only_advance_and_are_the_start_itself_without_news() -> None:
    start = {"a": "5-0", "b": "9-0"}
    assert advance_offsets(start, {"a": "4-0", "b": "9-0"}) is start
    assert advance_offsets(start, {"a": "10-0", "b": "3-0", "c": "1-0"}) == {
        "a": "10-0",
        "b": "9-0",
        "c": "1-0",
    }


def test_a_target_caps_offsets_and_omits_later_streams() -> None:
    assert cap_offsets({"a": "5-0", "b": "2-0", "c": "1-0"}, {"a": "3-0", "b": "9-0"}) == {
        "a": "3-0",
        "b": "2-0",
    }
