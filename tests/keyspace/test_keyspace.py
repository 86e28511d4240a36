import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import WrongType
from headrace.keyspace import keyspace as keyspace_module
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.settings import Settings
from headrace.keyspace.watching import Watch
from headrace.streams.stream import Stream


@pytest.fixture
def keyspace():
    made = Keyspace()
    made.now = 1000
    return made


@pytest.fixture
def database(keyspace):
    return keyspace.database(0)


def test_there_are_as_many_databases_as_settings_say():
    settings = Settings()
    settings.databases = 3
    keyspace = Keyspace(settings)
    assert [keyspace.database(i) is not None for i in (-1, 0, 2, 3)] == [False, True, True, False]


def test_a_value_is_found_in_its_own_database_only(keyspace, database):
    database.put(b"k", b"v")
    assert database.find(b"k") == b"v"
    assert keyspace.database(1).find(b"k") is None


def test_a_key_of_another_type_is_an_error(database):
    stream = Stream()
    database.put(b"s", stream)
    database.put(b"b", b"text")
    database.put(b"a", bytearray(b"grown"))
    assert [keyspace_module.type_name(database.find(key)) for key in (b"s", b"b", b"a", b"none")] == [
        b"stream",
        b"string",
        b"string",
        b"none",
    ]
    assert database.stream(b"s") is stream
    assert database.string(b"a") == b"grown"
    assert database.stream(b"none") is None and database.string(b"none") is None
    with pytest.raises(WrongType):
        database.stream(b"b")
    with pytest.raises(WrongType):
        database.stream(b"a")
    with pytest.raises(WrongType):
        database.string(b"s")


def test_a_key_expires_exactly_at_its_time(keyspace, database):
    database.put(b"k", b"v")
    database.set_expiry(b"k", 2000)
    keyspace.now = 1999
    assert database.find(b"k") == b"v"
    assert database.expiry(b"k") == 2000
    keyspace.now = 2000
    assert not database.contains(b"k")
    assert database.find(b"k") is None
    assert database.expiry(b"k") == -1
    assert keyspace.expired_count == 1


def test_put_forgets_the_expiry_and_replace_keeps_it(database):
    database.put(b"k", b"v")
    database.set_expiry(b"k", 2000)
    database.replace(b"k", b"w")
    assert database.expiry(b"k") == 2000
    database.put(b"k", b"x")
    assert database.expiry(b"k") == -1


def test_clearing_an_expiry_says_whether_there_was_one(database):
    database.put(b"k", b"v")
    assert not database.clear_expiry(b"k")
    database.set_expiry(b"k", 2000)
    assert database.clear_expiry(b"k")
    assert database.expiry(b"k") == -1


def test_a_removed_key_takes_its_expiry_along(keyspace, database):
    database.put(b"k", b"v")
    database.set_expiry(b"k", 2000)
    assert database.remove(b"k")
    assert not database.remove(b"k")
    database.put(b"k", b"new")
    keyspace.now = 3000
    assert database.find(b"k") == b"new"


def test_removing_an_expired_key_removes_nothing(keyspace, database):
    database.put(b"k", b"v")
    database.set_expiry(b"k", 2000)
    keyspace.now = 2000
    assert not database.remove(b"k")


def test_expired_keys_are_neither_counted_nor_listed(keyspace, database):
    for i in range(10):
        database.put(b"%d" % i, b"")
        if i % 2:
            database.set_expiry(b"%d" % i, 1500)
    assert database.size() == 10
    keyspace.now = 1500
    assert database.size() == 5
    alive = database.keys()
    assert alive == [b"0", b"2", b"4", b"6", b"8"]
    assert database.random_key() in alive


def test_a_sweep_is_bounded_and_says_whether_more_is_left(keyspace, database):
    for i in range(1500):
        database.put(b"%d" % i, b"")
        database.set_expiry(b"%d" % i, 1001)
    keyspace.now = 1001
    assert keyspace.sweep_step()
    assert len(database.values) == 500
    assert not keyspace.sweep_step()
    assert len(database.values) == 0
    assert keyspace.expired_count == 1500
    assert keyspace.next_expiry() == -1


def test_the_next_expiry_is_the_earliest_of_all_databases(keyspace):
    for index, at in ((3, 5000), (1, 4000), (2, 6000)):
        keyspace.database(index).put(b"k", b"v")
        keyspace.database(index).set_expiry(b"k", at)
    assert keyspace.next_expiry() == 4000


