from headrace.keyspace.scan import ScanOrder


def test_an_order_goes_through_all_keys_once():
    order = ScanOrder([b"%d" % i for i in range(25)])
    cursor, found = 0, []
    while True:
        cursor, keys = order.step(cursor, 10)
        found += keys
        if not cursor:
            break
    assert found == [b"%d" % i for i in range(25)]


def test_closing_holes_does_not_move_what_a_cursor_points_at():
    live = {b"%d" % i: None for i in range(600)}
    order = ScanOrder(live)
    cursor, seen = order.step(0, 100)
    for i in range(2000):  # keys that come and go at once: holes, closed more than once
        live[b"gone%d" % i] = None
        order.add(b"gone%d" % i, live)
        del live[b"gone%d" % i]
    assert len(order.keys) < 2000
    while cursor:
        cursor, keys = order.step(cursor, 100)
        seen += keys
    assert [key for key in seen if key in live] == [b"%d" % i for i in range(600)]


def test_a_cursor_from_nowhere_is_harmless():
    order = ScanOrder([b"a"])
    assert order.step(10**6, 10) == (0, [])
