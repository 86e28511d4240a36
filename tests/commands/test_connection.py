import pytest

# What Redis 7.0 answers to the same words stands beside it in tests/conformance; here is the rest.


def test_hello_changes_the_protocol_of_its_own_answer(talk):
    assert talk.raw("HELLO 3").startswith(b"%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n")
    assert talk.raw("GET none") == b"_\r\n"
    assert talk.raw("HELLO").startswith(b"%7\r\n")
    assert talk.raw("HELLO 2").startswith(b"*14\r\n")
    assert talk.raw("GET none") == b"$-1\r\n"


def test_a_refused_hello_changes_nothing(talk):
    assert talk("HELLO 3 SETNAME me NOSUCH x") == "-ERR Syntax error in HELLO option 'NOSUCH'"
    assert talk("CLIENT GETNAME") is None
    assert talk.raw("GET none") == b"$-1\r\n"


def test_quit_answers_and_then_closes(talk):
    assert talk("QUIT") == "OK"
    assert talk.clients["a"].closing


def test_reset_makes_the_connection_as_new(talk):
    for line in ("HELLO 3", "CLIENT SETNAME me", "CLIENT NO-EVICT on", "SELECT 3", "MULTI", "PING"):
        talk.raw(line)
    assert talk("RESET") == "RESET"
    session = talk.clients["a"]
    assert (session.database, session.name, session.queue, session.no_evict) == (0, b"", None, False)
    assert talk.raw("GET none") == b"$-1\r\n"


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("CLIENT SETINFO lib-name redis-py", "OK"),
        ("client setinfo LIB-VER 8.1.0", "OK"),
        ("CLIENT SETINFO lib-foo x", "-ERR Unrecognized option 'lib-foo'"),
        ("CLIENT SETINFO lib-name", "-ERR wrong number of arguments for 'client|setinfo' command"),
    ],
)
def test_libraries_introduce_themselves(talk, line, reply):
    assert talk(line) == reply


def test_a_library_may_not_garble_the_list(talk):
    refusal = "-ERR lib-name cannot contain spaces, newlines or special characters."
    assert talk.words("CLIENT", "SETINFO", "lib-name", "a b") == refusal
    assert talk.words("CLIENT", "SETINFO", "lib-name", b"a\nb") == refusal


def fields(line):
    return dict(field.split("=", 1) for field in line.split())


def test_a_client_is_described_by_what_it_does(talk):
    talk("CLIENT SETNAME worker")
    talk("CLIENT SETINFO LIB-NAME redis-py")
    talk("CLIENT SETINFO LIB-VER 8.1.0")
    talk("SELECT 3")
    talk("WATCH a b")
    talk("MULTI")
    talk("PING")
    talk.now += 5500
    described = fields(talk("CLIENT LIST", client="b").splitlines()[0])
    assert described["id"] == "1" and described["name"] == "worker" and described["db"] == "3"
    assert described["multi"] == "1" and described["watch"] == "2" and described["flags"] == "x"
    assert described["idle"] == "5" and described["cmd"] == "ping" and described["resp"] == "2"
    assert described["lib-name"] == "redis-py" and described["lib-ver"] == "8.1.0"
    assert described["io-thread"] == "0"


def test_a_blocked_client_is_shown_as_one(talk):
    assert talk("XREAD BLOCK 0 STREAMS s $") == "(waits)"
    described = fields(talk("CLIENT LIST ID 1", client="b"))
    assert described["flags"] == "b" and described["cmd"] == "xread"


def test_the_list_can_be_of_some(talk):
    for name in "abc":
        talk("PING", client=name)
    assert [fields(line)["id"] for line in talk("CLIENT LIST ID 3 1 77").splitlines()] == ["3", "1"]
    assert len(talk("CLIENT LIST TYPE normal").splitlines()) == 3
    assert fields(talk("CLIENT INFO", client="b"))["id"] == "2"


def test_kill_by_options_spares_the_caller_unless_skipme_is_no(talk):
    for name in "abc":
        talk("PING", client=name)
    a, b, c = (talk.clients[name] for name in "abc")
    assert talk("CLIENT KILL TYPE normal") == 2
    assert talk.engine.killed_sessions == [b, c] and b.killed and c.killed and not a.closing
    assert talk("CLIENT KILL ID 1") == 0
    assert talk("CLIENT KILL ID 1 SKIPME no") == 1
    assert a.closing and not a.killed


def test_kill_by_address_and_age(talk):
    engine = talk.engine
    for number in range(3):
        talk.clients[f"c{number}"] = engine.create_session(
            b"10.0.0.%d:5" % number, b"here:6379", number * 1000
        )
    talk.now = 3000
    assert talk("CLIENT KILL 10.0.0.0:5") == "OK"
    assert talk("CLIENT KILL 10.0.0.9:5") == "-ERR No such client"
    assert talk("CLIENT KILL ADDR 10.0.0.1:5 LADDR elsewhere:1") == 0
    assert talk("CLIENT KILL ADDR 10.0.0.1:5 LADDR here:6379") == 1
    assert talk("CLIENT KILL MAXAGE 2 ADDR 10.0.0.2:5") == 0
    assert talk("CLIENT KILL MAXAGE 1 ADDR 10.0.0.2:5") == 1
    assert talk("CLIENT KILL MAXAGE x") == "-ERR maxage is not an integer or out of range"
    assert talk("CLIENT KILL MAXAGE 0") == "-ERR maxage should be greater than 0"


def test_a_killed_waiter_waits_no_more(talk):
    talk("XREAD BLOCK 0 STREAMS s $")
    assert talk("CLIENT KILL ID 1", client="b") == 1
    assert talk.engine.keyspace.blocking.count == 0
    talk("XADD s * f v", client="b")
    assert talk.engine.woken_sessions == []


def test_no_touch_and_help(talk):
    assert talk("CLIENT NO-TOUCH on") == "OK"
    assert "CLIENT <subcommand>" in talk("CLIENT HELP")[0]
    assert talk("CLIENT HELP")[-2] == "HELP"


@pytest.mark.parametrize("line", ["CLIENT PAUSE ?", "WAIT 1 ?", "WAITAOF 0 1 ?", "XREAD BLOCK ? STREAMS s $"])
@pytest.mark.parametrize(
    ("timeout", "complaint"),
    [
        ("9223372036854775808", "not an integer or out of range"),
        ("9223372036854775807", "out of range"),
        ("9223372036854774808", "out of range"),
        ("-1", "negative"),
    ],
)
def test_a_time_to_wait_is_refused_in_the_same_words_everywhere(talk, line, timeout, complaint):
    assert talk(line.replace("?", timeout)) == f"-ERR timeout is {complaint}"


def test_the_longest_time_to_wait_ends_with_the_clock(talk):
    assert talk("CLIENT PAUSE 9223372036854774807") == "OK"
