"""Answers leave when what they tell of is in the log; a disk that fails holds them, and loses nothing."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from unittest.mock import patch

import pytest

from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.rdb.encoder_thread import EncoderThread
from server.held_jobs import held_job
from support.waiting import wait_until

FULL = "MISCONF Errors writing to the AOF file: No space left on device"


def restarted(running, start_logging, *arguments: str):
    running.stop()
    return start_logging(*arguments)[0].connect()


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_what_was_answered_is_there_after_a_restart(start_logging, policy: str):
    running, _ = start_logging("--appendfsync", policy)
    client = running.connect()
    first = client.request("XADD", "orders", "*", "item", "pear")
    client.request("SELECT", "3")
    client.request("SET", "k", "v")
    client.request("INCR", "n")
    client = restarted(running, start_logging, "--appendfsync", policy)
    assert client.request("XRANGE", "orders", "-", "+") == [[first, [b"item", b"pear"]]]
    client.request("SELECT", "3")
    assert client.request("MGET", "k", "n") == [b"v", b"1"]


def test_one_write_and_one_sync_for_all_requests_of_a_turn(start_logging):
    running, disk = start_logging("--appendfsync", "always")
    client = running.connect()
    client.request("PING")
    writes, syncs = disk.writes, disk.syncs
    client.send(b"INCR n\r\n" * 200)  # one piece, one turn: fewer than a client may have executed in it
    assert [client.reply() for _ in range(200)] == list(range(1, 201))
    assert disk.writes - writes == disk.syncs - syncs == 1


def test_requests_that_change_nothing_do_not_touch_the_disk(start_logging):
    running, disk = start_logging("--appendfsync", "always")
    client = running.connect()
    writes, syncs = disk.writes, disk.syncs
    for request in (["GET", "k"], ["XDEL", "s", "1-1"], ["XACK", "s", "g", "1-1"], ["PING"]):
        client.request(*request)
    assert (disk.writes, disk.syncs) == (writes, syncs)


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_full_disk_holds_the_answer_and_refuses_further_writes(start_logging, policy: str):
    running, disk = start_logging("--appendfsync", policy)
    writer, other = running.connect(), running.connect()
    assert writer.request("XADD", "s", "1-1", "f", "v") == b"1-1"
    disk.full = True
    writer.send(b"XADD s 2-1 f v\r\n")
    wait_until(lambda: other.info()["aof_last_write_status"] == "err")
    assert str(other.request("XADD", "s", "3-1", "f", "v")) == FULL
    assert str(other.request("PING")) == FULL
    assert other.request("EVAL", "return 1", "0") == 1
    assert str(other.request("EVAL", "return redis.call('SET', 'k', 'v')", "0")).startswith(FULL)
    assert other.request("XLEN", "s") == 2  # what is read is what is in memory
    assert writer.is_silent()
    writer.send(b"PING\r\n")
    assert writer.is_silent()
    disk.full = False
    assert [writer.reply(), writer.reply()] == [b"2-1", "PONG"]
    assert writer.request("XADD", "s", "4-1", "f", "v") == b"4-1"
    client = restarted(running, start_logging)
    assert [entry[0] for entry in client.request("XRANGE", "s", "-", "+")] == [b"1-1", b"2-1", b"4-1"]


def test_a_transaction_is_refused_where_it_would_write(start_logging):
    running, disk = start_logging()
    client, other = running.connect(), running.connect()
    for request in ("MULTI", "SET k v", "GET k"):
        client.request(*request.split())
    disk.full = True
    other.send(b"SET held v\r\n")
    wait_until(lambda: running.server.parts.durability.failure)
    assert str(client.request("EXEC")) == f"EXECABORT Transaction discarded because of: {FULL}"
    client.request("MULTI")
    assert str(client.request("SET", "k", "v")) == FULL
    assert str(client.request("EXEC")).startswith("EXECABORT")
    client.request("MULTI")
    assert client.request("GET", "k") == "QUEUED"
    assert client.request("EXEC") == [None]
    disk.full = False
    assert other.reply() == "OK"


def test_a_sync_that_fails_is_not_tried_again_the_log_is_written_anew(start_logging):
    running, disk = start_logging("--appendfsync", "always")
    client, other = running.connect(), running.connect()
    assert client.request("SET", "a", "1") == "OK"
    disk.broken = True
    client.send(b"SET b 2\r\n")
    wait_until(lambda: other.info()["aof_last_write_status"] == "err")
    assert str(other.request("SET", "c", "3")).startswith("MISCONF Errors writing to the AOF file: ")
    assert client.is_silent()
    disk.broken = False
    assert client.reply() == "OK"
    names = LogFileNames()
    manifest = Manifest.load(disk, names)
    assert manifest is not None and manifest.base is not None and manifest.base.sequence > 1
    client = restarted(running, start_logging)
    assert client.request("MGET", "a", "b", "c") == [b"1", b"2", None]


def test_a_sync_that_fails_in_the_background_stops_writes_too(start_logging):
    running, disk = start_logging("--appendfsync", "everysec")
    client = running.connect()
    assert client.request("SET", "a", "1") == "OK"
    disk.broken = True
    client.request("SET", "a", "2")
    wait_until(lambda: client.info()["aof_last_write_status"] == "err")
    assert str(client.request("SET", "a", "3")).startswith("MISCONF Errors writing to the AOF file: ")
    disk.broken = False
    wait_until(lambda: client.info()["aof_last_write_status"] == "ok")
    assert client.request("SET", "a", "4") == "OK"
    assert restarted(running, start_logging).request("GET", "a") == b"4"


def test_a_slow_sync_in_the_background_stalls_nobody(start_logging):
    running, disk = start_logging("--appendfsync", "everysec")
    client = running.connect()
    disk.slow = threading.Event()
    syncs = disk.syncs
    try:
        wait_until(lambda: client.request("INCR", "n") and disk.syncs > syncs)
        for _ in range(100):
            client.request("INCR", "n")
    finally:
        disk.slow.set()


def test_who_goes_while_his_answer_is_held_is_gone(start_logging):
    running, disk = start_logging()
    client, other = running.connect(), running.connect()
    disk.full = True
    client.send(b"SET k v\r\n")
    wait_until(lambda: running.server.parts.durability.failure)
    client.sock.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: len(running.server.parts.loop.connections) == 1)
    disk.full = False
    wait_until(lambda: not running.server.parts.durability.failure)
    assert other.request("GET", "k") == b"v"


def test_what_is_held_is_never_sent_if_the_server_ends(start_logging):
    running, disk = start_logging()
    client = running.connect()
    disk.full = True
    client.send(b"SET k v\r\n")
    wait_until(lambda: running.server.parts.durability.failure)
    running.server.stop()
    assert client.is_closed()


def test_a_log_that_cannot_be_written_forbids_the_end_unless_forced(start_logging):
    running, disk = start_logging()
    client, other = running.connect(), running.connect()
    disk.full = True
    client.send(b"SET k v\r\n")
    wait_until(lambda: running.server.parts.durability.failure)
    assert str(other.request("SHUTDOWN")) == "ERR Errors trying to SHUTDOWN. Check logs."
    assert other.request("GET", "k") == b"v"
    other.send(b"SHUTDOWN FORCE\r\n")
    assert other.is_closed()


def test_a_reply_stays_held_when_two_requests_of_a_turn_fail_to_end_it(start_logging):
    running, disk = start_logging()
    client = running.connect()
    disk.full = True
    client.send(b"SET k v\r\nSHUTDOWN\r\nSHUTDOWN\r\n")
    wait_until(lambda: running.server.parts.durability.failure)
    assert client.is_silent()
    disk.full = False
    assert client.reply() == "OK"


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_a_log_that_cannot_be_synced_forbids_the_end(start_logging, policy: str):
    running, disk = start_logging("--appendfsync", policy)
    client = running.connect()
    assert client.request("SET", "k", "v") == "OK"
    disk.broken = True
    assert str(client.request("SHUTDOWN")) == "ERR Errors trying to SHUTDOWN. Check logs."
    assert str(client.request("SET", "k", "w")).startswith("MISCONF Errors writing to the AOF file: ")
    disk.broken = False
    wait_until(lambda: not running.server.parts.durability.failure)
    client.send(b"SHUTDOWN\r\n")
    assert client.is_closed()
    running.thread.join()
    assert start_logging()[0].connect().request("GET", "k") == b"v"


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_waitaof_answers_when_the_disk_has_it(start_logging, policy: str):
    running, _ = start_logging("--appendfsync", policy)
    client = running.connect()
    client.send(b"SET k v\r\nWAITAOF 1 0 0\r\nPING\r\n")
    assert [client.reply() for _ in range(3)] == ["OK", [1, 0], "PONG"]


def test_the_log_is_turned_off_and_on_again(start_logging):
    running, _ = start_logging()
    client = running.connect()
    client.request("SET", "a", "1")
    assert client.request("CONFIG", "SET", "appendonly", "no") == "OK"
    assert client.info()["aof_enabled"] == "0"
    assert str(client.request("WAITAOF", "1", "0", "0")).startswith("ERR WAITAOF cannot be used")
    client.request("SET", "b", "2")
    client.send(b"CONFIG SET appendonly yes\r\nINCR c\r\n")
    assert [client.reply(), client.reply()] == ["OK", 1]
    client.request("INCR", "c")
    assert client.request("WAITAOF", "1", "0", "0") == [1, 0]
    client.request("INCR", "c")
    client = restarted(running, start_logging)
    assert client.request("MGET", "a", "b", "c") == [b"1", b"2", b"3"]


def test_a_log_is_begun_where_there_was_none(start):
    running = start()
    client = running.connect()
    client.request("XADD", "s", "1-1", "f", "v")
    assert client.request("CONFIG", "SET", "appendonly", "yes", "appendfsync", "always") == "OK"
    wait_until(lambda: client.info()["aof_rewrites"] == "1")
    client.request("XADD", "s", "2-1", "f", "v")
    running.stop()
    assert start("--appendonly", "yes").connect().request("XLEN", "s") == 2


def test_a_new_log_that_cannot_be_continued_after_its_base_stops_writes(start_logging):
    running, disk = start_logging()
    client = running.connect()
    client.request("CONFIG", "SET", "appendonly", "no")
    disk.full_for = ".incr."
    base_is_due = threading.Event()
    disk.slow = base_is_due
    assert client.request("CONFIG", "SET", "appendonly", "yes") == "OK"
    wait_until(lambda: running.server.parts.saving.running_job is not None)
    assert client.request("SET", "a", "1") == "OK"  # nothing is promised yet
    base_is_due.set()
    wait_until(lambda: client.info()["aof_last_write_status"] == "err")
    assert str(client.request("SET", "a", "2")) == FULL
    disk.full_for = "/"
    wait_until(lambda: client.info()["aof_last_write_status"] == "ok")
    assert client.request("SET", "b", "3") == "OK"
    assert restarted(running, start_logging).request("MGET", "a", "b") == [b"1", b"3"]


def test_what_died_of_age_while_the_disk_was_full_stalls_nobody(start_logging):
    running, disk = start_logging()
    client, writer = running.connect(), running.connect()
    client.request("SET", "k", "v", "PX", "300")
    disk.full = True
    writer.send(b"SET other v\r\n")
    wait_until(lambda: running.server.parts.durability.failure)
    wait_until(lambda: client.request("EXISTS", "k") == 0)
    assert client.request("DBSIZE") == 1
    disk.full = False
    assert writer.reply() == "OK"
    assert restarted(running, start_logging).request("KEYS", "*") == [b"other"]


def test_who_waits_for_an_entry_is_told_of_the_trouble_in_place_of_it(start_logging):
    running, disk = start_logging()
    client, reader, writer = running.connect(), running.connect(), running.connect()
    client.request("XADD", "s", "1-1", "f", "v")
    client.request("XGROUP", "CREATE", "s", "g", "0")
    client.request("XREADGROUP", "GROUP", "g", "ann", "STREAMS", "s", ">")
    reader.send(b"XREADGROUP GROUP g ben BLOCK 0 CLAIM 500 STREAMS s >\r\n")
    wait_until(lambda: running.server.parts.engine.keyspace.blocking.count)
    disk.full = True
    writer.send(b"SET k v\r\n")
    wait_until(lambda: running.server.parts.durability.failure)
    assert str(reader.reply()) == FULL
    disk.full = False
    assert writer.reply() == "OK"


def test_a_log_is_not_begun_in_a_directory_that_another_has(start):
    first, second = start().connect(), start().connect()
    assert first.request("CONFIG", "SET", "appendonly", "yes") == "OK"
    refusal = str(second.request("CONFIG", "SET", "appendonly", "yes"))
    assert refusal.startswith("ERR CONFIG SET failed: no log can be kept: ") and "in use" in refusal
    assert second.request("CONFIG", "GET", "appendonly") == [b"appendonly", b"no"]
    assert second.request("SET", "k", "v") == "OK"


def test_an_older_log_is_given_up_once_the_new_one_stands(start, tmp_path):
    first = start("--appendonly", "yes")
    first.connect().request("SET", "old", "1")
    first.stop()
    second = start()
    client = second.connect()
    assert client.request("DBSIZE") == 0  # it was not asked for the log
    client.request("SET", "new", "2")
    assert client.request("CONFIG", "SET", "appendonly", "yes") == "OK"
    assert client.request("WAITAOF", "1", "0", "0") == [1, 0]
    wait_until(lambda: client.info()["aof_rewrites"] == "1")
    second.stop()
    assert start("--appendonly", "yes").connect().request("KEYS", "*") == [b"new"]


def test_the_policy_changes_at_run_time(start_logging):
    running, disk = start_logging("--appendfsync", "no")
    client = running.connect()
    syncs = disk.syncs
    client.request("SET", "k", "v")
    assert disk.syncs == syncs
    assert client.request("CONFIG", "SET", "appendfsync", "always", "aof-timestamp-enabled", "yes") == "OK"
    client.request("SET", "k", "w")
    assert disk.syncs > syncs  # what was written before is synced, too
    assert any(b"#TS:" in path.read_bytes() for path in Path(disk.path("appendonlydir")).iterdir())


def test_a_job_keeps_syncs_away_if_so_configured(start_logging):
    running, disk = start_logging("--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes")
    client = running.connect()
    with held_job(running, client, "BGSAVE"):
        syncs = disk.syncs
        client.request("SET", "k", "v")
        assert disk.syncs == syncs
    wait_until(lambda: running.server.parts.saving.running_job is None)
    syncs = disk.syncs
    client.request("SET", "k", "w")
    assert disk.syncs == syncs + 1


def promoted(start, start_logging, disk_fails):
    """A replica with other data in its log, and the same after its first synchronisation and promotion."""
    primary = start("--repl-diskless-sync-delay", "0")
    primary.connect().request("SET", "a", "from the primary")
    running, disk = start_logging("--appendfsync", "always")
    client = running.connect()
    client.request("SET", "a", "older")
    disk_fails(disk)
    client.request("REPLICAOF", "127.0.0.1", str(primary.port))
    wait_until(lambda: client.request("GET", "a") == b"from the primary")
    client.request("REPLICAOF", "NO", "ONE")
    return running, disk, client


def test_a_promoted_replica_answers_writes_when_its_new_log_is_complete(start, start_logging):
    held = threading.Event()
    running, disk, client = promoted(start, start_logging, lambda disk: setattr(disk, "slow", held))
    try:
        wait_until(lambda: running.server.parts.saving.running_job)
        writer = running.connect()
        writer.send(b"SET b 2\r\n")
        wait_until(lambda: client.request("GET", "b") == b"2")
        assert writer.is_silent()
    finally:
        disk.slow = None
        held.set()
    assert writer.reply() == "OK"
    client = restarted(running, start_logging)
    assert client.request("MGET", "a", "b") == [b"from the primary", b"2"]


def test_a_promoted_replica_whose_log_cannot_be_written_says_so(start, start_logging):
    running, disk, client = promoted(start, start_logging, lambda disk: setattr(disk, "full_for", "base"))
    writer = running.connect()
    writer.send(b"SET b 2\r\n")
    wait_until(lambda: client.info()["aof_last_write_status"] == "err")
    assert str(client.request("SET", "c", "3")) == FULL
    assert writer.is_silent() and client.request("GET", "b") == b"2"
    disk.full_for = "/"
    assert writer.reply() == "OK"
    client = restarted(running, start_logging)
    assert client.request("MGET", "a", "b", "c") == [b"from the primary", b"2", None]


def test_a_promoted_replica_starts_its_log_when_the_disk_works_again(start, start_logging):
    running, disk, client = promoted(
        start, start_logging, lambda disk: setattr(disk, "broken_directories", True)
    )
    writer = running.connect()
    writer.send(b"SET b 2\r\n")
    wait_until(lambda: client.info()["aof_last_write_status"] == "err")
    assert str(client.request("SET", "c", "3")).startswith("MISCONF")
    assert writer.is_silent()
    disk.broken_directories = False
    assert writer.reply() == "OK"
    client = restarted(running, start_logging)
    assert client.request("MGET", "a", "b", "c") == [b"from the primary", b"2", None]


def test_a_log_that_is_turned_off_holds_no_reply(start, start_logging):
    running, _, client = promoted(start, start_logging, lambda disk: setattr(disk, "full_for", "base"))
    writer = running.connect()
    writer.send(b"SET b 2\r\n")
    wait_until(lambda: client.request("GET", "b") == b"2")
    assert writer.is_silent()
    client.request("CONFIG", "SET", "appendonly", "no")
    assert writer.reply() == "OK"


def test_nothing_counts_as_synced_until_the_first_log_is_complete(start):
    running = start("--repl-diskless-sync-delay", "0")
    client = running.connect()
    assert "FULLRESYNC" in str(
        running.connect().request("PSYNC", "?", "-1")
    )  # effects are recorded from now on
    client.request("SET", "k", "v")
    durability = running.server.parts.durability
    with patch.object(EncoderThread, "has_room", lambda self: False):
        client.request("CONFIG", "SET", "appendonly", "yes")
        wait_until(lambda: running.server.parts.saving.running_job)
        assert durability.synced_offset() < durability.engine.effects.log_offset  # which a replica reports
        assert client.request("WAITAOF", 1, 0, 1) == [0, 0]
    assert client.request("WAITAOF", 1, 0, 0) == [1, 0]
