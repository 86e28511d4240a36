"""A script that runs too long: other clients get BUSY, and can end it unless it has written."""

import pytest
import redis

from support.headrace_server import headrace_server
from support.speaking import Client, encoded
from support.waiting import wait_until

pytest.importorskip("lupa.luajit21")

BUSY = "Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."


@pytest.fixture
def port():
    with headrace_server(None, "--busy-reply-threshold", "20") as port:
        yield port


def sender(port, *words):
    """A client that has sent a request and has not read the reply."""
    connection = redis.Connection(port=port, protocol=2)
    connection.connect()
    connection.send_command(*words)
    return connection


def until_busy(client):
    def is_busy():
        try:
            client.ping()
        except redis.exceptions.ResponseError as error:
            return str(error).endswith(BUSY)
        return False

    wait_until(is_busy, "the script is not slow")


@pytest.mark.parametrize(
    "script", ["while true do end", "while true do pcall(function() while true do end end) end"]
)
def test_a_slow_script_is_ended_by_script_kill(port, script):
    slow = sender(port, "EVAL", script, 0)
    with redis.Redis(port=port) as other:
        until_busy(other)
        with pytest.raises(redis.exceptions.ResponseError, match="BUSY"):
            other.get("k")
        with redis.Redis(port=port) as new:
            assert new.script_kill()
        with pytest.raises(redis.exceptions.ResponseError, match="Script killed by user with SCRIPT KILL"):
            slow.read_response()
        assert other.set("k", "v")
    slow.disconnect()


def test_a_slow_function_is_ended_by_function_kill(port):
    library = "#!lua name=l\nredis.register_function('f', function() while true do end end)"
    with redis.Redis(port=port) as other:
        other.function_load(library)
        slow = sender(port, "FCALL", "f", 0)
        wait_until(lambda: is_function_running(other), "the function does not run")
        assert other.execute_command("FUNCTION", "KILL") == b"OK"
        with pytest.raises(redis.exceptions.ResponseError, match="script: f, on @user_function:2"):
            slow.read_response()
    slow.disconnect()


def is_function_running(client):
    try:
        client.ping()
    except redis.exceptions.ResponseError as error:
        return "FUNCTION KILL" in str(error)
    return False


def test_a_script_that_has_written_is_not_ended_but_by_a_shutdown_without_its_effects(tmp_path):
    options = ("--appendonly", "yes", "--busy-reply-threshold", "20")
    with headrace_server(tmp_path, *options) as port, redis.Redis(port=port) as other:
        other.set("before", "1")
        slow = sender(port, "EVAL", "redis.call('set','k','v') while true do end", 0)
        until_busy(other)
        with pytest.raises(redis.exceptions.ResponseError, match="UNKILLABLE"):
            other.script_kill()
        with pytest.raises(redis.exceptions.ResponseError, match="BUSY"):
            other.execute_command("SHUTDOWN")
        other.shutdown(nosave=True)
        slow.disconnect()
    with headrace_server(tmp_path, *options) as port, redis.Redis(port=port) as client:
        assert client.get("before") == b"1"
        assert client.get("k") is None


def test_clients_that_cache_keys_are_informed_after_a_slow_script(port):
    slow = sender(port, "EVAL", "while true do end", 0)
    with Client.to(port) as cached, redis.Redis(port=port) as other:
        until_busy(other)
        other.script_kill()
        for line in ("HELLO 3", "CLIENT TRACKING ON", "GET k"):
            cached.ask(line)
        other.set("k", "v")
        assert cached.reply() == [b"invalidate", [b"k"]]
    slow.disconnect()


def test_blocked_clients_are_not_served_in_the_middle_of_a_script(port):
    """The script is slow between its two entries; a client that waits for the stream gets both at once."""
    script = """
    redis.call('xadd', 's', '1-1', 'a', 'b')
    for i = 1, 5e6 do local _ = i end
    redis.call('xadd', 's', '1-2', 'a', 'b')
    """
    waiting = sender(port, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    with redis.Redis(port=port) as other:
        wait_until(lambda: other.info("clients")["blocked_clients"] == 1, "nobody waits")
        slow = sender(port, "EVAL", script, 0)
        assert slow.read_response() is None
    assert [ident for ident, _ in waiting.read_response()[0][1]] == [b"1-1", b"1-2"]
    slow.disconnect()
    waiting.disconnect()


SLOW_AFTER_MESSAGES = (
    "for i = 1, 1500 do redis.call('SET', 'k' .. i, 1) redis.call('PUBLISH', 'c', 'x') end "
    "for i = 1, 2e8 do end return 'end'"
)


def test_a_slow_script_s_client_gets_nothing_in_the_middle_of_its_request(port):
    """It tracks all keys, and its reply is muted: nothing may be sent before that is decided."""
    with Client.to(port) as slow, Client.to(port) as listener, redis.Redis(port=port) as other:
        listener.ask("SUBSCRIBE c")
        slow.ask("HELLO 3")
        slow.ask("CLIENT TRACKING ON BCAST")
        slow.send(
            encoded("PING")
            + encoded("CLIENT", "REPLY", "SKIP")
            + encoded("EVAL", SLOW_AFTER_MESSAGES, 0)
            + encoded("ECHO", "after")
        )
        until_busy(other)
        assert slow.reply() == "PONG"
        found = [slow.reply(), slow.reply()]
        assert b"after" in found
        [invalidation] = [one for one in found if one != b"after"]
        assert invalidation[0] == b"invalidate" and len(invalidation[1]) == 1500
        assert other.ping()


def test_the_reply_of_a_transaction_with_a_slow_script_is_whole(port):
    with Client.to(port) as slow, Client.to(port) as listener, redis.Redis(port=port) as other:
        listener.ask("SUBSCRIBE c")
        slow.ask("HELLO 3")
        slow.ask("CLIENT TRACKING ON BCAST")
        slow.ask("MULTI")
        slow.ask("SET other 1")
        slow.request("EVAL", SLOW_AFTER_MESSAGES, 0)
        slow.send(encoded("EXEC"))
        until_busy(other)
        assert slow.reply() == ["OK", b"end"]
        assert slow.reply()[0] == b"invalidate"


def test_a_change_is_not_confirmed_before_it_is_in_the_log(tmp_path):
    """The client of the slow script has sent it after a SET, and a message has woken it."""
    log = ("--busy-reply-threshold", "20", "--appendonly", "yes", "--appendfsync", "always")
    with headrace_server(tmp_path, *log) as port, Client.to(port) as slow, redis.Redis(port=port) as other:
        slow.ask("HELLO 3")
        slow.ask("SUBSCRIBE c")
        slow.send(
            encoded("SET", "a", 1) + encoded("PUBLISH", "c", "x") + encoded("EVAL", "while true do end", 0)
        )
        until_busy(other)
        slow.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            slow.sock.recv(1)
        other.script_kill()
        slow.sock.settimeout(20)
        assert slow.reply() == "OK"
