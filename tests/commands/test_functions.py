"""Libraries of functions: what they store, replicate and log. Replies: tests/conformance."""

import io

import pytest

from headrace.engine.replaying import Replayer
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.aof.rewrite import commands_of
from headrace.persistence.rdb import versions
from headrace.persistence.rdb.reader import read_rdb
from headrace.persistence.rdb.writer import write_rdb
from support.engine_talk import Talk

pytest.importorskip("lupa.luajit21")

LIBRARY = "#!lua name=mylib\nredis.register_function('f', function(keys, args) return args[1] end)"
OTHER = "#!lua name=other\nredis.register_function('g', function() return 'g' end)"


def test_changes_of_libraries_are_effects(talk):
    talk.words("FUNCTION", "LOAD", LIBRARY)
    talk.words("FUNCTION", "LOAD", LIBRARY)
    talk.words("FUNCTION", "DELETE", "none")
    assert talk.effects() == [f"FUNCTION LOAD {LIBRARY}"]
    talk("FUNCTION DELETE mylib")
    talk("FUNCTION FLUSH")
    assert talk.effects() == ["FUNCTION DELETE mylib", "FUNCTION FLUSH"]


def test_a_snapshot_contains_the_libraries(talk):
    talk.words("FUNCTION", "LOAD", LIBRARY)
    talk.words("FUNCTION", "LOAD", OTHER)
    file = io.BytesIO()
    write_rdb(talk.engine.keyspace, file.write, version=versions.by_name("compatible"), now_ms=1)
    loaded = Keyspace()
    result = read_rdb(io.BytesIO(file.getvalue()), loaded, now_ms=1)
    assert loaded.libraries == {b"mylib": LIBRARY.encode(), b"other": OTHER.encode()}
    assert (result.library_count, result.skipped_library_count) == (2, 0)
    copy = Talk()
    copy.engine.keyspace.replace_databases(loaded)
    assert copy.words("FCALL", "f", "0", "x") == "x"


def test_a_rewritten_log_contains_the_libraries(talk):
    talk.words("FUNCTION", "LOAD", LIBRARY)
    commands = list(commands_of(talk.engine.keyspace, 1))
    copy = Talk()
    copy.engine.set_effect_recording(False)
    replayer = Replayer(copy.engine, 1)
    for _, words in commands:
        assert replayer.replay(words) is None
    assert copy.words("FCALL", "F", "0", "x") == "x"


def test_a_primary_s_libraries_are_replaced_here(talk):
    talk.words("FUNCTION", "LOAD", LIBRARY)
    assert talk.words("FCALL", "f", "0", "x") == "x"
    newer = LIBRARY.replace("return args[1]", "return 'new'")
    replayer = Replayer(talk.engine, 1, True)
    replayer.replay([b"FUNCTION", b"LOAD", b"REPLACE", newer.encode()])
    assert talk.words("FCALL", "f", "0", "x") == "new"
    replayer.replay([b"FUNCTION", b"FLUSH"])
    assert talk.words("FCALL", "f", "0", "x") == "-ERR Function not found"


def test_a_dump_restores_all_libraries_or_none(talk):
    talk.words("FUNCTION", "LOAD", LIBRARY)
    session = talk.engine.create_session()
    talk.engine.execute(session, [b"FUNCTION", b"DUMP"], 1)
    payload = session.reply.take().split(b"\r\n", 1)[1][:-2]
    talk.words("FUNCTION", "LOAD", OTHER)
    assert talk.words("FUNCTION", "RESTORE", payload) == "-ERR Library mylib already exists"
    assert talk.words("FUNCTION", "RESTORE", payload, "REPLACE") == "OK"
    assert talk.words("FUNCTION", "RESTORE", payload, "FLUSH") == "OK"
    assert list(talk.engine.keyspace.libraries) == [b"mylib"]
    assert talk.words("FCALL", "g", "0") == "-ERR Function not found"
    assert talk.words("FUNCTION", "RESTORE", payload[:-1] + b"x") == (
        "-ERR DUMP payload version or checksum are wrong"
    )


def test_a_replacement_that_cannot_be_loaded_keeps_the_old_library(talk):
    talk.words("FUNCTION", "LOAD", LIBRARY)
    reply = talk.words("FUNCTION", "LOAD", "REPLACE", "#!lua name=mylib\nerror")
    assert reply.startswith("-ERR Error ")
    assert talk.words("FCALL", "f", "0", "x") == "x"


