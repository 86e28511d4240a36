"""What a consumer does next, step by step, on the engine in this process, by a clock that the test turns."""

from __future__ import annotations

from typing import Any

import pytest

import headrace
from api.stepping import Killed, MortalBackend, Stepper, numbers, on
from headrace.api.group import Group
from headrace.api.local.clock import ManualClock
from headrace.api.retry_policy import Backoff
from headrace.errors import HeadraceError, NoSuchGroup


def filled(db: Any, count: int, **policy: Any) -> Group[Any]:
    orders = db.stream("orders")
    orders.add_many({"n": n} for n in range(count))
    return orders.group("billing", create=True, **policy)


def fail(_: Any) -> None:
    raise ValueError("no")


def held(group: Group[Any]) -> dict[int, tuple[str, float, int]]:
    """What is pending, by the number of the entry: whose, for how long, delivered how often."""
    found = {int(group.stream[one.id]["n"]): one for one in group.pending(count=10_000)}
    return {n: (one.consumer, one.idle, one.times_delivered) for n, one in found.items()}


def test_entries_come_in_order_and_are_acknowledged_once_it_would_wait(db: Any) -> None:
    group = filled(db, 100)
    seen: list[int] = []
    Stepper(group.consumer("w")).handle_all(lambda entry: seen.append(int(entry["n"])))
    assert seen == list(range(100)) and group.info().pending == 0


def test_what_runs_is_not_acknowledged(db: Any) -> None:
    group = filled(db, 3)
    stepper = Stepper(group.consumer("w"))
    first, second, third = stepper.all()
    stepper.worker.ack(second)
    assert stepper.next() is None
    assert sorted(held(group)) == [0, 2]
    first.ack()
    third.ack()
    assert stepper.next() is None
    assert not held(group)


def test_the_acknowledgement_of_slow_work_is_sent_before_the_next_begins(db: Any, clock: ManualClock) -> None:
    group = filled(db, 3)
    stepper = Stepper(group.consumer("w", fetch_count=3))
    first = stepper.next()
    assert first is not None
    clock.advance(seconds=0.1)
    first.ack()
    assert stepper.next() is not None
    assert sorted(held(group)) == [1, 2]


def test_many_acknowledgements_are_sent_though_no_time_has_passed(db: Any) -> None:
    group = filled(db, 600)
    stepper = Stepper(group.consumer("w", fetch_count=600))
    for _ in range(300):
        delivery = stepper.next()
        assert delivery is not None
        delivery.ack()
    assert 600 - 300 <= group.info().pending <= 600 - 256


def test_the_renewer_sends_acknowledgements_that_wait_for_long_work(db: Any, clock: ManualClock) -> None:
    group = filled(db, 2)
    stepper = Stepper(group.consumer("w", fetch_count=2))
    first, second = stepper.next(), stepper.next()
    assert first is not None and second is not None
    first.ack()
    clock.advance(seconds=1)
    stepper.keep()
    assert sorted(held(group)) == [1]


def test_a_failure_waits_for_its_back_off_and_keeps_its_lease(db: Any, clock: ManualClock) -> None:
    group = filled(db, 1, lease=30, backoff=Backoff(initial=100, multiplier=3, maximum=1000))
    stepper, other = Stepper(group.consumer("w")), Stepper(group.consumer("other"))
    stepper.handle_all(fail)
    for _ in range(9):
        clock.advance(seconds=11)
        stepper.keep()
        assert stepper.next() is None and other.next() is None
    assert held(group)[0][::2] == ("w", 1)
    clock.advance(seconds=1)
    again = stepper.next()
    assert again is not None and again.times_delivered == 2 and again["n"] == b"0"
    stepper.worker.record_failure(again, ValueError("no"))
    clock.advance(seconds=29)
    stepper.keep()
    assert stepper.waits and stepper.next() is None
    assert stepper.worker.counters.retried == 2


def test_by_hand_the_first_word_counts(db: Any, clock: ManualClock) -> None:
    group = filled(db, 3)
    stepper = Stepper(group.consumer("w"))
    one, two, three = stepper.all()
    one.retry(after=5)
    one.ack()
    two.fail("broken")
    two.ack()
    three.ack()
    three.fail("too late")
    assert stepper.next() is None
    assert sorted(held(group)) == [0]
    assert [(letter["n"], letter.error) for letter in group.dead_letters] == [(b"1", "broken")]
    clock.advance(seconds=5)
    assert numbers(stepper.all()) == [0]


