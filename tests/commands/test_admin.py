import pytest

from headrace import __version__
from headrace.commands.server_interface import ServerInterface
from headrace.commands.table import COMMANDS, find_command
from headrace.engine.engine import Engine
from headrace.errors import CommandError


def info(talk, *sections):
    """The fields of INFO, in one dictionary."""
    lines = talk(" ".join(["INFO", *sections])).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def test_info_counts_what_happened(talk):
    talk("SET a 1")
    talk("SET b 1 PX 3000")
    talk("SET c 1 PX 5000")
    talk("GET a")
    talk("GET none")
    talk("GET")
    talk("INCR a x")
    talk("XLEN a")
    talk("NOSUCH")
    talk("PING", client="b")
    said = info(talk, "all")
    assert said["db0"] == "keys=3,expires=2,avg_ttl=4000"
    assert said["total_commands_processed"] == "8"
    assert said["total_connections_received"] == said["connected_clients"] == "2"
    assert (said["keyspace_hits"], said["keyspace_misses"]) == ("2", "1")
    assert said["cmdstat_get"] == "calls=2,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0"
    assert said["cmdstat_xlen"] == "calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1"
    assert said["errorstat_ERR"] == "count=3" and said["errorstat_WRONGTYPE"] == "count=1"
    assert said["total_error_replies"] == "4"
    assert "cmdstat_del" not in said


def test_info_forgets_on_request(talk):
    talk("SET a 1")
    talk("GET a")
    talk("GET")
    assert talk("CONFIG RESETSTAT") == "OK"
    said = info(talk, "stats", "commandstats", "errorstats")
    assert said["keyspace_hits"] == said["total_error_replies"] == "0"
    assert "cmdstat_get" not in said and "errorstat_ERR" not in said


def test_info_counts_the_dead_and_not_the_undead(talk):
    talk("SET a 1 PX 10")
    talk("SET b 1 PX 10")
    talk.now += 10
    talk("GET a")
    assert "db0" not in info(talk, "keyspace")
    assert info(talk, "stats")["expired_keys"] == "1"
    talk.engine.tick(talk.now)
    assert info(talk, "stats")["expired_keys"] == "2"


def test_info_counts_who_waits_and_who_watches(talk):
    talk("XREAD BLOCK 0 STREAMS s t $ $", client="b")
    talk("WATCH x y")
    said = info(talk, "clients")
    assert (said["blocked_clients"], said["total_blocking_keys"]) == ("1", "2")
    assert (said["watching_clients"], said["total_watched_keys"]) == ("1", "2")


def test_info_has_the_sections_asked_for_in_its_own_order(talk):
    def titles(*sections):
        return [line[2:] for line in talk(" ".join(["INFO", *sections])).splitlines() if line[:1] == "#"]

    assert titles("KEYSPACE", "server") == ["Server", "Keyspace"]
    assert "Commandstats" not in titles() and titles() == titles("default")
    assert titles("everything") == titles("all") and "Commandstats" in titles("all")
    assert titles("default", "commandstats", "latencystats") == titles("all")
    assert titles("nosuch") == []


class TalkativeHost(ServerInterface):
    def info(self, section):
        return [("tcp_port", 6379), ("redis_version", "1.2.3")] if section == "server" else []

    def sub_ms_microseconds(self):
        return 42

    def shutdown(self, save, now=False, force=False):
        self.stopped = (save, now, force)


@pytest.fixture
def hosted():
    engine = Engine(server=TalkativeHost())
    session = engine.create_session()

    def say(line):
        engine.execute(session, line.encode().split(), 1_234_567)
        return session.reply.take()

    say.engine, say.session = engine, session
    return say


def test_the_host_adds_to_info_and_has_the_last_word(hosted):
    said = hosted("INFO server")
    assert (
        b"tcp_port:6379\r\n" in said and b"redis_version:1.2.3\r\n" in said and b"redis_version:8" not in said
    )


def test_time_is_the_engines_milliseconds_and_the_hosts_microseconds(hosted):
    assert hosted("TIME") == b"*2\r\n$4\r\n1234\r\n$6\r\n567042\r\n"


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("SHUTDOWN", (None, False, False)),
        ("SHUTDOWN NOSAVE", (False, False, False)),
        ("shutdown save now force", (True, True, True)),
    ],
)
def test_shutdown_asks_the_host_and_says_nothing(hosted, line, asked):
    assert hosted(line) == b""
    assert hosted.engine.server.stopped == asked and hosted.session.closing


def test_a_library_does_not_shut_down(talk):
    assert talk("SHUTDOWN") == "-ERR Errors trying to SHUTDOWN. Check logs."
    assert talk("PING") == "PONG"


def test_settings_change_together_or_not_at_all(talk):
    assert talk("CONFIG GET stream-node-max-*") == [
        "stream-node-max-bytes",
        "4096",
        "stream-node-max-entries",
        "100",
    ]
    assert talk("CONFIG SET stream-node-max-bytes 10 stream-node-max-entries x").startswith(
        "-ERR CONFIG SET failed"
    )
    assert talk("CONFIG GET stream-node-max-bytes")[1] == "4096"
    assert talk("CONFIG SET stream-node-max-bytes 10 STREAM-NODE-MAX-ENTRIES 20") == "OK"
    settings = talk.engine.keyspace.settings
    assert (settings.stream_node_max_bytes, settings.stream_node_max_entries) == (10, 20)


def test_memory_usage_grows_with_the_value(talk):
    talk("SET small x")
    talk.words("SET", "large", "x" * 1000)
    talk("XADD s * f v")
    small, large = talk("MEMORY USAGE small"), talk("MEMORY USAGE large SAMPLES 0")
    assert 999 <= large - small < 999 + 16 and small > 40  # sizes are rounded as the allocator does
    before = talk("MEMORY USAGE s")
    for _ in range(200):
        talk("XADD s * field value")
    assert talk("MEMORY USAGE s") > before + 200


