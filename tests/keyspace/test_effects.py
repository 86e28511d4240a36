from headrace.keyspace.effects import Effects


def test_nothing_is_kept_while_recording_is_off():
    effects = Effects()
    effects.record(0, [b"SET", b"k", b"v"])
    assert effects.take() == []


def test_effects_are_taken_once_and_in_order():
    effects = Effects()
    effects.recording = True
    effects.record(0, [b"A"])
    effects.record(3, [b"B"])
    assert effects.take() == [(0, [b"A"]), (3, [b"B"])]
    assert effects.take() == []


def test_several_effects_of_one_transaction_are_wrapped():
    effects = Effects()
    effects.recording = True
    effects.record(0, [b"BEFORE"])
    effects.begin_transaction()
    effects.record(1, [b"A"])
    effects.record(2, [b"B"])
    effects.end_transaction()
    effects.begin_transaction()
    effects.record(1, [b"ALONE"])
    effects.end_transaction()
    assert [words[0] for _, words in effects.take()] == [b"BEFORE", b"MULTI", b"A", b"B", b"EXEC", b"ALONE"]


def test_a_command_of_several_effects_is_a_transaction_of_its_own():
    effects = Effects()
    effects.recording = True
    effects.record(0, [b"BEFORE"])
    for words in ([b"ALONE"], [b"A", b"B"]):
        start = effects.next_index()
        for word in words:
            effects.record(0, [word])
        effects.make_atomic(start)
    assert [words[0] for _, words in effects.take()] == [b"BEFORE", b"ALONE", b"MULTI", b"A", b"B", b"EXEC"]


def test_inside_of_a_transaction_it_is_part_of_that():
    effects = Effects()
    effects.recording = True
    effects.begin_transaction()
    effects.record(0, [b"A"])
    start = effects.next_index()
    effects.record(0, [b"B"])
    effects.record(0, [b"C"])
    effects.make_atomic(start)
    effects.end_transaction()
    assert [words[0] for _, words in effects.take()] == [b"MULTI", b"A", b"B", b"C", b"EXEC"]