def test_a_restart_begins_with_what_was_begun_and_then_takes_new_ones(db: Any) -> None:
    group = filled(db, 10)
    assert len(Stepper(group.consumer("w", fetch_count=5)).all()) == 10
    group.stream.add({"n": 10})
    again = Stepper(group.consumer("w")).all()
    assert numbers(again) == list(range(11))
    assert [one.times_delivered for one in again] == [2] * 10 + [1]


def test_many_of_its_own_come_in_pages(db: Any) -> None:
    group = filled(db, 500)
    Stepper(group.consumer("w", fetch_count=500)).all()
    assert numbers(Stepper(group.consumer("w")).all()) == list(range(500))


def test_entries_of_the_silent_are_taken_over_after_the_lease_and_not_before(
    db: Any, clock: ManualClock
) -> None:
    group = filled(db, 50, lease=30)
    assert len(Stepper(group.consumer("dead")).all()) == 50
    clock.advance(seconds=29)
    alive = Stepper(group.consumer("alive"))
    assert alive.all() == []
    clock.advance(seconds=5)
    taken = alive.all()
    assert numbers(taken) == list(range(50)) and {one.times_delivered for one in taken} == {2}
    assert alive.worker.counters.claimed == 50


def test_long_work_is_not_taken_away_and_its_count_stays(db: Any, clock: ManualClock) -> None:
    group = filled(db, 1, lease=30)
    slow, other = Stepper(group.consumer("slow")), Stepper(group.consumer("other"))
    working = slow.next()
    assert working is not None
    for _ in range(20):
        clock.advance(seconds=10)
        slow.keep()
        assert other.next() is None
    assert held(group) == {0: ("slow", 0.0, 1)}
    working.ack()
    assert slow.next() is None and not held(group)


def test_who_stood_still_looks_before_it_renews(db: Any, clock: ManualClock) -> None:
    group = filled(db, 2, lease=30)
    slow = Stepper(group.consumer("slow"))
    first, second = slow.all()
    clock.advance(seconds=60)
    quick = Stepper(group.consumer("quick", fetch_count=1))
    assert len(quick.all()) == 2
    slow.keep()
    assert first.lost and second.lost and slow.worker.counters.lost == 2
    assert {whose for whose, _, _ in held(group).values()} == {"quick"}
    first.ack()  # it was done: the other need not do it once more after a crash
    slow.worker.record_failure(second, ValueError("no"))  # it is the other's to try again
    assert slow.next() is None
    assert held(group) == {1: ("quick", 0.0, 2)}


def test_who_stood_still_and_lost_nothing_goes_on(db: Any, clock: ManualClock) -> None:
    group = filled(db, 1, lease=30)
    slow = Stepper(group.consumer("slow"))
    working = slow.next()
    clock.advance(minutes=5)
    slow.keep()
    assert working is not None and not working.lost
    assert held(group) == {0: ("slow", 0.0, 1)}


def test_a_failure_after_a_stall_is_not_taken_back_from_the_new_owner(db: Any, clock: ManualClock) -> None:
    group = filled(db, 1, lease=30, max_deliveries=1)
    slow = Stepper(group.consumer("slow"))
    working = slow.next()
    assert working is not None
    clock.advance(seconds=31)
    db.execute("XCLAIM", "orders", "billing", "quick", 0, str(working.id))
    working.fail("I was late")
    assert slow.next() is None
    assert held(group) == {0: ("quick", 0.0, 2)} and len(group.dead_letters) == 0


def test_what_kills_its_consumers_is_buried_and_who_stood_behind_it_is_not(db: Any) -> None:
    group = filled(db, 30, max_deliveries=3)
    seen: list[int] = []
    for _ in range(5):
        stepper = Stepper(group.consumer("w", fetch_count=30))
        while (delivery := stepper.next()) is not None and delivery["n"] != b"7":  # there the process dies
            seen.append(int(delivery["n"]))
            delivery.ack()
    stepper.handle_all(lambda entry: seen.append(int(entry["n"])))
    assert set(seen) == set(range(30)) - {7} and not held(group)
    (letter,) = group.dead_letters
    assert letter["n"] == b"7" and letter.deliveries == 4 and "never settled" in letter.error


def test_what_was_deleted_meanwhile_is_forgotten(db: Any, clock: ManualClock) -> None:
    group = filled(db, 4, lease=30)
    first, second, *_ = Stepper(group.consumer("w")).all()
    group.stream.delete(first.id)
    again = Stepper(group.consumer("w"))
    assert numbers(again.all()) == [1, 2, 3]
    group.stream.delete(second.id)
    clock.advance(minutes=1)
    assert numbers(Stepper(group.consumer("other")).all()) == [2, 3]
    assert sorted(held(group)) == [2, 3]


