"""Rewrites of the log: a new base and a new incr file, in an order of steps that survives crashes."""

import pathlib
import subprocess

import pytest
import redis

from headrace.errors import HeadraceError
from headrace.persistence.aof.log import Log
from headrace.persistence.aof.manifest import Manifest, write_all
from headrace.persistence.aof.pending_rewrite import PendingRewrite
from headrace.persistence.data_directory import DiskDirectory
from persistence.faults import FaultyFiles
from persistence.log_bench import NAMES, SELECT, Bench, content, encoded, numbers_in
from support.redis_programs import installed_redis, without_sanitizers
from support.waiting import answers, wait_until


def test_a_rewrite_takes_the_place_of_what_was_before(bench: Bench) -> None:
    bench.commit(100)
    assert bench.rewritten()
    bench.commit()
    assert bench.files.list("appendonlydir") == [
        "appendonly.aof.2.base.aof",
        "appendonly.aof.2.incr.aof",
        "appendonly.aof.manifest",
    ]
    assert numbers_in(bench.files) == list(range(102))
    assert bench.log.size == sum(
        bench.files.size(NAMES.path(f)) for f in bench.files.list("appendonlydir")[:2]
    )
    assert bench.log.base_size < bench.log.size
    assert content(bench.files, NAMES.path("appendonly.aof.2.incr.aof")).startswith(SELECT)
    with pytest.raises(HeadraceError, match="already"):
        bench.log.begin_rewrite() and bench.log.begin_rewrite()


def test_the_steps_of_a_rewrite_come_in_the_order_that_survives_a_power_cut(bench: Bench) -> None:
    bench.log.set_policy("no")
    bench.files.log.clear()
    bench.commit()
    assert bench.rewritten()
    told = [done.replace("appendonlydir/", "").replace("appendonly.aof", "A") for done in bench.files.log]
    assert told == [
        "write A.1.incr.aof",
        "create A.2.incr.aof",
        "sync_directory appendonlydir",
        "create temp-A.manifest",
        "write temp-A.manifest",
        "sync temp-A.manifest",
        "sync A.1.incr.aof",
        "rename A.manifest",
        "sync_directory appendonlydir",
        "write A.2.incr.aof",
        "create temp-A.2.base.aof",
        "write temp-A.2.base.aof",
        "sync temp-A.2.base.aof",
        "append temp-A.2.base.aof",
        "sync temp-A.2.base.aof",
        "rename A.2.base.aof",
        "sync_directory appendonlydir",
        "create temp-A.manifest",
        "write temp-A.manifest",
        "sync temp-A.manifest",
        "rename A.manifest",
        "sync_directory appendonlydir",
        "remove A.1.base.aof",
        "remove A.1.incr.aof",
        "create temp-A.manifest",
        "write temp-A.manifest",
        "sync temp-A.manifest",
        "rename A.manifest",
        "sync_directory appendonlydir",
    ]


def test_a_failed_rewrite_leaves_the_log_as_it_was(bench: Bench) -> None:
    for expected in (2, 3):
        bench.commit()
        size = bench.log.size
        rewrite = bench.log.begin_rewrite()
        assert bench.log.size == size
        assert (rewrite.rdb, rewrite.base.file) == (True, f"appendonly.aof.{expected}.base.rdb")
        bench.commit()
        (file := bench.files.create(rewrite.temporary_path)).write(b"half")
        file.close()
        assert not bench.log.finish_rewrite(rewrite, False)
        assert not bench.files.exists(rewrite.temporary_path)
    bench.commit()
    assert numbers_in(bench.files) == bench.given
    assert bench.rewritten()
    assert numbers_in(bench.files) == bench.given
    assert len(bench.files.list("appendonlydir")) == 3


def test_a_missing_base_fails_the_rewrite(bench: Bench) -> None:
    bench.commit()
    rewrite = bench.log.begin_rewrite()
    assert not bench.log.finish_rewrite(rewrite, True)
    assert "No such file" in rewrite.failure
    assert bench.commit() and numbers_in(bench.files) == [0, 1]


def test_history_is_kept_when_asked(files: FaultyFiles) -> None:
    bench = Bench(files)
    bench.log.keep_history_files = True
    bench.start()
    bench.commit()
    assert bench.rewritten() and bench.rewritten()
    manifest = Manifest.load(files, NAMES)
    assert manifest is not None
    assert [line.file.removeprefix("appendonly.aof.") for line in manifest.lines()] == [
        "1.base.aof",
        "1.incr.aof",
        "2.base.aof",
        "2.incr.aof",
        "3.base.aof",
        "3.incr.aof",
    ]
    assert all(files.exists(NAMES.path(line.file)) for line in manifest.lines())
    again = Bench(files, bench.given)
    again.start()  # this one does not keep it
    assert len(files.list("appendonlydir")) == 3 and numbers_in(files) == bench.given


