import gc
import random
import struct
import threading
import weakref

import pytest
import redis

from headrace.structures import rax
from headrace.structures.rax import Rax
from support.redis_server import redis_server

COMPILED = rax.__file__.endswith(".so")


def id_key(ms, seq):
    return struct.pack(">QQ", ms, seq)


def tree_of(*keys):
    tree = Rax()
    for key in keys:
        tree.insert(key, key)
        tree.check()
    return tree


def test_an_empty_tree_is_one_node_without_keys():
    tree = Rax()
    tree.check()
    assert (tree.key_count, tree.node_count, len(tree)) == (0, 1, 0)
    assert tree.find(b"") is None
    assert not tree.contains(b"")
    assert not tree.remove(b"")
    assert tree.draw() == "()"


def test_insert_returns_whether_the_key_is_new():
    tree = Rax()
    assert tree.insert(b"orders", 1)
    assert not tree.insert(b"orders", 2)
    assert tree.find(b"orders") == 2
    assert tree.key_count == 1


def test_none_is_a_value_like_any_other():
    tree = Rax()
    tree.insert(b"orders", None)
    assert tree.contains(b"orders")
    assert tree.find(b"orders") is None
    assert tree.remove(b"orders")
    assert not tree.contains(b"orders")


@pytest.mark.parametrize("value", [0, "text", [], {}, (), Rax(), object(), Rax, b""])
@pytest.mark.parametrize("key", [b"", b"a", b"ab", b"abc"])
def test_any_object_comes_back_as_it_went_in(key, value):
    tree = tree_of(b"ab", b"b")
    tree.insert(key, value)
    tree.check()
    assert tree.find(key) is value


def test_a_prefix_or_an_extension_of_a_key_is_not_that_key():
    tree = tree_of(b"field", b"fields", b"final")
    for absent in (b"", b"f", b"fi", b"fie", b"fiel", b"fieldsx", b"fin", b"finals", b"g"):
        assert tree.find(absent) is None
        assert not tree.contains(absent)
        assert not tree.remove(absent)
    tree.check()


def test_the_empty_key_stands_at_the_root():
    tree = tree_of(b"")
    assert (tree.node_count, tree.draw()) == (1, "[]")
    tree.insert(b"ab", 1)
    assert (tree.node_count, tree.draw()) == (2, '["ab"] -> []')
    assert tree.remove(b"")
    tree.check()
    assert tree.draw() == '("ab") -> []'
    assert tree.remove(b"ab")
    tree.check()
    assert (tree.node_count, tree.draw()) == (1, "()")


def test_the_root_stays_a_key_when_all_below_it_go():
    tree = tree_of(b"", b"ab", b"ac")
    assert tree.remove(b"ab")
    tree.check()
    assert tree.remove(b"ac")
    tree.check()
    assert tree.draw() == "[]"


def test_the_drawings_in_the_docstring_are_right():
    heading = rax.__doc__
    drawings = [
        tree_of(b"field", b"fields", b"final").draw(),
        tree_of(b"first", b"fir").draw(),
        tree_of(b"first", b"file").draw(),
    ]
    for drawing in drawings:
        for line in drawing.splitlines():
            assert line in heading


NODES_AFTER = [  # an entry a node, as counted by Redis
    ("insert", (1, 1), 2),
    ("insert", (1, 2), 4),
    ("insert", (2, 1), 8),
    ("insert", (2, 256), 12),
    ("remove", (1, 2), 10),
    ("remove", (2, 1), 6),
    ("remove", (1, 1), 2),
    ("remove", (2, 256), 1),
]


def test_nodes_are_counted_as_redis_counted_them():
    tree = Rax()
    for action, (ms, seq), nodes in NODES_AFTER:
        key = id_key(ms, seq)
        assert tree.insert(key, None) if action == "insert" else tree.remove(key)
        tree.check()
        assert tree.node_count == nodes


def test_ids_are_drawn_in_hex():
    tree = tree_of(*[id_key(ms, seq) for _, (ms, seq), _ in NODES_AFTER[:4]])
    assert tree.draw().splitlines() == [
        '("00 00 00 00 00 00 00") -> (01 02)',
        '   01 -> ("00 00 00 00 00 00 00") -> (01 02) -> [] []',
        '   02 -> ("00 00 00 00 00 00") -> (00 01)',
        "            00 -> (01) -> []",
        "            01 -> (00) -> []",
    ]


