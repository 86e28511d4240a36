"""The scripts of redis-py's Lock and of headrace trim: known however indented, without Lua."""

import hashlib
import sys

import pytest
from redis.lock import Lock

from headrace.commands.server.known_scripts import SCRIPTS_BY_DIGEST
from headrace.pipeline.trimming.trim_streams import TRIM_SCRIPT as TRIM

RELEASE, EXTEND, REACQUIRE = Lock.LUA_RELEASE_SCRIPT, Lock.LUA_EXTEND_SCRIPT, Lock.LUA_REACQUIRE_SCRIPT


def digest(script):
    return hashlib.sha1(script.encode()).hexdigest()


def loaded(talk, script):
    return talk.words("SCRIPT", "LOAD", script)


def test_the_scripts_known_are_those_of_the_redis_py_at_hand_and_of_our_own_trim():
    known = (RELEASE, EXTEND, REACQUIRE, TRIM)
    assert set(SCRIPTS_BY_DIGEST) == {digest(" ".join(script.split())) for script in known}


@pytest.mark.parametrize("script", [RELEASE, " ".join(RELEASE.split()), RELEASE.replace("\n", "\n\t")])
def test_a_script_is_found_by_the_digest_of_its_own_text(talk, script):
    assert talk(f"EVALSHA {digest(script)} 1 k t") == "-NOSCRIPT No matching script. Please use EVAL."
    assert loaded(talk, script) == digest(script)
    assert talk(f"SCRIPT EXISTS {digest(script)} {digest(script).upper()} 0") == [1, 1, 0]
    assert talk(f"EVALSHA {digest(script)} 1 k t") == 0
    assert talk("SCRIPT FLUSH") == "OK"
    assert talk(f"SCRIPT EXISTS {digest(script)}") == [0]


def test_release_removes_the_key_only_for_the_token_it_holds(talk):
    talk("SET k t PX 1000")
    talk.effects()
    assert talk.words("EVAL", RELEASE, "1", "k", "other") == 0
    assert talk("GET k") == "t"
    assert talk.words("EVAL", RELEASE, "1", "k", "t") == 1
    assert talk("GET k") is None
    assert talk.effects() == ["DEL k"]


def test_extend_adds_to_what_is_left_or_replaces_it(talk):
    sha = loaded(talk, EXTEND)
    talk("SET k t PX 1000")
    assert talk(f"EVALSHA {sha} 1 k t 500 0") == 1
    assert talk("PTTL k") == 1500
    assert talk(f"EVALSHA {sha} 1 k t 200 1") == 1
    assert talk("PTTL k") == 200
    assert talk(f"EVALSHA {sha} 1 k other 200 1") == 0
    talk("PERSIST k")
    assert talk(f"EVALSHA {sha} 1 k t 200 0") == 0
    assert talk("PTTL k") == -1


def test_reacquire_restarts_the_time_to_live_and_zero_ends_it(talk):
    sha = loaded(talk, REACQUIRE)
    talk("SET k t PX 1000")
    talk.effects()
    assert talk(f"EVALSHA {sha} 1 k t 3000") == 1
    assert talk("PTTL k") == 3000
    assert talk.effects() == ["PEXPIREAT k 4000"]
    assert talk(f"EVALSHA {sha} 1 k t 0") == 1
    assert talk("EXISTS k") == 0


@pytest.mark.parametrize("ms", [2**63 - 1, 2**63 - 1000])
def test_a_time_to_live_that_is_too_long_is_an_error_and_keeps_the_lock(talk, ms):
    talk("SET k t PX 1000")
    talk.effects()
    error = "-ERR invalid expire time in 'pexpire' command"
    assert talk.words("EVAL", EXTEND, "1", "k", "t", str(ms), "0").startswith(error)
    assert talk.words("EVAL", EXTEND, "1", "k", "t", str(ms), "1").startswith(error)
    assert talk.words("EVAL", REACQUIRE, "1", "k", "t", str(ms)).startswith(error)
    assert talk.effects() == []
    assert talk("PTTL k") == 1000
    assert talk.words("EVAL", EXTEND, "1", "k", "t", str(2**63 - 2001), "0") == 1
    assert talk("PEXPIRETIME k") == 2**63 - 1


def test_a_lock_is_given_back_inside_a_transaction(talk):
    sha = loaded(talk, RELEASE)
    for line in ("MULTI", "SET k t NX", f"EVALSHA {sha} 1 k t", "EXISTS k"):
        talk(line)
    assert talk("EXEC") == ["OK", 1, 0]


def test_trimming_spares_what_a_group_needs_and_asks_for_its_anchor(talk):
    for i in range(1, 7):
        talk(f"XADD s {i}-0 n {i}")
    talk("XGROUP CREATE s g 0")
    talk("XREADGROUP GROUP g c COUNT 3 STREAMS s >")
    talk("XACK s g 1-0 3-0")
    talk.effects()
    assert talk.words("EVAL", TRIM, "1", "s", "6-0", "9-0", "=", "100") == -1
    assert talk.words("EVAL", TRIM, "1", "gone", "6-0", "6-0", "=", "100") == -1
    assert talk.effects() == []
    assert talk.words("EVAL", TRIM, "1", "s", "6-0", "6-0", "=", "100") == 2
    assert [entry[0] for entry in talk("XRANGE s - +")] == ["2-0", "4-0", "5-0", "6-0"]
    assert talk.effects() == ["XTRIM s MINID = 6-0 ACKED"]


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("EVAL", RELEASE, "x"), "ERR value is not an integer or out of range"),
        (("EVAL", RELEASE, "-1"), "ERR Number of keys can't be negative"),
        (("EVAL", RELEASE, "2", "k"), "ERR Number of keys can't be greater than number of args"),
        (("SCRIPT", "FLUSH", "NOW"), "ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
        (("EVAL", RELEASE, "1", "stream", "t"), "WRONGTYPE"),
    ],
)
def test_what_is_refused(talk, words, refusal):
    talk("XADD stream 1-1 f v")
    assert talk.words(*words).startswith("-" + refusal)


def test_any_other_script_says_how_to_install_lua(talk, monkeypatch):
    monkeypatch.setitem(sys.modules, "lupa", None)
    advice = "-ERR scripts need the package lupa: pip install lupa"
    assert talk.words("EVAL", "return 1", "0") == advice
    assert talk.words("SCRIPT", "LOAD", "return 1") == advice
    assert talk.words("EVAL", RELEASE, "0", "t") == advice
    assert talk.words("EVAL", RELEASE, "1", "k", "t") == 0


def test_a_known_script_needs_permission_for_its_key(talk):
    talk("SET lock token")
    talk("ACL SETUSER eve on nopass (+eval ~lock) (+get +del ~other)")
    talk("AUTH eve x", client="e")
    assert talk.words("EVAL", RELEASE, "1", "lock", "token", client="e").startswith("-NOPERM")
    assert talk("EXISTS lock") == 1
    talk("ACL SETUSER eve (+get +del ~lock)")
    assert talk.words("EVAL", RELEASE, "1", "lock", "token", client="e") == 1