def test_an_incr_that_no_manifest_names_is_never_emptied(bench: Bench) -> None:
    bench.commit()
    stranger = NAMES.path("appendonly.aof.2.incr.aof")
    (file := bench.files.create(stranger)).write(b"precious")
    file.close()
    assert bench.rewritten()
    assert content(bench.files, stranger) == b"precious"
    assert numbers_in(bench.files) == bench.given
    assert bench.files.exists(NAMES.path("appendonly.aof.3.incr.aof"))


def test_an_unsettled_manifest_holds_up_commits_until_it_is_stored(bench: Bench) -> None:
    bench.commit()
    bench.files.fail("sync_directory", after=1)  # the one behind the manifest's rename
    rewrite: PendingRewrite = bench.log.begin_rewrite()
    incr = NAMES.path(rewrite.incr.file)
    bench.files.fail("sync_directory")
    assert not bench.commit() and "manifest" in bench.log.failure
    assert content(bench.files, incr) == b""
    assert bench.commit()
    assert numbers_in(bench.files) == [0, 1, 2]


def test_nothing_is_removed_while_a_manifest_is_unsettled(bench: Bench) -> None:
    bench.commit()
    rewrite = bench.log.begin_rewrite(rdb=False)
    (file := bench.files.create(rewrite.temporary_path)).write(encoded(*bench.given))
    file.close()
    bench.files.fail("sync_directory", after=1)
    bench.files.fail("create", after=1)  # and it cannot be stored anew yet
    before = set(bench.files.list("appendonlydir"))
    assert bench.log.finish_rewrite(rewrite, True)
    assert bench.log.failure and not bench.files.faults
    assert before - set(bench.files.list("appendonlydir")) == {"temp-appendonly.aof.2.base.aof"}
    assert bench.commit()
    assert len(bench.files.list("appendonlydir")) == 3
    assert numbers_in(bench.files) == bench.given


def test_a_base_that_cannot_be_adopted_is_removed(bench: Bench) -> None:
    bench.commit()
    rewrite = bench.log.begin_rewrite(rdb=False)
    (file := bench.files.create(rewrite.temporary_path)).write(encoded(*bench.given))
    file.close()
    before = set(bench.files.list("appendonlydir"))
    bench.files.fail("create")  # of the new manifest
    assert not bench.log.finish_rewrite(rewrite, True)
    assert set(bench.files.list("appendonlydir")) == before - {"temp-appendonly.aof.2.base.aof"}
    assert bench.commit() and numbers_in(bench.files) == bench.given


# another reader


def test_a_real_redis_reads_it(tmp_path: pathlib.Path) -> None:
    files = DiskDirectory(str(tmp_path))
    log = Log(files, NAMES, policy="always", timestamps=True)
    log.start(None)
    log.create(lambda file: write_all(file, b"*3\r\n$3\r\nSET\r\n$4\r\nbase\r\n$3\r\nyes\r\n"), rdb=False)
    log.commit(
        [(0, [b"XADD", b"s", b"1-1", b"f", b"v" * 300]), (5, [b"SET", b"five", b"\x00\r\n\xff"])], 1_000
    )
    log.commit(
        [
            (0, [b"MULTI"]),
            (0, [b"XADD", b"s", b"2-0", b"f", b""]),
            (0, [b"XGROUP", b"CREATE", b"s", b"g", b"0"]),
            (0, [b"EXEC"]),
        ],
        2_000,
    )
    rewrite = log.begin_rewrite(rdb=False)  # two incr files, as while a rewrite runs
    log.commit([(0, [b"XADD", b"s", b"3-0", b"f", b"v"])], 3_000)
    assert log.finish_rewrite(rewrite, False) is False
    assert log.close(clean=True)
    socket = str(tmp_path / "socket")
    options = f"--port 0 --unixsocket {socket} --dir {tmp_path} --appendonly yes".split() + ["--save", ""]
    server = subprocess.Popen([installed_redis(), *options], stdout=subprocess.PIPE, env=without_sanitizers())
    try:
        with (
            redis.Redis(unix_socket_path=socket) as client,
            redis.Redis(unix_socket_path=socket, db=5) as five,
        ):
            wait_until(lambda: answers(client), "redis-server")
            assert client.get("base") == b"yes"
            assert client.xrange("s") == [
                (b"1-1", {b"f": b"v" * 300}),
                (b"2-0", {b"f": b""}),
                (b"3-0", {b"f": b"v"}),
            ]
            assert [group["name"] for group in client.xinfo_groups("s")] == [b"g"]
            assert five.get("five") == b"\x00\r\n\xff"
            client.xadd("s", {"by": "redis"}, id="4-0")
    finally:
        server.terminate()
        said = server.communicate()[0].decode()
    assert "DB loaded from incr file appendonly.aof.2.incr.aof" in said, said
    again = Log(files, NAMES)
    again.start(Manifest.load(files, NAMES))
    assert again.commit([(0, [b"XADD", b"s", b"5-0", b"f", b"v"])], 4_000)
    assert b"redis" in pathlib.Path(files.path(NAMES.path("appendonly.aof.2.incr.aof"))).read_bytes()
