from headrace.streams.node import open_node, raw_bytes
from headrace.streams.node_walk import EntryWalk


def node_of(*entries):
    (ms, seq, first), *rest = entries
    node = open_node(ms, seq, first, 0, raw_bytes(first, 0))
    for ms, seq, words in rest:
        node.append(ms, seq, words, 0, raw_bytes(words, 0))
    return node


def test_a_walk_may_turn_round_anywhere():
    node = node_of(*((i, 0, [b"f", b"v" * i]) for i in range(1, 6)))
    walk = EntryWalk(node)
    seen = []
    for step in (walk.next, walk.next, walk.next, walk.previous, walk.next, walk.next):
        assert step()
        seen.append(walk.ms)
    assert seen == [1, 2, 3, 2, 3, 4]
    assert walk.next() and not walk.next()
    walk.enter_end(node)
    assert [walk.ms for _ in range(5) if walk.previous()] == [5, 4, 3, 2, 1]
    assert not walk.previous()


def test_a_walk_may_leave_an_entry_half_read():
    node = node_of((1, 0, [b"a", b"1", b"b", b"2"]), (2, 0, [b"c", b"3"]), (3, 0, [b"a", b"4", b"b", b"5"]))
    for steps in range(5):
        walk = EntryWalk(node)
        assert walk.next()
        for _ in range(steps):
            assert walk.next_piece()
        assert walk.next() and walk.ms == 2
        assert walk.next_piece() and walk.piece() == b"c"
        assert walk.next() and walk.ms == 3
        assert walk.next_piece() and walk.piece() == b"a"


def test_pieces_of_every_kind_are_given_as_text():
    words = [b"", b"0", b"a" * 63, b"99", b"b" * 64, b"-5", b"c" * 5000, b"1234567890123"]
    walk = EntryWalk(node_of((1, 0, words), (2, 0, words[::-1])))
    for want in (words, words[::-1]):
        assert walk.next() and walk.fields == 4
        found = []
        while walk.next_piece():
            found.append(walk.piece())
        assert found == want


def test_only_fields_like_the_master_entrys_are_left_out():
    walk = EntryWalk(node_of((1, 0, [b"a", b"1"]), (2, 0, [b"a", b"2"]), (3, 0, [b"b", b"2"])))
    assert [walk.same for _ in range(3) if walk.next()] == [True, True, False]
