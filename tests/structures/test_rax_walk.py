import random
import struct
from bisect import bisect_left, bisect_right

import pytest

from headrace.structures.rax import Rax
from headrace.structures.rax_walk import RaxCursor

WORDS = [b"", b"a", b"ab", b"abc", b"abd", b"b", b"banana", b"band", b"x\x00", b"x\xff", b"x\xff\xff"]


def tree_of(keys):
    tree = Rax()
    for key in keys:
        tree.insert(key, key.hex())
    return tree


def keys_from(cursor, stands, step):
    keys = []
    while stands:
        assert cursor.value == cursor.key.hex()
        keys.append(cursor.key)
        stands = step()
    return keys


def test_no_seek_finds_anything_in_an_empty_tree():
    cursor = RaxCursor(Rax())
    for op in ("^", "$", "=", ">", ">=", "<", "<="):
        for key in (b"", b"a"):
            assert not cursor.seek(op, key)
    assert (cursor.key, cursor.value) == (b"", None)
    assert not cursor.next()
    assert not cursor.previous()


def test_keys_come_in_byte_order_forwards_and_backwards():
    cursor = RaxCursor(tree_of(reversed(WORDS)))
    assert keys_from(cursor, cursor.seek("^"), cursor.next) == WORDS
    assert keys_from(cursor, cursor.seek("$"), cursor.previous) == WORDS[::-1]


@pytest.mark.parametrize("keys", [WORDS, WORDS[1:], WORDS[::2], [b""], [b"banana"], [b"ab", b"abc"]])
def test_every_seek_lands_where_a_sorted_list_says(keys):
    cursor = RaxCursor(tree_of(keys))
    wanted = {b"", b"\xff" * 40} | {
        word[:n] + more
        for word in WORDS
        for n in range(len(word) + 1)
        for more in (b"", b"\0", b"c", b"\xff")
    }
    for key in sorted(wanted):
        low, high = bisect_left(keys, key), bisect_right(keys, key)
        landings = {
            ">=": keys[low:],
            ">": keys[high:],
            "<=": keys[:high][::-1],
            "<": keys[:low][::-1],
            "=": keys[low:high],
        }
        for op, expected in landings.items():
            assert cursor.seek(op, key) == bool(expected), (op, key)
            assert cursor.key == (expected[0] if expected else b"")
            assert cursor.value == (expected[0].hex() if expected else None)


def test_the_first_and_the_last_do_not_look_at_the_key():
    cursor = RaxCursor(tree_of(WORDS))
    assert cursor.seek("^", b"banana") and cursor.key == WORDS[0]
    assert cursor.seek("$", b"banana") and cursor.key == WORDS[-1]


def test_a_seek_of_another_kind_is_refused():
    for tree in (Rax(), tree_of(WORDS)):
        for op in ("", "==", "!", "=>"):
            with pytest.raises(ValueError):
                RaxCursor(tree).seek(op, b"ab")


def test_a_cursor_turns_round_anywhere():
    cursor = RaxCursor(tree_of(WORDS))
    for place, word in enumerate(WORDS[1:-1], start=1):
        assert cursor.seek("=", word)
        assert cursor.next() and cursor.key == WORDS[place + 1]
        assert cursor.previous() and cursor.key == word
        assert cursor.previous() and cursor.key == WORDS[place - 1]
        assert cursor.next() and cursor.key == word


def test_a_cursor_past_the_end_has_no_item_until_it_seeks():
    tree = tree_of([b"a", b"b"])
    cursor = RaxCursor(tree)
    assert cursor.seek("$")
    assert not cursor.next()
    tree.insert(b"c", "63")
    assert not cursor.next()
    assert not cursor.previous()
    assert (cursor.key, cursor.value) == (b"", None)
    assert cursor.seek("=", b"c")


def test_a_key_longer_than_any_before_is_returned_completely():
    keys = [b"a" * n + b"b" for n in (1, 31, 32, 33, 1000, 70_000)]
    cursor = RaxCursor(tree_of(keys))
    assert keys_from(cursor, cursor.seek("^"), cursor.next) == sorted(keys)
    assert keys_from(cursor, cursor.seek("$"), cursor.previous) == sorted(keys)[::-1]


def test_the_key_a_cursor_stands_on_may_be_removed():
    tree = tree_of(WORDS)
    cursor = RaxCursor(tree)
    stands = cursor.seek("^")
    seen = []
    while stands:
        seen.append(cursor.key)
        assert tree.remove(cursor.key)
        tree.check()
        stands = cursor.next()
    assert seen == WORDS
    assert tree.key_count == 0


def test_all_keys_may_be_removed_under_a_cursor():
    tree = tree_of(WORDS)
    cursor = RaxCursor(tree)
    assert cursor.seek("=", b"b")
    for word in WORDS:
        tree.remove(word)
    assert not cursor.next()


def test_a_step_goes_to_a_key_inserted_meanwhile():
    tree = tree_of([b"a", b"c"])
    cursor = RaxCursor(tree)
    assert cursor.seek("=", b"a")
    tree.insert(b"b", "62")
    assert cursor.next() and cursor.key == b"b"
    tree.insert(b"aaa", "616161")
    assert cursor.previous() and cursor.key == b"aaa"
    tree.insert(b"aaaa", "61616161")
    assert cursor.next() and cursor.key == b"aaaa"


def test_two_cursors_do_not_disturb_each_other():
    tree = tree_of(WORDS)
    one, other = RaxCursor(tree), RaxCursor(tree)
    assert one.seek("^") and other.seek("$")
    for place in range(1, len(WORDS)):
        assert one.next() and one.key == WORDS[place]
        assert other.previous() and other.key == WORDS[-1 - place]


def test_ids_are_walked_in_the_order_of_their_numbers():
    chance = random.Random(3)
    ids = sorted(
        {(chance.randrange(1 << 44), chance.randrange(1 << chance.randrange(1, 64))) for _ in range(500)}
    )
    keys = [struct.pack(">QQ", ms, seq) for ms, seq in ids]
    cursor = RaxCursor(tree_of(chance.sample(keys, len(keys))))
    assert keys_from(cursor, cursor.seek("^"), cursor.next) == keys
    assert keys_from(cursor, cursor.seek(">", keys[100]), cursor.next) == keys[101:]
    assert keys_from(cursor, cursor.seek("<=", keys[100]), cursor.previous) == keys[100::-1]
