"""Keyspace notifications: enabled classes, names of events, and the letters of the setting."""

import pytest

from headrace.keyspace.events import (
    ALL_CLASS_LETTERS,
    CLASS_BITS,
    KeyspaceNotifier,
    format_classes,
    parse_classes,
)
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.settings import Settings


@pytest.fixture
def told():
    """Turn letters on; what is published from then on."""
    keyspace = Keyspace()
    heard = []
    keyspace.notifier.publish = lambda channel, message: heard.append((channel, message))

    def begin(letters):
        keyspace.settings.notify_keyspace_events = parse_classes(letters)
        return keyspace, heard

    return begin


def test_an_event_goes_to_the_channel_of_its_key_and_to_that_of_its_name(told):
    keyspace, heard = told("KEg")
    keyspace.notifier.notify("g", b"del", b"k\x00", 3)
    assert heard == [(b"__keyspace@3__:k\x00", b"del"), (b"__keyevent@3__:del", b"k\x00")]


@pytest.mark.parametrize(
    ("letters", "channels"), [("Kg", [b"__keyspace@0__:k"]), ("Eg", [b"__keyevent@0__:del"]), ("g", [])]
)
def test_without_k_or_e_there_is_nowhere_to_go(told, letters, channels):
    keyspace, heard = told(letters)
    keyspace.notifier.notify("g", b"del", b"k", 0)
    assert [channel for channel, _ in heard] == channels


def test_disabled_event_classes_are_not_published(told):
    keyspace, heard = told("KE$")
    keyspace.notifier.notify("g", b"del", b"k", 0)
    keyspace.notifier.notify("n", b"new", b"k", 0)
    assert heard == []


def test_no_event_is_formatted_without_subscribers():
    settings = Settings()
    settings.notify_keyspace_events = parse_classes("KEA")
    notifier = KeyspaceNotifier(settings)
    assert notifier.publish is None
    notifier.notify("g", b"del", b"k", 0)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("", ""),
        ("KEA", "AKE"),
        ("KEg$lshzxetd", "AKE"),
        ("AKEnm", "AKEm"),
        ("tnE", "tnE"),
        ("Kn", "nK"),
        ("mnEK", "nKEm"),
        ("mKx", "xKm"),
        ("co$K", "$ocK"),
        ("VITSg", "gSTIV"),
        ("ggg", "g"),
    ],
)
def test_the_letters_are_shown_in_one_order(said, shown):
    assert format_classes(parse_classes(said)) == shown


def test_a_letter_of_no_class_is_refused_with_those_there_are():
    for wrong in ("q", "KEA ", "k", "KE\x00"):
        with pytest.raises(ValueError, match=r"Invalid event class character\. Use 'Ag\$lshzxeKEtmdn"):
            parse_classes(wrong)


def test_every_class_has_a_bit_of_its_own():
    assert len(set(CLASS_BITS.values())) == len(CLASS_BITS)
    assert parse_classes("A") == sum(CLASS_BITS[letter] for letter in ALL_CLASS_LETTERS)


def test_a_key_that_is_stored_is_new_or_overwritten_and_perhaps_of_another_type(told):
    keyspace, heard = told("Enoc")
    database = keyspace.databases[1]
    database.put(b"k", b"1")
    database.put(b"k", b"2")
    database.put(b"k", bytearray(b"3"))
    from_stream = [channel for channel, _ in heard]
    assert from_stream == [
        b"__keyevent@1__:new",
        b"__keyevent@1__:overwritten",
        b"__keyevent@1__:overwritten",
    ]


def test_an_expiry_is_published_when_the_key_is_found_expired(told):
    keyspace, heard = told("Exmn")
    database = keyspace.databases[0]
    database.put(b"k", b"1")
    database.set_expiry(b"k", 10)
    keyspace.now = 10
    keyspace.counts_lookups = True
    assert database.find(b"k") is None
    assert [channel.partition(b":")[2] for channel, _ in heard] == [b"new", b"expired", b"keymiss"]


def test_storing_over_an_expired_key_is_an_expiry_and_a_new_key(told):
    keyspace, heard = told("Exno")
    database = keyspace.databases[0]
    database.put(b"k", b"1")
    database.set_expiry(b"k", 10)
    keyspace.now = 11
    database.put(b"k", b"2")
    assert [channel.partition(b":")[2] for channel, _ in heard] == [b"new", b"expired", b"new"]
