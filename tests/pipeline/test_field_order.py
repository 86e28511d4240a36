"""The order of inferred columns."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.columns.field_order import merge_orders
from headrace.pipeline.archiving.column_inference import infer_columns_sql


def names(text: str) -> list[bytes]:
    return [bytes([letter]) for letter in text.encode()]


@pytest.mark.parametrize(
    ("orders", "merged"),
    [
        ([], ""),
        (["abc"], "abc"),
        (["acd", "abcd"], "abcd"),
        (["ac", "abcd", "bd"], "abcd"),
        (["ab", "cd"], "abcd"),
        (["ab", "ba"], "ab"),
        (["ba", "abc", "ab"], "bac"),
        (["b", "ab"], "ab"),
    ],
)
def test_orders_are_merged(orders: list[str], merged: str) -> None:
    assert merge_orders(map(names, orders)) == names(merged)


@given(st.integers(1, 12), st.randoms(use_true_random=False))
def test_an_order_that_all_agree_with_is_found(count: int, source: random.Random) -> None:
    whole = list(range(count))
    source.shuffle(whole)
    orders = [[b"%d" % n for n in whole if source.random() < 0.6] for _ in range(5)]
    merged = merge_orders(orders)
    assert sorted(merged) == sorted({name for order in orders for name in order})
    for order in orders:
        assert [name for name in merged if name in order] == order


def test_a_field_that_the_first_entry_lacks_is_put_in_its_place() -> None:
    entries = [{b"a": b"1", b"c": b"1"}, {b"a": b"1", b"b": b"1", b"c": b"1"}]
    assert infer_columns_sql(entries) == "`a` BIGINT, `b` BIGINT, `c` BIGINT"
