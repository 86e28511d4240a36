"""SLOWLOG, LATENCY, MONITOR and MEMORY's reports, as a client sees them."""

import pytest

PASSWORD = "open-sesame"


@pytest.fixture
def watched(talk):
    """Everything is slow, and client `m` watches."""
    settings = talk.engine.keyspace.settings
    settings.slowlog_log_slower_than = 0
    settings.latency_tracking = True
    talk.engine.timing.refresh()
    assert talk("MONITOR", client="m") == "OK"
    talk("SLOWLOG RESET")
    return talk


def lines(talk):
    """What the monitor was shown, without the moment."""
    told = talk.clients["m"].reply.take().decode()
    return [line.partition("] ")[2] for line in told.splitlines()]


def test_a_monitor_sees_what_is_carried_out(watched):
    watched("SET k v", client="b")
    watched("GET", client="b")  # refused
    watched("INCR k", client="b")  # refused by the command itself
    watched("CONFIG GET x")  # an administrator's
    watched.words("ECHO", 'a "b"\n\x07\x00\xff'.encode("latin-1"))
    shown = ['"SET" "k" "v"', '"INCR" "k"', r'"ECHO" "a \"b\"\n\a\x00\xff"']
    assert lines(watched) == shown


def test_a_monitors_line_says_when_where_and_who(watched):
    client = watched.engine.create_session(b"1.2.3.4:5", b"", 0)
    client.database = 3
    watched.engine.execute(client, [b"PING"], 1_234_567)
    assert watched.clients["m"].reply.take() == b'+1234.567000 [3 1.2.3.4:5] "PING"\r\n'


def test_a_monitor_sees_the_beginning_of_a_long_argument(watched):
    watched.words("SET", "k", "\x1b" * 3_000_000)
    [line] = lines(watched)
    assert line == '"SET" "k" "' + r"\x1b" * 65536 + '"'


def test_a_transaction_is_shown_as_it_runs(watched):
    for line in ("MULTI", "SET a 1", "INCR a", "EXEC"):
        watched(line)
    assert lines(watched) == ['"MULTI"', '"SET" "a" "1"', '"INCR" "a"', '"EXEC"']
    words = [request.words[0] for request in watched.engine.timing.slow_log.requests]
    assert words[:3] == [b"INCR", b"SET", b"MULTI"]  # EXEC itself is not slow, but what it runs


def test_a_monitor_sees_its_own_request_after_the_reply(watched):
    watched.say([b"MULTI"], "m")
    watched.say([b"PING"], "m")
    watched.clients["m"].reply.take()
    watched.say([b"EXEC"], "m")
    told = watched.clients["m"].reply.take()
    assert told.startswith(b"*1\r\n+PONG\r\n+") and told.count(b'"PING"') == 1


def test_it_is_over_after_reset_and_after_the_end(watched):
    assert watched("RESET", client="m") == "RESET"
    watched("PING")
    assert watched.clients["m"].reply.take() == b"" and not watched.engine.pubsub.monitors
    watched("MONITOR", client="m")
    assert " flags=O " in watched("CLIENT LIST")
    watched.engine.close(watched.clients["m"])
    assert not watched.engine.pubsub.monitors
    assert watched("PING") == "PONG"


def test_no_monitor_begins_inside_a_transaction(talk):
    talk("MULTI")
    talk("MONITOR")
    assert talk("EXEC") == ["-ERR MONITOR isn't allowed for DENY BLOCKING client"]


@pytest.mark.parametrize(
    "line",
    [
        "AUTH {}",
        "auth user {}",
        "AUTH a {} c",
        "HELLO 3 AUTH user {}",
        "HELLO 2 SETNAME x auth user {} SETNAME y",
        "HELLO 3 AUTH {}",
        "HELLO 9 AUTH user {}",
        "HELLO AUTH user {}",
        "CONFIG SET requirepass {}",
        "config set masterauth {}",
        "CONFIG SET timeout 0 requirepass {} timeout 0",
        "CONFIG SET REQUIREPASS {} nonsense",
        "CONFIG SET tls-key-file-pass {}",
        "ACL SETUSER bob >{}",
        "ACL DRYRUN default AUTH {}",
        "acl dryrun default HELLO 3 auth bob {}",
        "acl setuser bob on nopass >{} +@all",
    ],
)
@pytest.mark.parametrize("queued", [False, True])
def test_passwords_are_redacted(watched, line, queued):
    if queued:
        watched("MULTI")
    watched(line.format(PASSWORD))
    if queued:
        watched("EXEC")
    shown = watched.clients["m"].reply.take().decode() + str(watched("SLOWLOG GET -1"))
    assert PASSWORD not in shown


def test_what_is_no_password_is_shown(watched):
    watched("HELLO 2 AUTH default x SETNAME me")
    watched("CONFIG SET notify-keyspace-events KEA")
    assert lines(watched) == ['"HELLO" "2" "AUTH" "(redacted)" "(redacted)" "SETNAME" "me"']
    newest = watched("SLOWLOG GET 1")[0]
    assert newest[3] == ["CONFIG", "SET", "notify-keyspace-events", "KEA"]


def test_the_slow_log_is_read_from_its_new_end(watched):
    watched("CLIENT SETNAME me")
    for i in range(12):
        watched(f"ECHO {i}")
    entry = watched("SLOWLOG GET")[1]
    assert (entry[3], entry[1], entry[5]) == (["ECHO", "10"], 1, "me") and entry[2] >= 0
    assert len(watched("SLOWLOG GET")) == 10 and len(watched("SLOWLOG GET 3")) == 3
    assert watched("SLOWLOG GET 0") == []
    assert len(watched("SLOWLOG GET -1")) == watched("SLOWLOG LEN") - 1
    assert watched("SLOWLOG GET -2") == "-ERR count should be greater than or equal to -1"
    assert watched("SLOWLOG GET x") == "-ERR count should be greater than or equal to -1"
    assert watched("SLOWLOG RESET") == "OK"


def test_distributions_are_of_those_asked_for(watched):
    watched("PING")
    watched("CONFIG GET x")
    watched("CONFIG GET y")
    found = watched("LATENCY HISTOGRAM CONFIG nosuch ping")
    assert found[::2] == ["ping", "config|get"]
    facts = dict(zip(found[3][::2], found[3][1::2], strict=True))
    assert facts["calls"] == 2 and facts["histogram_usec"][-1] == 2
    assert watched("LATENCY HISTOGRAM config|get")[0] == "config|get"
    assert watched("LATENCY HISTOGRAM nosuch") == []
    watched("HELLO 3")
    assert watched("LATENCY HISTOGRAM ping")["ping"]["calls"] == 1


def test_memory_stats_add_up(talk):
    talk("SET a 1 EX 100")
    talk("HELLO 3")
    found = talk("MEMORY STATS")
    kept = found["db.0"]
    assert found["keys.count"] == 1 and kept["overhead.hashtable.expires"] > 0
    assert found["overhead.total"] == sum(kept.values()) > kept["overhead.hashtable.expires"]
    assert found["dataset.bytes"] + found["overhead.total"] == found["total.allocated"] < 500
    assert "Too little memory" in talk("MEMORY DOCTOR")