def test_a_library_that_loads_without_end_is_rejected(talk):
    reply = talk.words("FUNCTION", "LOAD", "#!lua name=mylib\nwhile true do end")
    assert reply == "-ERR Error registering functions: ERR FUNCTION LOAD timeout"
    assert talk("FUNCTION LIST") == []


def test_functions_keep_their_state_between_calls(talk):
    counter = "#!lua name=n\nlocal n = 0 redis.register_function('n', function() n = n + 1 return n end)"
    talk.words("FUNCTION", "LOAD", counter)
    assert [talk("FCALL n 0"), talk("FCALL n 0")] == [1, 2]
    talk("SCRIPT FLUSH")
    assert talk("FCALL n 0") == 1


def test_info_counts_scripts_and_libraries(talk):
    talk.words("EVAL", "return 1", "0")
    talk.words("FUNCTION", "LOAD", LIBRARY)
    lines = talk("INFO memory").split("\r\n")
    for line in ("number_of_cached_scripts:1", "number_of_libraries:1", "number_of_functions:1"):
        assert line in lines


def test_a_script_that_asks_for_the_number_of_functions_loads_no_library(talk):
    talk.words("FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 1 end)")
    talk("SCRIPT FLUSH")
    assert talk.words("EVAL", "redis.call('info', 'memory') return redis.call('ping')", "0") == "PONG"
    assert "number_of_functions:1" in talk("INFO memory")


BAD = "#!lua name=bad\nredis.register_function('h', nosuch)"


def test_a_stored_library_that_cannot_be_loaded_leaves_the_others_usable(talk, caplog):
    """A file of redis-server may have such a library; FUNCTION LOAD rejects it."""
    stored = talk.engine.keyspace.libraries
    stored.update({b"mylib": LIBRARY.encode(), b"bad": BAD.encode(), b"other": OTHER.encode()})
    assert talk.words("FCALL", "f", "0", "x") == "x"
    assert talk.words("FCALL", "g", "0") == "g"
    missing = talk.words("FCALL", "h", "0")
    assert "not found" in str(missing) and "library bad: " in str(missing)
    assert sum("library bad cannot be loaded" in record.getMessage() for record in caplog.records) == 1
    listed = talk.words("FUNCTION", "LIST")
    assert [(one[1], len(one[5])) for one in listed] == [("mylib", 1), ("bad", 0), ("other", 1)]


def test_a_library_that_could_not_be_loaded_is_replaced_or_deleted(talk):
    stored = talk.engine.keyspace.libraries
    stored[b"bad"] = BAD.encode()
    assert "library bad: " in str(talk.words("FCALL", "h", "0"))
    good = "#!lua name=bad\nredis.register_function('h', function() return 'h' end)"
    assert talk.words("FUNCTION", "LOAD", "REPLACE", good) == "bad"
    assert talk.words("FCALL", "h", "0") == "h"
    stored[b"bad"] = BAD.encode()
    assert "library bad: " in str(talk.words("FCALL", "h", "0"))
    talk("FUNCTION DELETE bad")
    assert str(talk.words("FCALL", "h", "0")).endswith("ERR Function not found")


def test_a_library_that_breaks_lua_leaves_the_others_usable(talk):
    greedy = "#!lua name=greedy\nlocal t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end"
    stored = talk.engine.keyspace.libraries
    stored.update({b"mylib": LIBRARY.encode(), b"greedy": greedy.encode(), b"other": OTHER.encode()})
    assert talk.words("FCALL", "f", "0", "x") == "x"
    assert talk.words("FCALL", "g", "0") == "g"
    assert "library greedy: " in str(talk.words("FCALL", "h", "0"))
    assert talk.words("FCALL", "f", "0", "x") == "x"
    talk("FUNCTION FLUSH")
    assert str(talk.words("FCALL", "h", "0")).endswith("ERR Function not found")


def test_a_deleted_library_is_not_tried_again_when_lua_is_not_running(talk):
    greedy = b"#!lua name=greedy\nlocal t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end"
    talk.engine.keyspace.libraries[b"greedy"] = greedy
    assert "library greedy: " in str(talk.words("FCALL", "h", "0"))
    talk("SCRIPT FLUSH")
    talk("FUNCTION DELETE greedy")
    assert str(talk.words("FCALL", "h", "0")).endswith("ERR Function not found")
    assert talk.engine.scripts.lua_bytes == 0