def test_wait_waits_in_vain_for_replicas(talk):
    assert talk("WAIT 0 0") == 0
    assert talk("WAIT 1 100") == "(waits)"
    talk.tick(1099)
    assert talk.engine.woken_sessions == []
    talk.tick(1100)
    assert talk.heard("a") == 0
    assert talk("WAIT 1 0") == "(waits)"
    assert talk("CLIENT UNBLOCK 1", client="b") == 1
    assert talk.heard("a") == 0


def test_the_table_finds_commands_in_any_case():
    assert find_command(b"xadd") is find_command(b"XADD") is find_command(b"xAdD")
    assert find_command(b"nosuch") is None and find_command(b"config|get") is None


def test_every_row_is_whole():
    for command in COMMANDS:
        assert command.subcommands or command.run is not None
        assert command.name == command.name.lower() and command.arity
        assert command.summary.endswith(".") and command.since.count(".") == 2
        for sub in command.unique_subcommands():
            assert sub.run is not None and sub.name.startswith(command.name + b"|")


def test_command_answers_what_the_table_holds(talk):
    assert talk("COMMAND COUNT") == len(COMMANDS) == len(talk("COMMAND")) == len(talk("COMMAND INFO"))
    name, arity, flags, *keys = talk("COMMAND INFO GET")[0][:6]
    assert (name, arity, sorted(flags), keys) == ("get", 2, ["fast", "readonly"], [1, 1, 1])
    assert talk("COMMAND INFO config|get nosuch")[0][0] == "config|get"
    assert talk("COMMAND INFO nosuch") == [None]
    repeated = talk("COMMAND INFO get nosuch SET get")
    assert repeated == [*talk("COMMAND INFO get"), None, *talk("COMMAND INFO set"), repeated[0]]
    names = talk("COMMAND LIST")
    assert {"get", "config", "config|get"} <= set(names) and len(names) == len(set(names))
    assert set(talk("COMMAND LIST FILTERBY ACLCAT stream")) >= {"xadd", "xread"}


def test_command_docs_show_each_commands_syntax(talk):
    documents = talk("COMMAND DOCS getrange config nosuch")
    assert documents[::2] == ["getrange", "config"]
    facts = dict(zip(documents[1][::2], documents[1][1::2], strict=True))
    assert facts["group"] == "string" and "key start end" in str(facts["arguments"])
    config = dict(zip(documents[3][::2], documents[3][1::2], strict=True))
    assert "config|get" in config["subcommands"]
    assert len(talk("COMMAND DOCS")) == 2 * len(COMMANDS)


def test_command_getkeys_refuses_what_it_cannot_answer(talk):
    assert talk("COMMAND GETKEYS GET") == "-ERR Invalid number of arguments specified for command"
    assert talk("COMMAND GETKEYS PING") == "-ERR The command has no key arguments"
    assert talk("COMMAND GETKEYSANDFLAGS SET k v") == [["k", ["OW", "update"]]]


def test_a_request_names_a_subcommand_in_two_arguments(talk):
    assert talk("ACL DRYRUN default CONFIG|SET a b c") == "-ERR Command 'CONFIG|SET' not found"
    assert talk("ACL DRYRUN default CONFIG SET a b") == "OK"
    assert talk("COMMAND GETKEYS XINFO|STREAM x y") == "-ERR Invalid command specified"
    assert talk("COMMAND GETKEYSANDFLAGS XINFO|STREAM x y") == "-ERR Invalid command specified"
    assert talk("COMMAND GETKEYS XINFO STREAM y") == ["y"]
    assert talk("COMMAND INFO XINFO|STREAM")[0][0] == "xinfo|stream"


def test_lolwut_draws_and_names_the_version(talk):
    lines = talk("LOLWUT").splitlines()
    assert len(lines) == 8 and lines[-1].endswith(f"Redis ver. 8.10.0, Headrace {__version__}")
    assert max(map(len, lines[:6])) == 66 and {char for line in lines[:6] for char in line} <= set(
        " ▁▂▃▄▅▆▇█"
    )
    small = talk("LOLWUT version 5 10 3").splitlines()
    assert len(small) == 5 and max(map(len, small[:3])) == 10
    huge = talk("LOLWUT VERSION 6 1000000000 1000000000").splitlines()
    assert len(huge) == 42 and max(map(len, huge)) == 200
    assert talk("LOLWUT VERSION 1 -5 -5").splitlines()[0] in " ▁▂▃▄▅▆▇█"


def test_no_module_can_be_loaded(talk):
    for line in ("LOAD /m.so", "LOADEX /m.so CONFIG a b", "UNLOAD m"):
        assert talk(f"MODULE {line}").startswith("-ERR MODULE command not allowed.")


def test_allocator_statistics_are_text_with_the_known_figures(talk):
    talk("SET k v")
    lines = talk("MEMORY MALLOC-STATS").splitlines()
    used = talk.engine.keyspace.memory.total
    assert f"total.allocated: {used}" in lines and "keys.count: 1" in lines


def test_every_container_has_help(talk):
    for command in COMMANDS:
        if command.subcommands and command.name != b"cluster":
            lines = talk(f"{command.name.decode()} HELP")
            listed = {line.split()[0].lower() for line in lines[1:] if line[:1] != " "}
            assert {sub.last_name_part.decode() for sub in command.unique_subcommands()} == listed


def test_the_plain_host_says_what_it_cannot_do():
    with pytest.raises(CommandError, match="without a config file"):
        ServerInterface().config_rewrite()
