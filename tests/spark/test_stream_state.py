"""The state of a stream: the number of its first entry, and how many entries were trimmed unread."""

from __future__ import annotations

from headrace.client.servers import Servers
from headrace.positions.stream_state import StreamState, count_trimmed_after, stream_states
from support.stream_server import StreamServer


def test_the_number_of_the_first_entry_is_known_unless_entries_were_deleted(
    stream_server: StreamServer,
) -> None:
    servers = Servers(stream_server.url)

    def first() -> int | None:
        return stream_states(servers, ["s"])["s"].first_number

    stream_server.fill("s", 100)
    assert first() == 1
    stream_server.client.xdel("s", "1000000-0")
    assert first() == 2
    stream_server.client.xtrim("s", maxlen=40, approximate=False)
    assert first() == 61
    stream_server.client.xdel("s", "1000090-0")
    assert first() is None
    stream_server.client.xtrim("s", maxlen=0, approximate=False)
    assert first() == 101
    seen = stream_states(servers, ["s"])["s"]
    assert (seen.last_id, seen.first_id, seen.length, seen.entries_added) == ("1000099-0", None, 0, 100)


def test_losses_are_counted_by_entry_numbers() -> None:
    now = StreamState("9-0", "5-0", 5, 9, "0-0")
    found = [count_trimmed_after("4-0", n, now) for n in (None, 0, 3, 4, 5, 9)]
    assert found == [None, 4, 1, 0, None, None]
    assert count_trimmed_after("4-0", 3, StreamState("9-0", "5-0", 5, None, None)) is None, (
        "an old server does not count"
    )


def test_entries_deleted_one_by_one_are_not_lost() -> None:
    assert count_trimmed_after("4-0", 4, StreamState("9-0", "5-0", 4, 9, "7-0")) == 0, (
        "the one that is missing was deleted"
    )
    assert count_trimmed_after("4-0", 4, StreamState("9-0", "6-0", 3, 9, "7-0")) is None, (
        "of two one may have been trimmed"
    )
    assert count_trimmed_after("4-0", 4, StreamState("9-0", "6-0", 4, 9, "4-0")) == 1, (
        "none was deleted after that ID"
    )
    assert count_trimmed_after("4-0", 4, StreamState("9-0", None, 0, 4, "4-0")) == 0