def test_stopping_gives_back_what_was_not_begun_uncounted(db: Any) -> None:
    group = filled(db, 10, lease=30)
    stepper = Stepper(group.consumer("w", fetch_count=10))
    first, second = stepper.next(), stepper.next()
    assert first is not None and second is not None
    first.ack()
    stepper.stop()
    second.ack()
    stepper.stop()
    assert {n: times for n, (_, _, times) in held(group).items()} == dict.fromkeys(range(2, 10), 0)
    other = Stepper(group.consumer("other")).all()
    assert numbers(other) == list(range(2, 10)) and {one.times_delivered for one in other} == {1}


def test_stopping_leaves_what_failed_to_others_when_it_is_due(db: Any, clock: ManualClock) -> None:
    group = filled(db, 1, lease=30, backoff=Backoff(initial=20, maximum=20))
    stepper = Stepper(group.consumer("w"))
    stepper.handle_all(fail)
    stepper.stop()
    other = Stepper(group.consumer("other"))
    assert other.next() is None
    clock.advance(seconds=19)
    assert other.next() is None
    clock.advance(seconds=2)
    (again,) = Stepper(group.consumer("third")).all()
    assert again.times_delivered == 2


def test_a_lost_group_is_an_error_that_says_how_to_mend_it(db: Any) -> None:
    group = filled(db, 1)
    stepper = Stepper(group.consumer("w"))
    stepper.handle_all(lambda entry: None)
    group.destroy()
    with pytest.raises(NoSuchGroup) as caught:
        stepper.next()
    assert "recreate" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_lost_group_is_made_again_when_told_so(db: Any, deleted: bool) -> None:
    group = filled(db, 3, recreate="0")
    stepper = Stepper(group.consumer("w"))
    seen: list[int] = []
    stepper.handle_all(lambda entry: seen.append(int(entry["n"])))
    if deleted:
        group.stream.destroy()
    else:
        group.destroy()
    stepper.handle_all(lambda entry: seen.append(int(entry["n"])))
    group.stream.add({"n": 3})
    stepper.handle_all(lambda entry: seen.append(int(entry["n"])))
    assert seen == ([0, 1, 2, 3] if deleted else [0, 1, 2, 0, 1, 2, 3])
    assert group.info().pending == 0


def test_what_is_in_hand_survives_the_loss_of_the_group(db: Any, clock: ManualClock) -> None:
    group = filled(db, 3, recreate="$", backoff=Backoff(initial=1))
    stepper = Stepper(group.consumer("w"))
    running, failing, _ = stepper.all()
    stepper.worker.record_failure(failing, ValueError("no"))
    group.destroy()
    clock.advance(seconds=2)
    assert numbers(stepper.all()) == [1]
    assert sorted(held(group)) == [0, 1, 2] and held(group)[1][2] == 2
    running.ack()
    stepper.next()
    assert sorted(held(group)) == [1, 2]


def test_ordered_entries_run_one_by_one_also_when_one_is_tried_again(db: Any, clock: ManualClock) -> None:
    group = filled(db, 9, backoff=Backoff(initial=10))
    stepper = Stepper(group.consumer("w", fetch_count=9, ordered_by=lambda entry: int(entry["n"]) % 3))
    first = stepper.all()
    assert numbers(first) == [0, 1, 2]
    stepper.worker.record_failure(first[0], ValueError("no"))
    first[1].ack()
    assert numbers(stepper.all()) == [4]
    clock.advance(seconds=11)
    first[2].ack()
    assert numbers(stepper.all()) == [5, 0]


def test_a_key_that_cannot_be_had_is_a_failure_of_the_entry(db: Any) -> None:
    group = filled(db, 2, max_deliveries=1)
    stepper = Stepper(group.consumer("w", ordered_by=lambda entry: entry["customer"]))
    assert stepper.all() == []
    errors = [letter.error for letter in group.dead_letters]
    assert len(errors) == 2 and all("customer" in error for error in errors)
    group = db.stream("orders").group("other", max_deliveries=1, dead_letters=False)
    stepper = Stepper(group.consumer("w", ordered_by=lambda entry: []))
    assert stepper.all() == [] and stepper.worker.counters.dead_lettered == 2 and not held(group)