def test_an_expiry_is_reported(keyspace, database):
    told = []
    keyspace.on_expired = lambda index, key: told.append((index, key))
    database.put(b"k", b"v")
    database.set_expiry(b"k", 1001)
    keyspace.now = 1001
    database.find(b"k")
    assert told == [(0, b"k")]


def test_hits_and_misses_are_counted_for_reading_commands_only(keyspace, database):
    database.put(b"k", b"v")
    database.find(b"k")
    assert (keyspace.hits, keyspace.misses) == (0, 0)
    keyspace.counts_lookups = True
    database.find(b"k")
    database.find(b"none")
    database.string(b"k")
    assert (keyspace.hits, keyspace.misses) == (2, 1)


def test_swapping_exchanges_keys_and_expiries_but_not_watches(keyspace):
    first, second = keyspace.database(0), keyspace.database(1)
    first.put(b"k", b"v")
    first.set_expiry(b"k", 5000)
    watch, idle = Watch(), Watch()
    first.watch(b"k", watch)
    first.watch(b"none", idle)
    keyspace.swap(0, 1)
    assert first.find(b"k") is None
    assert second.find(b"k") == b"v"
    assert second.expiry(b"k") == 5000
    assert watch.invalidated and not idle.invalidated
    keyspace.unwatch(watch)
    keyspace.unwatch(idle)
    assert not first.watched_keys.watches


def test_swapping_a_database_with_itself_changes_nothing(keyspace, database):
    watch = Watch()
    database.put(b"k", b"v")
    database.watch(b"k", watch)
    keyspace.swap(0, 0)
    assert database.find(b"k") == b"v" and not watch.invalidated


def test_flushing_invalidates_watches_of_existing_keys(keyspace, database):
    watch, idle = Watch(), Watch()
    database.put(b"k", b"v")
    database.set_expiry(b"k", 5000)
    database.watch(b"k", watch)
    database.watch(b"none", idle)
    keyspace.database(1).put(b"other", b"")
    assert keyspace.flush_all() == 2
    assert watch.invalidated and not idle.invalidated
    assert database.size() == 0 and keyspace.next_expiry() == -1


def test_a_scan_finds_every_key_that_stays_whatever_comes_and_goes(database):
    stays = {b"stay%d" % i for i in range(200)}
    for key in stays:
        database.put(key, b"")
    for i in range(100):
        database.put(b"goes%d" % i, b"")
    cursor, found, step = 0, [], 0
    while True:
        cursor, keys = database.scan(cursor, 7)
        found += keys
        if cursor == 0:
            break
        database.remove(b"goes%d" % step)
        database.put(b"comes%d" % step, b"")
        database.remove(b"stay0") if step == 5 else None
        step += 1
    assert stays - {b"stay0"} <= set(found)
    assert len(found) == len(set(found))


def test_few_keys_are_found_among_many_removed_ones(database):
    for i in range(50_000):
        database.put(b"%d" % i, b"")
    cursor, _ = database.scan(0, 10)
    for i in range(49_999):
        database.remove(b"%d" % i)
    assert all(database.random_key() == b"49999" for _ in range(50))
    assert database.scan(0, 2000) == (0, [b"49999"])
    assert cursor and database.scan(cursor, 2000)[0] == 0


def scanned(database, count, between=lambda: None):
    """Return what a whole SCAN returns."""
    cursor, found = 0, []
    while True:
        cursor, keys = database.scan(cursor, count)
        found += keys
        if cursor == 0:
            return found
        between()


@pytest.mark.parametrize("keys", [1, 10, 1000, 1100, 20_000])
@pytest.mark.parametrize("count", [1, 10, 1 << 62])
def test_a_scan_returns_each_key_once(database, keys, count):
    for i in range(keys):
        database.put(b"%d" % i, b"")
    if keys / count <= 2000:
        assert sorted(scanned(database, count)) == sorted(database.keys())


def test_a_key_that_comes_and_goes_is_returned_once_and_drawn_evenly(database):
    database.put(b"orders", b"")
    for _ in range(900):
        database.put(b"lock", b"")
        database.remove(b"lock")
    database.put(b"lock", b"")
    assert sorted(scanned(database, 10)) == [b"lock", b"orders"]
    drawn = [database.random_key() for _ in range(1000)]
    assert 400 < drawn.count(b"lock") < 600


