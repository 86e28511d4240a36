import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.structures.timer_heap import TimerHeap, TimerQueue

DEADLINES = st.one_of(st.integers(0, 5), st.integers(-(1 << 63), (1 << 63) - 1))
WORDS = st.one_of(st.integers(0, 3), st.integers(0, (1 << 64) - 1))
NUMBERS = st.one_of(st.integers(0, 12), st.integers(0, 300))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), NUMBERS, DEADLINES, WORDS, WORDS),
        st.tuples(st.just("move"), NUMBERS, DEADLINES),
        st.tuples(st.just("remove"), NUMBERS),
        st.tuples(st.just("pop")),
    ),
    max_size=30,
)


def drained(heap):
    """Remove all numbers, the earliest first."""
    order = []
    while heap.count:
        order.append((heap.first_deadline(), heap.first()))
        heap.remove(heap.first())
        heap.check()
    return order


def test_an_empty_heap_has_no_first_number():
    heap = TimerHeap()
    assert (heap.count, heap.first(), heap.first_deadline()) == (0, -1, -1)
    assert not heap.contains(0) and not heap.contains(-1)
    heap.remove(7)
    with pytest.raises(KeyError):
        heap.deadline_of(0)
    with pytest.raises(KeyError):
        heap.change_deadline(0, 5)


@pytest.mark.parametrize("number", [-1, (1 << 32) - 1])
def test_a_number_without_a_place_is_rejected(number):
    heap = TimerHeap()
    with pytest.raises(ValueError):
        heap.set(number, 1)
    heap.check()


def test_equal_deadlines_are_in_order_of_the_two_words():
    heap = TimerHeap()
    for number, (high, low) in enumerate([(2, 0), (1, 1 << 63), (1, 3), ((1 << 64) - 1, 0), (0, 9)]):
        heap.set(number, 50, high, low)
    heap.set(5, 49, 1 << 60, 0)
    assert [number for _, number in drained(heap)] == [5, 4, 2, 1, 0, 3]


@given(STEPS)
def test_a_heap_is_a_sorted_dictionary(steps):
    heap, model = TimerHeap(), {}
    for step in steps:
        if step[0] == "set":
            heap.set(*step[1:])
            model[step[1]] = step[2:]
        elif step[0] == "move" and step[1] in model:
            heap.change_deadline(step[1], step[2])
            model[step[1]] = (step[2], *model[step[1]][1:])
        elif step[0] == "remove":
            heap.remove(step[1])
            model.pop(step[1], None)
        elif step[0] == "pop" and model:
            del model[heap.first()]
            heap.remove(heap.first())
        heap.check()
        assert heap.count == len(model)
        assert heap.first_deadline() == (min(model.values())[0] if model else -1)
        if model:
            assert model[heap.first()] == min(model.values())
    for number, values in model.items():
        assert heap.deadline_of(number) == values[0]
    assert [deadline for deadline, _ in drained(heap)] == sorted(values[0] for values in model.values())


def test_memory_follows_the_count():
    heap = TimerHeap()
    empty = heap.memory_bytes()
    for number in range(10_000):
        heap.set(number, 10_000 - number)
    full = heap.block_bytes()
    assert 10_000 * 32 <= full <= 2 * 10_000 * 32 + 100_000
    assert full <= heap.memory_bytes() - empty + 64
    for number in range(9_000):
        heap.remove(number)
    assert heap.block_bytes() < full / 2
    drained(heap)
    assert (heap.block_bytes(), heap.memory_bytes()) == (0, empty)


def test_a_queue_returns_objects_by_deadline_then_by_arrival():
    queue = TimerQueue()
    numbers = {
        name: queue.add(deadline, name) for name, deadline in (("a", 30), ("b", 10), ("c", 20), ("d", 20))
    }
    assert queue.first_due(9) is None and queue.next_deadline() == 10 and len(queue) == 4
    queue.change_deadline(numbers["a"], 20)
    order = []
    while len(queue):
        order.append(queue.first_due(20))
        queue.remove(numbers[order[-1]])
        queue.check()
    assert order == ["b", "a", "c", "d"] and queue.first_due(1 << 60) is None


@given(st.lists(st.one_of(st.integers(0, 20), st.none()), max_size=60))
def test_numbers_of_a_queue_are_reused(deadlines):
    queue, kept, most = TimerQueue(), {}, 0
    for serial, deadline in enumerate(deadlines):
        if deadline is None:
            if kept:
                number = min(kept)
                queue.remove(number)
                del kept[number]
        else:
            number = queue.add(deadline, serial)
            assert number not in kept and number <= most
            kept[number] = serial
            most = max(most, len(kept))
        queue.check()
        assert sorted(queue.all()) == sorted(kept.values())