def test_quick_work_is_fetched_in_ever_larger_batches_and_slow_work_is_not(
    db: Any, clock: ManualClock
) -> None:
    group = filled(db, 400)
    quick = Stepper(group.consumer("quick"))
    for _ in range(100):
        delivery = quick.next()
        assert delivery is not None
        delivery.ack()
    reads = [int(words[5]) for words in quick.asked if words[0] == b"XREADGROUP"]
    assert reads == [1, 2, 4, 8, 16, 32, 64]
    slow = Stepper(group.consumer("slow"))
    for _ in range(10):
        delivery = slow.next()
        assert delivery is not None
        clock.advance(seconds=1)
        delivery.ack()
    assert {int(words[5]) for words in slow.asked if words[0] == b"XREADGROUP"} == {1}


def test_what_fails_fills_the_hand_and_no_more_is_fetched(db: Any) -> None:
    group = filled(db, 3000)
    stepper = Stepper(group.consumer("w", fetch_count=500))
    stepper.handle_all(fail)
    assert group.info().pending == 1024
    assert stepper.waits[-1] is not None and 0 < stepper.waits[-1] <= 1


def test_block_ends_it_when_nothing_was_to_do_for_so_long(db: Any, clock: ManualClock) -> None:
    group = filled(db, 1, backoff=Backoff(initial=2))
    stepper = Stepper(group.consumer("w", block=5))
    stepper.handle_all(fail)
    clock.advance(seconds=3)
    stepper.handle_all(lambda entry: None)
    clock.advance(seconds=4)
    assert stepper.next() is None and not stepper.worker.is_stopping
    clock.advance(seconds=1.5)
    assert stepper.next() is None and stepper.worker.is_stopping


def test_two_with_one_name_lose_nothing(db: Any) -> None:
    group = filled(db, 20)
    one, two = Stepper(group.consumer("w", fetch_count=4)), Stepper(group.consumer("w", fetch_count=4))
    seen: list[int] = []
    for stepper in (one, two) * 30:
        if (delivery := stepper.next()) is not None:
            seen.append(int(delivery["n"]))
            delivery.ack()
    one.stop()
    two.stop()
    Stepper(group.consumer("w")).handle_all(lambda entry: seen.append(int(entry["n"])))
    assert set(seen) == set(range(20)) and not held(group)


def test_a_dead_letter_stream_that_is_none_loses_nothing(db: Any) -> None:
    group = filled(db, 1, max_deliveries=1)
    db.execute("SET", "{orders}:dead", "a string")
    stepper = Stepper(group.consumer("w"))
    with pytest.raises(HeadraceError, match="is not a stream"):
        stepper.handle_all(fail)
    assert held(group)[0][0] == "w"


def count_calls(after: bool) -> int:
    """How many calls of the backend the story below takes."""
    with headrace.open(clock=ManualClock()) as db:
        backend = MortalBackend(db.backend)
        tell(backend, filled(db, 8, max_deliveries=2, backoff=Backoff(initial=0)))
        return backend.calls


def tell(backend: MortalBackend, group: Group[Any]) -> list[int]:
    """Handle all entries; 3 fails once, 5 always. A new process of the same name begins where one died."""
    seen: list[int] = []
    failed: set[int] = set()
    stepper = Stepper(on(group, backend).consumer("w", fetch_count=3))

    def handle(entry: Any) -> None:
        n = int(entry["n"])
        if n == 5 or (n == 3 and n not in failed):
            failed.add(n)
            raise ValueError(f"{n} fails")
        seen.append(n)

    try:
        stepper.handle_all(handle)
        stepper.stop()
    except Killed:
        pass
    return seen


@pytest.mark.parametrize("after", [False, True])
def test_nothing_is_lost_wherever_the_process_dies(after: bool) -> None:
    calls = count_calls(after)
    assert calls > 10
    for dies_at in range(1, calls + 1):
        with headrace.open(clock=ManualClock()) as db:
            group = filled(db, 8, max_deliveries=2, backoff=Backoff(initial=0))
            seen = tell(MortalBackend(db.backend, dies_at, after), group)
            seen += tell(MortalBackend(db.backend), group)
            buried = [letter["n"] for letter in group.dead_letters]
            assert set(seen) >= set(range(8)) - {3, 5}
            assert b"5" in buried and set(buried) <= {b"3", b"5"} and len(buried) == len(set(buried))
            assert 3 in seen or b"3" in buried
            assert not held(group), f"died at call {dies_at}"
