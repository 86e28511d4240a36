from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.watching import Watch


def test_a_change_invalidates_watches_of_that_key_of_that_database():
    keyspace = Keyspace()
    watches = [Watch() for _ in range(4)]
    keyspace.database(0).watch(b"a", watches[0])
    keyspace.database(0).watch(b"a", watches[1])
    keyspace.database(0).watch(b"b", watches[2])
    keyspace.database(1).watch(b"a", watches[3])
    keyspace.database(0).mark_modified(b"a")
    assert [watch.invalidated for watch in watches] == [True, True, False, False]
    assert keyspace.changes == 1


def test_an_ended_watch_is_not_invalidated_and_leaves_nothing():
    keyspace = Keyspace()
    database = keyspace.database(0)
    watch, other = Watch(), Watch()
    for key in (b"a", b"b", b"a"):
        database.watch(key, watch)
    database.watch(b"a", other)
    assert list(watch.keys) == [(0, b"a"), (0, b"b")]
    keyspace.unwatch(watch)
    database.mark_modified(b"a")
    assert not watch.invalidated and other.invalidated
    keyspace.unwatch(other)
    assert database.watched_keys.watches == {}


def test_expiry_invalidates_unless_the_key_had_expired_before():
    keyspace = Keyspace()
    keyspace.now = 100
    database = keyspace.database(0)
    early, late = Watch(), Watch()
    database.put(b"k", b"v")
    database.set_expiry(b"k", 200)
    database.watch(b"k", early)
    keyspace.now = 200
    database.watch(b"k", late)
    assert early.invalidated and not late.invalidated


def test_a_watch_knows_its_keys_without_looking_through_them():
    """30,000 keys took ten seconds when each was compared with all before it."""
    keyspace = Keyspace()
    watch = Watch()

    class Counted(bytes):
        compared = 0

        def __eq__(self, other):
            Counted.compared += 1
            return bytes.__eq__(self, other)

        __hash__ = bytes.__hash__

    for i in range(2000):
        watch.keys[(0, Counted(b"k%d" % i))] = None
    assert not watch.contains(0, b"other") and watch.contains(0, b"k1999")
    assert Counted.compared < 100
    for i in range(2000):
        keyspace.database(0).watch(b"k%d" % i, watch)
    assert len(watch.keys) == 2000
