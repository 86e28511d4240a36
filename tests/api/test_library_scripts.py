"""redis-py's register_script on the engine of this process."""

import os
import subprocess
import sys

import pytest
import redis

import headrace
from headrace.engine import script_runner

pytest.importorskip("lupa.luajit21")


def test_a_registered_script_runs_in_the_library():
    with headrace.open() as db, db.client() as client:
        add = client.register_script("return redis.call('XADD', KEYS[1], '*', 'n', ARGV[1])")
        add(keys=["s"], args=[1])
        add(keys=["s"], args=[2])
        assert [fields[b"n"] for _, fields in client.xrange("s")] == [b"1", b"2"]
        assert len(db.stream("s")) == 2


def test_a_script_without_end_is_ended_in_the_library():
    with headrace.open() as db, db.client() as client:
        client.config_set("busy-reply-threshold", 30)
        with pytest.raises(redis.exceptions.ResponseError, match="the script was ended after"):
            client.eval("while true do end", 0)
        assert client.eval("return 1", 0) == 1


def test_a_durable_script_is_one_transaction(tmp_path):
    with headrace.open(tmp_path / "d") as db, db.client() as client:
        client.eval("redis.call('SET', 'a', 1) redis.call('SET', 'b', 2)", 0)
    with headrace.open(tmp_path / "d") as db, db.client() as client:
        assert client.mget("a", "b") == [b"1", b"2"]


@pytest.mark.skipif(
    not script_runner.__file__.endswith(".so"),
    reason="interpreted, Lua reports the signal as an error of the script",
)
@pytest.mark.parametrize("threshold", ["0", "5000"])
def test_ctrl_c_ends_a_script_of_a_program(threshold):
    """Compiled modules run no bytecode, so they must ask for signals."""
    program = (
        "import headrace, os, signal, threading\n"
        "with headrace.open() as db, db.client() as client:\n"
        f"    client.config_set('busy-reply-threshold', '{threshold}')\n"
        "    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    try:\n"
        "        client.eval('while true do end', 0)\n"
        "    except BaseException as error:\n"
        "        print(type(error).__name__)\n"
        "    print(client.eval('return 1', 0))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.stdout == "KeyboardInterrupt\n1\n", done.stderr


def test_a_program_may_leave_any_number_of_messages_unread():
    """No event loop disconnects its clients, so no limit may drop what they have not read."""
    with headrace.open() as db, db.client() as client:
        subscriber = client.pubsub()
        subscriber.subscribe("c")
        assert subscriber.get_message(timeout=10)["type"] == "subscribe"
        for _ in range(270):  # more than REPLY_BYTES_MAX together
            client.publish("c", b"x" * 1_000_000)
        for _ in range(270):
            assert len(subscriber.get_message(timeout=10)["data"]) == 1_000_000
