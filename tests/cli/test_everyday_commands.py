"""ls, tail, add, groups, pending and ack, against redis-server and Headrace."""

from __future__ import annotations

import base64
import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.terminal import in_terminal
from headrace.cli.commands.add import EntryAppender, fields_from_json, parse_line
from headrace.cli.connections.stream_client import PipelineNotExecuted
from headrace.cli.main import main
from headrace.cli.options.entry_times import parse_first_id
from headrace.cli.output.printing import bytes_from_json, bytes_to_json, fields_text, fields_to_json, id_time
from headrace.errors import HeadraceError, UsageError
from headrace.resp.reply_parser import ReplyParser
from support.headrace_server import headrace_server


@pytest.fixture(scope="module")
def headrace_url() -> Iterator[str]:
    with headrace_server() as port:
        yield f"redis://127.0.0.1:{port}"


@pytest.fixture(params=["redis", "headrace"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty server, of each kind in turn."""
    url: str = request.getfixturevalue("server_url" if request.param == "redis" else "headrace_url")
    with redis.Redis.from_url(url) as client:
        client.flushall()
    return url


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        yield client


@pytest.fixture
def orders(client: redis.Redis) -> redis.Redis:
    """A stream of 20 entries, and a group that has read 8 of them: ann 5, bob 3."""
    for n in range(1, 21):
        client.xadd("orders", {"item": "pear", "n": n}, f"{n}-0")
    client.xgroup_create("orders", "billing", "0")
    client.xreadgroup("billing", "ann", {"orders": ">"}, count=5)
    client.xreadgroup("billing", "bob", {"orders": ">"}, count=3)
    return client


class Command:
    """Runs a command of the program in this process."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, self.capsys, self.monkeypatch = url, capsys, monkeypatch
        self.error = ""

    def __call__(self, *words: str, code: int = 0, stdin: bytes = b"") -> list[str]:
        """Return the lines on standard output; the exit code must be as expected."""
        self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        assert main([*words, "--url", self.url]) == code
        printed = self.capsys.readouterr()
        self.error = printed.err
        return printed.out.splitlines()

    def json(self, *words: str, code: int = 0, stdin: bytes = b"") -> list[dict[str, object]]:
        return [json.loads(line) for line in self(*words, "--json", code=code, stdin=stdin)]


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(url, capsys, monkeypatch)


def test_ls_lists_streams_and_no_other_keys(run: Command, orders: redis.Redis) -> None:
    orders.set("text", "x")
    orders.xgroup_create("empty", "g", "$", mkstream=True)
    assert [line.split()[:2] for line in run("ls")] == [
        ["stream", "entries"],
        ["empty", "0"],
        ["orders", "20"],
    ]
    empty, listed = run.json("ls")
    assert empty == {
        "stream": "empty", "entries": 0, "first_id": None, "last_id": None, "first_time": None,
        "last_time": None, "memory_bytes": orders.memory_usage("empty"), "groups": 1,
        "cold_entries": 0, "cold_bytes": 0, "cold_files": 0,
    }  # fmt: skip
    assert (listed["first_id"], listed["last_id"], listed["groups"]) == ("1-0", "20-0", 1)
    assert listed["last_time"] == "1970-01-01 00:00:00.020"
    assert [each["stream"] for each in run.json("ls", "--pattern", "or.*")] == ["orders"]
    assert run("ls", "--pattern", "ord") == [] and "no stream matches 'ord'\n" in run.error
    assert run("ls", "--pattern", "ord*") == [] and "in which ord.* means any ending" in run.error
    run("ls", "--pattern", "(", code=2)


def test_ls_lists_the_streams_that_are_named(run: Command, orders: redis.Redis) -> None:
    orders.xadd("other", {"a": 1})
    assert run("ls", "orders") == run("ls", "--pattern", "orders") and len(run("ls", "orders")) == 2
    assert [line.split()[0] for line in run("ls", "other", "orders")] == ["stream", "other", "orders"]
    run("ls", "ordres", code=2)
    assert "there is no stream 'ordres'; did you mean 'orders'?" in run.error
    run("ls", "orders", "--pattern", "o.*", code=2)
    assert "name streams, or give --pattern" in run.error


def test_ls_of_an_empty_server_prints_a_note(run: Command) -> None:
    assert run("ls") == [] and run.error == "there are no streams\n"
    assert run.json("ls") == []


def test_ls_lists_more_streams_than_fit_one_request(run: Command, client: redis.Redis) -> None:
    for n in range(230):
        client.xadd(f"s{n:03}", {"n": n})
    assert [each["stream"] for each in run.json("ls")] == [f"s{n:03}" for n in range(230)]


def test_tail_prints_the_last_entries_oldest_first(run: Command, orders: redis.Redis) -> None:
    assert run("tail", "-n", "2", "orders") == [
        "19-0  1970-01-01 00:00:00.019  item=pear  n=19",
        "20-0  1970-01-01 00:00:00.020  item=pear  n=20",
    ]
    assert len(run("tail", "orders")) == 10
    assert len(run("tail", "-n", "100", "orders")) == 20
    assert run("tail", "-n", "0", "orders") == []
    assert run.json("tail", "-n", "1", "orders") == [
        {"stream": "orders", "id": "20-0", "fields": {"item": "pear", "n": "20"}}
    ]


def test_tail_from_an_id_or_a_time_begins_there(run: Command, orders: redis.Redis) -> None:
    def ids(*words: str) -> list[object]:
        return [each["id"] for each in run.json("tail", *words, "orders")]

    assert ids("--from", "18-0") == ["18-0", "19-0", "20-0"]
    assert ids("--from", "18-1") == ["19-0", "20-0"]
    assert ids("--from", "1970-01-01T00:00:00.019") == ["19-0", "20-0"]
    assert ids("--from", "15min") == []
    assert ids("--from", "3", "--count", "2") == ["3-0", "4-0"]
    assert ids("--from", "18446744073709551615") == []


def test_tail_of_several_streams_merges_them_by_id(run: Command, client: redis.Redis) -> None:
    for n in range(1, 7):
        client.xadd(f"s{n % 2}", {"n": n}, f"{n}-0")
    lines = run("tail", "s0", "s1", "s0")
    assert [line.split()[:2] for line in lines] == [[f"s{n % 2}", f"{n}-0"] for n in range(1, 7)]
    assert [each["stream"] for each in run.json("tail", "-n", "1", "s0", "s1")] == ["s1", "s0"]


def test_tail_reads_many_pages(run: Command, client: redis.Redis) -> None:
    with client.pipeline() as pipe:
        for n in range(1, 2001):
            pipe.xadd("s", {"n": n}, f"{n}-0")
        pipe.execute()
    expected = [f"{n}-0" for n in range(500, 2001)]
    assert [each["id"] for each in run.json("tail", "-n", "1501", "s")] == expected
    assert [each["id"] for each in run.json("tail", "--from", "500", "s")] == expected


def test_tail_of_a_group_prints_pending_entries_and_claims_none(run: Command, orders: redis.Redis) -> None:
    before = orders.xpending_range("orders", "billing", "-", "+", 100)
    orders.xdel("orders", "2-0")
    lines = run("tail", "--group", "billing", "-n", "6", "orders")
    assert [line.split()[0] for line in lines] == [f"{n}-0" for n in range(1, 7)]
    assert "ann, idle" in lines[0] and "1 delivery:  item=pear  n=1" in lines[0] and "bob" in lines[5]
    assert lines[1].endswith("(deleted)")
    assert run.error == "… 2 more pending entries in orders; -n shows more\n"
    shown = run.json("tail", "--group", "billing", "orders")
    assert shown[1]["fields"] is None
    assert (shown[7]["id"], shown[7]["consumer"], shown[7]["deliveries"]) == ("8-0", "bob", 1)
    after = orders.xpending_range("orders", "billing", "-", "+", 100)
    assert [(e["message_id"], e["times_delivered"]) for e in before] == [
        (e["message_id"], e["times_delivered"]) for e in after
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tail", "order"], "there is no stream 'order'; did you mean 'orders'?"),
        (["tail", "-n", "1", "--from", "1-0", "orders"], "-n and --from exclude each other"),
        (["tail", "--from", "soon", "orders"], "'soon' is neither an ID"),
        (["tail", "--from", "1960-01-01", "orders"], "is before 1970"),
        (["tail", "--from", "99999999999999999999", "orders"], "is not an entry ID"),
        (["tail", "-f", "--group", "billing", "orders"], "leave out -f and --from"),
        (["tail", "--group", "biling", "orders"], "has no group 'biling'; did you mean 'billing'?"),
        (["tail", "text"], "'text' is not a stream"),
        (["tail"], "Missing argument 'STREAM...'"),
        (["groups", "ordesr"], "did you mean 'orders'?"),
        (["groups", "xyzzy"], "there is no stream 'xyzzy'\n"),
        (["pending", "orders", "xyzzy"], "has no group 'xyzzy'; it has 'billing'"),
        (["pending", "orders", "billing", "--consumer", "an"], "no consumer 'an'; did you mean 'ann'?"),
        (["pending", "orders", "billing", "--idle", "long"], "not a duration: 'long'"),
        (["ack", "orders", "billing", "x-0"], "'x-0' is not an entry ID"),
        (["ack", "orders", "biling", "1-0"], "did you mean 'billing'?"),
        (["ack", "orders", "billing", "-"], "there are no IDs on standard input"),
        (["add", "orders"], "no fields given"),
        (["add", "orders", "a"], "'a' is not FIELD=VALUE"),
        (["add", "orders", "a", "b", "c"], "a value is missing"),
        (["add", "orders", "item=pear", "count"], """'count' is not FIELD=VALUE, and of FIELD VALUE pairs"""),
        (["add", "orders", "a", "b", "c=d", "e"], """use --json and give {"c=d": "e"} on standard input"""),
        (["add", "orders", "a=1", "--json"], "leave out the fields"),
        (["add", "orders", "--id", "5-0", "--json"], "--id is for one entry"),
    ],
)
def test_bad_input_prints_one_line_and_exits_with_2(
    words: list[str], message: str, run: Command, orders: redis.Redis
) -> None:
    orders.set("text", "x")
    assert run(*words, code=2) == []
    assert message in run.error and run.error.startswith("headrace: ") and run.error.count("\n") == 1
    assert orders.xlen("orders") == 20 and orders.xpending("orders", "billing")["pending"] == 8


def test_add_accepts_fields_in_three_forms(run: Command, client: redis.Redis) -> None:
    lines = run("add", "s", "item=pear", "note=a=b", "none=")
    lines += run("add", "s", "item", "pear", "url", "a=b")
    lines += run("add", "s", "--json", stdin=b'{"item": "pear", "n": 10.50, "x": null, "d": {"a": [1]}}\n\n')
    found = client.xrange("s")
    assert [entry_id for entry_id, _ in found] == lines
    assert [fields for _, fields in found] == [
        {"item": "pear", "note": "a=b", "none": ""},
        {"item": "pear", "url": "a=b"},
        {"item": "pear", "n": "10.50", "d": '{"a":[1]}'},
    ]


@pytest.mark.parametrize("reply", [b":1\r\n", b"*0\r\n", b"$-1\r\n", b"$7\r\n\x1b[31mx\x07\r\n"])
def test_add_names_a_reply_that_is_no_id(reply: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    client = SimpleNamespace(
        key=b"s", connect=lambda: None, send_pipeline=lambda requests: [parsed(reply) for _ in requests]
    )
    with pytest.raises(HeadraceError, match="the reply to XADD is no ID") as raised:
        EntryAppender(client, "*", None).add([[b"n", b"1"]])  # type: ignore[arg-type]
    assert "\x1b" not in str(raised.value) + capsys.readouterr().out


def parsed(reply: bytes) -> object:
    """Return what a client makes of a reply."""
    parser = ReplyParser()
    parser.feed(reply)
    return parser.next()


@pytest.mark.parametrize("wrong", ["redis://127.0.0.1:1", "redis://ann:x@127.0.0.1:PORT"])
def test_add_without_a_connection_does_not_say_that_it_may_have_added(
    wrong: str, headrace_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = wrong.replace("PORT", headrace_url.rpartition(":")[2])
    assert main(["add", "s", "n=1", "--url", url]) != 0
    [line] = capsys.readouterr().err.splitlines()
    assert "added" not in line


def test_a_write_to_a_replica_names_its_primary_and_adds_nothing(
    run: Command, orders: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.connections.stream_client.UNAVAILABLE_TIMEOUT_S", 0.1)
    orders.replicaof("127.0.0.1", "1")
    try:
        for words in (["add", "orders", "n=21"], ["ack", "orders", "billing", "1-0"]):
            assert run(*words, code=1) == []
            error = run.error.splitlines()[-1]
            assert "the server is a replica of 127.0.0.1:1 and accepts no writes" in error
            assert "may have been" not in error and "is a server running" not in error
            assert error.endswith("; 0 entries added") == (words[0] == "add")
            assert "Lost a server" not in run.error
    finally:
        orders.replicaof("NO", "ONE")
    assert (orders.xlen("orders"), orders.xpending("orders", "billing")["pending"]) == (20, 8)


def test_add_prints_the_ids_of_the_entries_before_one_that_was_not_executed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def pipeline(requests: object) -> list[object]:
        raise PipelineNotExecuted("READONLY", [b"1-0"])

    client = SimpleNamespace(key=b"s", connect=lambda: None, send_pipeline=pipeline)
    with pytest.raises(PipelineNotExecuted, match=r"^READONLY; 1 entry added$"):
        EntryAppender(client, "*", None).add([[b"n", b"1"], [b"n", b"2"]])  # type: ignore[arg-type]
    assert capsys.readouterr().out == "1-0\n"


def test_add_accepts_an_id_and_a_maximum_length(run: Command, client: redis.Redis) -> None:
    assert run("add", "s", "--id", "7-1", "n=1") == ["7-1"]
    assert run("add", "s", "--id", "7-1", "n=1", code=1) == []
    assert "smaller than the target stream top item" in run.error and "0 entries added" in run.error
    run("add", "s", "--maxlen", "100", "--json", stdin=b'{"n": 1}\n' * 1000)
    assert client.xlen("s") < 300


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[1]", "line 3: expected a JSON object"),
        (b"{", "line 3: not JSON: Expecting"),
        (b'{"a": NaN}', "line 3: NaN is not JSON"),
        (b'{"a": 1, "a": 2}', "line 3: 'a' occurs twice"),
        (b'{"a": null}', "line 3: the entry has no fields"),
        (b'{"a": "\\ud800"}', "line 3: "),
        (b'{"a": "\xff"}', "line 3: "),
        (b'{"a": {"$base64": "!"}}', "line 3: "),
        (b"[" * 100_000, "line 3: "),
    ],
)
def test_add_stops_at_a_wrong_line_and_counts_the_added_entries(
    line: bytes, message: str, run: Command, client: redis.Redis
) -> None:
    lines = run("add", "s", "--json", code=2, stdin=b'{"n": 1}\n{"n": 2}\n' + line + b'\n{"n": 3}\n')
    assert len(lines) == client.xlen("s") == 2
    assert message in run.error and run.error.endswith("; 2 entries added\n") and run.error.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_line_of_a_live_pipe_is_added_at_once(url: str, client: redis.Redis, number: int) -> None:
    command = [sys.executable, "-m", "headrace", "add", "s", "--json", "--url", url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as adding:
        assert adding.stdin is not None and adding.stdout is not None and adding.stderr is not None
        for n in range(1, 4):
            print(json.dumps({"n": n}), file=adding.stdin, flush=True)
            assert adding.stdout.readline() and client.xlen("s") == n
        adding.send_signal(number)
        assert "headrace: 3 entries added" in adding.stderr.read()
        assert adding.wait(30) != 0


def test_a_command_without_standard_output_ends_as_with_one(url: str, orders: redis.Redis) -> None:
    for command in ("tail orders", "tail --json orders", "ls", "groups orders"):
        line = f"{sys.executable} -m headrace {command} --url {url} >&-"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), command


def test_what_tail_prints_as_json_is_added_again_exactly(run: Command, url: str) -> None:
    fields = [b"a", b"\xff\x00", b"\xfe", b"x", b"a", b"", b"\x1b[2J", "\u202e".encode()]
    with redis.Redis.from_url(url) as raw:
        raw.execute_command("XADD", "s", "1-0", *fields)
        raw.execute_command("XADD", "s", "2-0", b"fields", b"{}", b"id", b"x", b"stream", b"y")
        printed = "\n".join(run("tail", "--json", "s"))
        assert "\x1b" not in printed and "\u202e" not in printed
        run("add", "--json", "t", stdin=printed.encode())
        copied = [entry[1] for entry in raw.execute_command(b"XRANGE", "t", "-", "+")]
        assert copied == [entry[1] for entry in raw.execute_command(b"XRANGE", "s", "-", "+")]
        assert copied[0] == fields


@given(st.lists(st.tuples(st.binary(), st.binary()), min_size=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_fields_survive_json(pairs: list[tuple[bytes, bytes]]) -> None:
    fields = [part for pair in pairs for part in pair]
    line = json.dumps({"stream": "s", "id": "1-0", "fields": fields_to_json(fields)})
    assert fields_from_json(parse_line(line.encode())) == fields
    for value in fields:
        assert bytes_from_json(bytes_to_json(value)) == value


def test_bytes_that_are_not_utf8_are_marked_in_json() -> None:
    assert bytes_to_json(b"\xff") == {"$base64": base64.b64encode(b"\xff").decode()}
    assert fields_to_json([b"a", b"1", b"a", b"2"]) == [["a", "1"], ["a", "2"]]


def test_values_with_spaces_quotes_or_equals_signs_are_quoted() -> None:
    fields = [b"a", b"1", b"b", b"", b"c", b"x y", b"d", b'say "hi"', b"e", b"\xff\n"]
    assert fields_text(fields) == 'a=1  b=""  c="x y"  d="say \\"hi\\""  e=\\xff\\n'


def test_groups_shows_consumers_lag_and_pending(run: Command, orders: redis.Redis) -> None:
    title, line = run("groups", "orders")
    assert title.split() == [
        "group", "consumers", "lag", "pending", "oldest", "pending", "last", "delivered"
    ]  # fmt: skip
    assert line.split()[:4] == ["billing", "2", "12", "8"] and line.split()[-1] == "8-0"
    rows = [line.split()[:3] for line in run("groups", "--consumers", "orders")]
    assert rows == [["group", "consumer", "pending"], ["billing", "ann", "5"], ["billing", "bob", "3"]]
    (group,) = run.json("groups", "orders")
    assert (group["group"], group["lag"], group["pending"], group["entries_read"]) == ("billing", 12, 8, 8)
    assert [(c["consumer"], c["pending"]) for c in group["consumers"]] == [("ann", 5), ("bob", 3)]  # type: ignore[attr-defined]


def test_groups_shows_lost_entries_if_there_are_any(
    run: Command, orders: redis.Redis, url: str, headrace_url: str
) -> None:
    assert run.json("groups", "orders")[0]["lost_unread"] == 0
    orders.xtrim("orders", minid="15-0", approximate=False)
    orders.xautoclaim("orders", "billing", "ann", 0, count=3)
    if url != headrace_url:
        assert run.json("groups", "orders")[0]["lost_unread"] == 0, "Redis does not count them"
        return
    titles, line = run("groups", "orders")
    assert "lost unread  lost pending" in titles and line.split()[-2:] == ["6", "3"]
    (group,) = run.json("groups", "orders")
    assert (group["lost_unread"], group["lost_pending"]) == (6, 3)


def test_groups_of_a_stream_without_any_prints_a_note(run: Command, client: redis.Redis) -> None:
    client.xadd("s", {"n": 1})
    assert run("groups", "s") == [] and run.error == "stream s has no groups\n"
    assert run.json("groups", "s") == []


def test_pending_filters_by_consumer_and_idle_time(run: Command, orders: redis.Redis) -> None:
    ids = ["1-0", "2-0"]
    orders.execute_command("XCLAIM", "orders", "billing", "ann", 0, *ids, "IDLE", 3_600_000, "RETRYCOUNT", 4)
    assert len(run("pending", "orders", "billing")) == 9
    assert [line.split()[0] for line in run("pending", "--idle", "30min", "orders", "billing")] == [
        "id",
        *ids,
    ]
    rows = run.json("pending", "--consumer", "ann", "orders", "billing")
    assert [row["id"] for row in rows] == [f"{n}-0" for n in range(1, 6)]
    assert rows[0]["deliveries"] == 4 and int(str(rows[0]["idle_ms"])) >= 3_600_000
    assert run("pending", "--idle", "7d", "orders", "billing") == []
    assert run.error == "group billing has no matching pending entries\n"
    assert len(run("pending", "-n", "3", "orders", "billing")) == 4
    assert run.error == "… there are more; -n shows more than 3, --all shows all\n"
    assert len(run("pending", "-n", "8", "orders", "billing")) == 9 and run.error == ""


def test_pending_reads_many_pages(run: Command, client: redis.Redis) -> None:
    with client.pipeline() as pipe:
        for n in range(1, 351):
            pipe.xadd("s", {"n": n}, f"{n}-0")
        pipe.execute()
    client.xgroup_create("s", "g", "0")
    client.xreadgroup("g", "c", {"s": ">"}, count=350)
    assert [each["id"] for each in run.json("pending", "--all", "s", "g")] == [
        f"{n}-0" for n in range(1, 351)
    ]
    assert len(run("tail", "--group", "g", "-n", "350", "s")) == 350 and run.error == ""


def test_ack_counts_entries_and_names_those_not_pending(run: Command, orders: redis.Redis) -> None:
    assert run("ack", "orders", "billing", "1-0", "2", "1-0") == ["2 acknowledged"]
    assert run("ack", "orders", "billing", "3-0", "19-0", "1-0", code=1) == ["1 acknowledged"]
    assert run.error == "headrace: not pending in group 'billing': 19-0, 1-0\n"
    assert run("ack", "orders", "billing", "-", stdin=b"4-0\n5-0\n") == ["2 acknowledged"]
    found = run.json("ack", "orders", "billing", "6-0", "1-0", code=1)
    assert found == [{"acknowledged": ["6-0"], "missing": ["1-0"]}]
    assert [each["message_id"] for each in orders.xpending_range("orders", "billing", "-", "+", 9)] == [
        "7-0",
        "8-0",
    ]


@pytest.mark.parametrize("setting", ["protocol=3", "decode_responses=True"])
def test_settings_that_change_how_replies_are_read_are_rejected(
    setting: str, orders: redis.Redis, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["ls"],
        ["tail", "orders"],
        ["top", "--once"],
        ["inspect", "orders"],
        ["trim", "--stream", "s"],
    ):
        assert main([*words, "--url", f"{url}?{setting}"]) == 2
        name = setting.partition("=")[0]
        assert f"leave {name} out of the URL" in capsys.readouterr().err
        assert main([*words[:1], "--help"]) == 0
        capsys.readouterr()


def test_a_missing_stream_is_reported_to_a_user_without_scan(run: Command, orders: redis.Redis) -> None:
    orders.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@all", "-scan")
    run.url = run.url.replace("//", "//reader:pw@")
    assert run("tail", "ordres", code=2) == [] and run.error.endswith("there is no stream 'ordres'\n")
    orders.execute_command("ACL", "DELUSER", "reader")


def test_tables_fit_the_width_of_the_terminal(url: str, orders: redis.Redis) -> None:
    orders.xadd("a-very-long-name-of-a-stream-that-needs-more-than-one-line", {"n": 1})
    for columns in (40, 80, 120):
        code, output = in_terminal("ls", "--url", url, columns=columns, env={"NO_COLOR": "1"})
        assert code == 0 and "orders" in output
        assert max(map(len, output.splitlines())) <= columns
        assert ("memory" in output, "last" in output) == (columns == 120, columns > 40)


def test_parse_first_id_accepts_ids_times_and_durations() -> None:
    assert parse_first_id("5-7") == (5, 7) and parse_first_id("5") == (5, 0)
    assert parse_first_id("2026-03-01T09:30+01:00") == (1_772_353_800_000, 0)
    assert parse_first_id("2026-03-01") == (1_772_323_200_000, 0)
    assert parse_first_id("99999d") == (0, 0)
    with pytest.raises(UsageError, match="at most 1000 years"):
        parse_first_id("999999999d")
    assert id_time("18446744073709551615-0") == "-"


def test_a_full_disk_is_not_reported_as_a_lost_server(url: str, orders: redis.Redis) -> None:
    for words in (["tail", "orders"], ["add", "orders", "n=1"], ["ls"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "headrace", *words, "--url", url],
                stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
            )  # fmt: skip
        assert (done.returncode, done.stderr) == (1, "headrace: the output: no space left on device\n")


def test_released_entries_have_no_consumer_and_no_idle_time(
    headrace_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with redis.Redis.from_url(headrace_url) as client:
        client.flushall()
        client.xadd("s", {"n": 1}, "1-0")
        client.xgroup_create("s", "g", "0")
        client.xreadgroup("g", "c", {"s": ">"})
        client.execute_command("XNACK", "s", "g", "FAIL", "IDS", 1, "1-0")
    words = ["--json", "--url", headrace_url]
    assert main(["pending", "s", "g", *words]) == main(["tail", "--group", "g", "s", *words]) == 0
    for line in capsys.readouterr().out.splitlines():
        found = json.loads(line)
        assert (found["id"], found["consumer"], found["idle_ms"]) == ("1-0", None, None)


@pytest.mark.parametrize(
    "words", [["add", "--json", "orders"], ["ack", "orders", "billing", "-"], ["load", "-", "--stream", "s"]]
)
def test_a_closed_standard_input_prints_one_line(words: list[str], server_url: str) -> None:
    command = [sys.executable, "-m", "headrace", *words, "--url", server_url]
    shell = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "headrace: standard input is closed\n")


def test_bytes_that_are_not_text_are_rejected_as_an_id(server_url: str) -> None:
    command = [sys.executable, "-m", "headrace", "ack", "orders", "billing", "-", "--url", server_url]
    done = subprocess.run(command, input=b"1-0\n\xff\n", capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(b"headrace: '\\\\xff' is not an entry ID")


def test_pending_rejects_a_number_of_entries_together_with_all(
    server_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pending", "orders", "billing", "--all", "-n", "3", "--url", server_url]) == 2
    assert capsys.readouterr().err == "headrace: -n and --all exclude each other\n"