@pytest.mark.parametrize(
    ("keys", "drawing"),
    [
        ([b"abc"], '("abc") -> []'),
        ([b"abc", b"abd"], '("ab") -> (c d) -> [] []'),
        ([b"abc", b"xyz"], '(a x)\n   a -> ("bc") -> []\n   x -> ("yz") -> []'),
        ([b"abc", b"a"], '(a) -> ["bc"] -> []'),
        ([b"abc", b"ab"], '("ab") -> [c] -> []'),
        ([b"a", b"b"], "(a b) -> [] []"),
        ([b"b", b"a"], "(a b) -> [] []"),
        ([b"abcde", b"abxde"], '("ab") -> (c x)\n   c -> ("de") -> []\n   x -> ("de") -> []'),
        ([b"abc", b"ab", b"abd"], '("ab") -> [c d] -> [] []'),
        ([b"a b"], '("61 20 62") -> []'),
    ],
)
def test_an_insert_splits_runs_where_keys_differ(keys, drawing):
    assert tree_of(*keys).draw() == drawing


@pytest.mark.parametrize(
    ("keys", "removed", "drawing"),
    [
        ([b"abcd", b"ab"], b"ab", '("abcd") -> []'),
        ([b"abcd", b"ab"], b"abcd", '("ab") -> []'),
        ([b"abcde", b"abxde"], b"abxde", '("abcde") -> []'),
        ([b"abc", b"abx"], b"abc", '("abx") -> []'),
        ([b"ab", b"abcx", b"abdy"], b"abcx", '("ab") -> ["dy"] -> []'),
        ([b"a", b"b", b"c"], b"b", "(a c) -> [] []"),
        ([b"a", b"ab", b"ac"], b"a", "(a) -> (b c) -> [] []"),
        ([b"abc", b"abcd", b"abce"], b"abc", '("abc") -> (d e) -> [] []'),
        ([b"ab", b"abcdef", b"abcxyz"], b"abcxyz", '("ab") -> ["cdef"] -> []'),
    ],
)
def test_a_remove_merges_runs(keys, removed, drawing):
    tree = tree_of(*keys)
    assert tree.remove(removed)
    tree.check()
    assert tree.draw() == drawing


def test_every_byte_can_be_an_edge():
    keys = [bytes([byte]) for byte in range(256)]
    random.Random(7).shuffle(keys)
    tree = tree_of(*keys)
    assert (tree.key_count, tree.node_count) == (256, 257)
    for key in keys:
        assert tree.find(key) == key
    for key in keys:
        assert tree.remove(key)
        tree.check()
    assert tree.node_count == 1


def test_the_shape_follows_from_the_keys_whatever_their_history():
    chance = random.Random(11)
    keys = {bytes(chance.choices(b"abc", k=chance.randrange(8))) for _ in range(200)}
    kept = set(chance.sample(sorted(keys), 60))
    once, grown_and_shrunk = Rax(), Rax()
    for key in chance.sample(sorted(kept), len(kept)):
        once.insert(key, None)
    for key in chance.sample(sorted(keys), len(keys)):
        grown_and_shrunk.insert(key, None)
    for key in chance.sample(sorted(keys - kept), len(keys - kept)):
        assert grown_and_shrunk.remove(key)
        grown_and_shrunk.check()
    assert grown_and_shrunk.draw() == once.draw()
    assert grown_and_shrunk.node_count == once.node_count


@pytest.mark.parametrize("seed", range(20))
def test_taking_a_prefix_removes_its_keys_and_restores_the_shape(seed):
    chance = random.Random(seed)
    keys = {bytes(chance.choices(b"abc", k=chance.randrange(8))) for _ in range(chance.choice([1, 20, 200]))}
    for size in range(1, 8):
        prefix = bytes(chance.choices(b"abc", k=size))
        once, taken = Rax(), Rax()
        for key in sorted(keys):
            taken.insert(key, None)
            if not key.startswith(prefix):
                once.insert(key, None)
        found = sorted(key[size:] for key in keys if key.startswith(prefix))
        assert sorted(taken.pop_suffixes_of_prefix(prefix)) == found
        taken.check()
        assert taken.draw() == once.draw()
        assert taken.node_count == once.node_count
        assert taken.pop_suffixes_of_prefix(prefix) == []


