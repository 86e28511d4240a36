"""Which events the stream commands of Redis 8.2 and later make, and which make none."""

import pytest

from headrace.resp.reply_parser import INCOMPLETE, ReplyParser


@pytest.fixture
def events(talk):
    """events("XADD s 1-1 f v"): the keyspace events of the request."""
    talk("CONFIG SET notify-keyspace-events EAnoc")
    talk("HELLO 3", client="listener")
    talk.say(["PSUBSCRIBE", "__keyevent@0__:*"], "listener")
    talk.clients["listener"].reply.take()

    def of(line):
        assert not str(talk(line)).startswith("-"), line
        parser = ReplyParser()
        parser.feed(talk.clients["listener"].reply.take())
        told = []
        while (message := parser.next()) is not INCOMPLETE:
            told.append(f"{message[2].decode().partition(':')[2]} {message[3].decode()}")
        return told

    return of


@pytest.fixture
def pending(events):
    """Entries 1-1 to 4-1; group g has delivered the first three to c, group h nothing."""
    for line in ("XGROUP CREATE s g 0 MKSTREAM", "XGROUP CREATE s h 0"):
        events(line)
    for n in range(1, 5):
        events(f"XADD s {n}-1 f v")
    events("XREADGROUP GROUP g c COUNT 3 STREAMS s >")
    return events


def test_deleting_by_policy_tells_once_if_anything_went(pending):
    assert pending("XDELEX s ACKED IDS 1 1-1") == []
    assert pending("XDELEX s KEEPREF IDS 2 1-1 2-1") == ["xdel s"]
    assert pending("XDELEX s KEEPREF IDS 1 9-9") == []
    assert pending("XDELEX s DELREF IDS 1 3-1") == ["xdel s"]


def test_acknowledging_and_deleting_tells_only_of_the_deletion(pending):
    assert pending("XACKDEL s g ACKED IDS 1 1-1") == []
    assert pending("XACKDEL s g KEEPREF IDS 2 2-1 3-1") == ["xdel s"]
    assert pending("XACKDEL s g KEEPREF IDS 1 4-1") == []


def test_giving_back_and_remembering_are_no_events(pending):
    assert pending("XNACK s g FAIL IDS 1 1-1") == []
    assert pending("XCFGSET s IDMP-DURATION 10") == []
    assert pending("XREADGROUP GROUP g d CLAIM 0 STREAMS s >") == ["xgroup-createconsumer s"]
    assert pending("XREADGROUP GROUP g d CLAIM 0 STREAMS s >") == []


def test_a_duplicate_is_no_event_and_trims_nothing(events):
    assert events("XADD s IDMP p i * f v") == ["new s", "xadd s"]
    assert events("XADD s 2000-1 f v") == ["xadd s"]
    assert events("XADD s IDMP p i MAXLEN 1 * f v") == []


def test_trimming_by_policy_tells_when_something_went(pending):
    assert pending("XTRIM s MAXLEN 0 ACKED") == []
    assert pending("XADD s MAXLEN = 1 DELREF 9-1 f v") == ["xadd s", "xtrim s"]


def test_a_consumer_is_made_by_the_read_that_finds_nothing_for_it(events):
    events("XGROUP CREATE s g $ MKSTREAM")
    assert events("XREADGROUP GROUP g c STREAMS s >") == ["xgroup-createconsumer s"]
    assert events("XCLAIM s g d 0 1-1") == ["xgroup-createconsumer s"]
    assert events("XAUTOCLAIM s g e 0 0") == ["xgroup-createconsumer s"]


def test_what_takes_a_streams_place_tells_that_it_was_overwritten_and_of_what(events):
    events("XADD s 1-1 f v")
    assert events("SET s v") == ["overwritten s", "type_changed s", "set s"]
    assert events("SET s w") == ["overwritten s", "set s"]
    events("XADD t 1-1 f v")
    assert events("RENAME t s") == [
        "new s",
        "rename_from t",
        "rename_to s",
        "overwritten s",
        "type_changed s",
    ]
    events("SET k v")
    assert events("COPY s k REPLACE") == ["new k", "copy_to k", "overwritten k", "type_changed k"]