def test_a_scan_ends_although_more_keys_come_than_it_returns(database):
    for i in range(5000):
        database.put(b"stay%d" % i, b"")
    serial = iter(range(1 << 30))
    short_lived = []

    def change():
        while len(short_lived) > 12:
            database.remove(short_lived.pop(0))
        for _ in range(12):
            short_lived.append(b"short%d" % next(serial))
            database.put(short_lived[-1], b"")
        assert next(serial) < 20_000, "it does not end"

    found = scanned(database, 10, change)
    assert {b"stay%d" % i for i in range(5000)} <= set(found)
    assert len(found) == len(set(found))


def test_questions_about_all_keys_do_not_delete_a_million_expired_ones(keyspace, database):
    for i in range(3000):
        database.put(b"%d" % i, b"")
        if i != 7:
            database.set_expiry(b"%d" % i, 100)
    keyspace.now = 101
    assert database.size() == 1
    assert database.keys() == scanned(database, 1000) == [b"7"]
    assert database.random_key() == b"7"
    assert database.values.count == 3000
    database.remove(b"7")
    assert database.random_key() is None
    assert database.size() == 0
    while database.sweep(1000):
        pass
    assert database.values.count == 0


def test_a_cursor_from_nowhere_is_harmless(database):
    database.put(b"a", b"")
    assert database.scan(1 << 63, 10) == database.scan(1 << 48, 10) == (0, [])


def test_scanning_goes_on_after_a_flush(database):
    for i in range(100):
        database.put(b"%d" % i, b"")
    cursor, _ = database.scan(0, 10)
    database.flush()
    assert database.scan(cursor, 10) == (0, [])


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS),
        st.tuples(st.just("replace"), KEYS),
        st.tuples(st.just("remove"), KEYS),
        st.tuples(st.just("expire"), KEYS, st.integers(0, 20)),
        st.tuples(st.just("persist"), KEYS),
        st.tuples(st.just("later"), st.integers(0, 10)),
        st.tuples(st.just("sweep")),
        st.tuples(st.just("scan")),
    ),
    max_size=40,
)


@given(STEPS)
def test_a_database_agrees_with_a_model_of_expiring_keys(steps):
    keyspace = Keyspace()
    keyspace.now = 100
    database = keyspace.database(0)
    model = {}  # key -> (value, dies at or None)
    for number, (step, *details) in enumerate(steps):
        key = details[0] if details else None
        value = b"%d" % number
        if step == "put":
            database.put(key, value)
            model[key] = (value, None)
        elif step == "replace" and key in model:
            database.replace(key, value)
            model[key] = (value, model[key][1])
        elif step == "remove":
            assert database.remove(key) == (model.pop(key, None) is not None)
        elif step == "expire" and key in model:
            database.set_expiry(key, keyspace.now + details[1])
            model[key] = (model[key][0], keyspace.now + details[1])
        elif step == "persist" and key in model:
            assert database.clear_expiry(key) == (model[key][1] is not None)
            model[key] = (model[key][0], None)
        elif step == "later":
            keyspace.now += key
        elif step == "sweep":
            keyspace.sweep_step()
        elif step == "scan":
            assert set(database.scan(0, 100)[1]) == live(model, keyspace.now)
        model = {key: item for key, item in model.items() if item[1] is None or item[1] > keyspace.now}
        for name in (b"a", b"b", b"c", b"d"):
            assert database.find(name) == (model[name][0] if name in model else None)
    assert database.size() == len(model)
    assert database.expiry_times.sum_of_times == sum(at for _, at in model.values() if at is not None)


def live(model, now):
    return {key for key, (_, at) in model.items() if at is None or at > now}


def test_while_a_log_is_replayed_no_key_expires():
    keyspace = Keyspace()
    database = keyspace.databases[0]
    database.put(b"k", b"v")
    database.set_expiry(b"k", 10)
    keyspace.now = 20
    keyspace.ignore_expiry = True
    assert database.find(b"k") == b"v" and database.contains(b"k")
    assert database.size() == 1 and database.keys() == [b"k"] and database.random_key() == b"k"
    assert not keyspace.sweep_step() and keyspace.next_expiry() == -1
    keyspace.ignore_expiry = False
    assert keyspace.next_expiry() == 10
    assert database.find(b"k") is None and keyspace.expired_count == 1