def test_a_removed_key_releases_its_value():
    class Value:
        alive = 0

        def __init__(self):
            Value.alive += 1

        def __del__(self):
            Value.alive -= 1

    tree = Rax()
    for i in range(100):
        tree.insert(id_key(i, 0), Value())
    for i in range(50):
        tree.remove(id_key(i, 0))
    assert Value.alive == 50
    tree.insert(id_key(60, 0), None)
    assert Value.alive == 49
    del tree
    assert Value.alive == 0


def in_a_small_stack(work):
    """Run work in a thread whose C stack has no room for thousands of nested calls."""
    before = threading.stack_size(128 * 1024)
    try:
        failures = []

        def run():
            try:
                work()
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert not failures
    finally:
        threading.stack_size(before)


def test_a_tree_of_many_levels_needs_no_deep_stack():
    depth = 30_000 if COMPILED else 1000

    def work():
        tree = Rax()
        for n in range(depth, 0, -1):
            tree.insert(b"a" * n, n)
        tree.check()
        assert tree.node_count == depth + 1
        assert tree.draw().count("[") == depth
        for n in range(depth, 0, -2):
            assert tree.remove(b"a" * n)
        tree.check()
        del tree

    in_a_small_stack(work)


@pytest.mark.parametrize("count", [1, 10, 3000])
def test_a_dropped_tree_frees_all_values(count):
    class Value:
        pass

    tree = Rax()
    values = [Value() for _ in range(count)]
    for n, value in enumerate(values):
        tree.insert(id_key(n * n, n), value)
        tree.insert(b"a" * n, value)
    left = [weakref.ref(value) for value in values]
    del values, value
    assert all(one() is not None for one in left)
    del tree
    assert all(one() is None for one in left)


def test_a_million_ids_go_in_and_out():
    count = 1_000_000 if COMPILED else 10_000
    tree = Rax()
    gc.disable()  # nothing here makes cycles, and the collector would look at every node time and again
    try:
        for i in range(count):
            tree.insert(id_key(1_700_000_000_000 + i // 3, i % 3), i)
        assert tree.key_count == count
        tree.check()
        assert tree.find(id_key(1_700_000_000_000 + 33, 2)) == 101
        for i in range(count):
            assert tree.remove(id_key(1_700_000_000_000 + i // 3, i % 3))
        assert (tree.key_count, tree.node_count) == (0, 1)
    finally:
        gc.enable()


@pytest.fixture(scope="module")
def real_redis():
    with (
        redis_server(None, "--stream-node-max-entries", "1") as port,
        redis.Redis(port=port) as client,
    ):
        yield client


@pytest.mark.parametrize("seed", range(6))
def test_a_running_redis_counts_the_same_nodes(real_redis, seed):
    chance = random.Random(seed)
    name = f"stream-{seed}"
    tree = Rax()
    live = []
    ms, seq = 0, 0
    wanted, pipe = [], real_redis.pipeline(transaction=False)
    for _ in range(500):
        if live and chance.random() < (0.3 if len(wanted) < 300 else 0.7):
            key = live.pop(chance.randrange(len(live)))
            pipe.xdel(name, "{}-{}".format(*key))
            assert tree.remove(id_key(*key))
        else:
            if chance.random() < 0.5:
                ms, seq = ms + chance.choice([1, 1, 2, 200, 65_000, 1 << 33]), chance.choice([0, 1, 1 << 40])
            else:
                seq += chance.choice([1, 1, 255, 256, 1 << 20])
            live.append((ms, max(seq, 1)))
            seq = max(seq, 1)
            pipe.xadd(name, {"f": "v"}, id=f"{ms}-{seq}")
            assert tree.insert(id_key(ms, seq), None)
        pipe.xinfo_stream(name)
        wanted.append((tree.key_count, tree.node_count))
    counted = [(info["radix-tree-keys"], info["radix-tree-nodes"]) for info in pipe.execute()[1::2]]
    assert counted == wanted
    tree.check()
