"""Fuzz targets: ACL rules, configurations, options, addresses, and commands."""

from __future__ import annotations

from collections.abc import Hashable

from fuzz.driver import NAMES, Target
from fuzz.using import NOW
from headrace.access.rule_errors import InvalidRule, InvalidUserFile, RejectedRule, UnclosedParenthesis
from headrace.access.selector import READ, READ_WRITE, WRITE, AccessRequest
from headrace.access.user import User
from headrace.access.users import Users, parse_user_file
from headrace.client.url import parse_server_url
from headrace.commands.table import COMMANDS
from headrace.engine.authorization import build_catalogue
from headrace.engine.engine import Engine
from headrace.errors import CommandError, ProtocolError, UsageError
from headrace.keyspace.eviction import STREAM_OLDEST
from headrace.resp.parser import RequestParser
from headrace.resp.reply_parser import INCOMPLETE, ReplyParser
from headrace.server.config.config import INCLUDE_DEPTH_MAX, Config
from headrace.server.config.directives import DIRECTIVES, DIRECTIVES_BY_NAME
from headrace.server.config.rewrite import rewritten
from headrace.spark.options import OPTIONS, log, parse_options
from headrace.streams.stream import Stream

CATALOGUE = build_catalogue(COMMANDS)


def access_request(name: bytes, keys: list[bytes], uses: list[int]) -> AccessRequest:
    """What a command wants of these keys."""
    made = AccessRequest(name, keys)
    made.key_positions, made.key_uses = list(range(len(keys))), uses
    return made


WISHES = [
    access_request(b"get", [b"k"], [READ]),
    access_request(b"xadd", [b"orders"], [WRITE]),
    access_request(b"config|set", [], []),
    access_request(b"xreadgroup", [b"a", b"k"], [READ_WRITE, READ]),
]
RULES = b"""on off nopass resetpass reset >secret <secret #0123 !0123 ~* ~k* %R~a %W~b %RW~* allkeys
resetkeys &* &news.* allchannels resetchannels +@all -@all +@read -@write +get -get +config|set -config
+client|list ( ) (+get (~a ~b) clearselectors sanitize-payload skip-sanitize-payload +@stream +xadd|x
allcommands nocommands user default"""
SETUP = b"""XADD s 1-1 f 1 g 2;XADD s 2-1 f 3;XADD s 3-1 f 4 g 5;XGROUP CREATE s g 0;
XREADGROUP GROUP g c COUNT 2 STREAMS s >;SET k 12"""
MORE_WORDS = b"""s t k g c 0 1-1 2-1 3-1 * $ > + - ( ~ = BLOCK COUNT GROUP STREAMS MAXLEN MINID LIMIT NOACK
FORCE JUSTID IDLE TIME RETRYCOUNT LASTID NOMKSTREAM MKSTREAM ENTRIESREAD ENTRIESADDED MAXDELETEDID KEEPREF
DELREF ACKED IDS CLAIM IDMP IDMPAUTO ID FULL EX PX NX XX KEEPTTL GET REPLACE DB MATCH TYPE MIN MAX SILENT
FAIL FATAL COLUMNS FIELDS UTF8 INT64 ANCHOR MODE __keyspace@0__:s SETUSER WITHSCORES OK -1 1 2 3
TRACKING ON BCAST PREFIX REDIRECT NOLOOP OPTIN CACHING YES"""
SHORT_STRING = 1 << 16  # what no SETRANGE goes beyond here: longer ones are allowed, and take long
SESSIONS = 4
LITTLE_BYTES = 1000


def same_user(user: User) -> None:
    """What a user's line says makes one who may do the same, and whose own line does not change any more.

    It may change once, as redis-server's does: `%RW~*` is shown as `~*`, which takes the place of the
    patterns before it.
    """
    texts = [user.user_file_line()]
    for _ in range(2):
        users = Users(CATALOGUE)
        users.replace_all([("line", texts[-1].split()[1:])])
        found = users.find(user.name)
        assert found is not None
        assert [found.denial_code(access_request) for access_request in WISHES] == [
            user.denial_code(access_request) for access_request in WISHES
        ], texts
        texts.append(found.user_file_line())
    assert texts[2] == texts[1], texts


def change_users(data: bytes) -> set[Hashable]:
    """A file of users, line by line and as a whole; who is there is written, and read again as he was."""
    found: set[Hashable] = set()
    users = Users(CATALOGUE)
    for line in data.split(b"\n"):
        words = line.split()
        if len(words) > 1 and words[0] == b"user" and b"\0" not in words[1]:
            try:
                user = users.change(words[1], words[2:])
            except (RejectedRule, UnclosedParenthesis, InvalidRule) as refused:
                found.add(NAMES.sub("#", str(refused)[:60]))
                continue
            same_user(user)
            found |= {
                (at, min(user.denial_code(access_request), 1 << 40) >> 32)
                for at, access_request in enumerate(WISHES)
            }
            found |= {
                (
                    user.may_subscribe(b"news.1", False),
                    user.may_subscribe(b"n*", True),
                    len(user.selectors) > 1,
                )
            }
    lines = [users.user_file_lines()]
    for _ in range(2):
        again = Users(CATALOGUE)
        again.replace_all(parse_user_file("users", b"\n".join(lines[-1])))
        lines.append(again.user_file_lines())
    assert lines[2] == lines[1]
    whole = Users(CATALOGUE)
    whole.replace_all(parse_user_file("users", data))
    return found | {("whole", len(whole.user_file_lines()))}


def configure(data: bytes) -> set[Hashable]:
    """A configuration: read, shown, written anew, and read again as what it was."""
    config = Config()
    config.read_lines("headrace.conf", data.split(b"\n"), INCLUDE_DEPTH_MAX)
    fresh = rewritten(config, b"")
    again = Config()
    again.read_lines("again", fresh.split(b"\n"), INCLUDE_DEPTH_MAX)
    changed = {
        name
        for name in config.values
        if config.values[name] != DIRECTIVES_BY_NAME[name].kind.parse([DIRECTIVES_BY_NAME[name].default])
    }
    for name, directive in DIRECTIVES_BY_NAME.items():
        if name != "user":
            assert again.values[name] == config.values[name], (name, config.values[name], again.values[name])
            assert directive.kind.parse([config.formatted_value(name)]) == config.values[name], name
    found: set[Hashable] = {*changed, len(config.warnings) > 0}
    pairs = [line.split(None, 1) for line in data.split(b"\n")]
    try:
        config.set([(pair[0], pair[1]) for pair in pairs if len(pair) == 2])
    except CommandError as refused:
        found.add(NAMES.sub("#", str(refused)[-40:]))
    return found


def spark_options(data: bytes) -> set[Hashable]:
    """Options of Spark: where they are for, then a name, a blank and a value a line."""
    where, *lines = data.decode("utf-8", "replace").split("\n")
    pairs = dict(line.partition(" ")[::2] for line in lines)
    log.disabled = True  # it warns of what is ignored
    try:
        options = parse_options(pairs, where if where in ("stream", "sink") else "batch")
    finally:
        log.disabled = False
    return {(name, type(value)) for name, value in vars(options).items() if value is not None}


def address(data: bytes) -> set[Hashable]:
    """A server's address."""
    found = parse_server_url(data.decode("utf-8", "replace"))
    assert all(name and 0 <= port < 65536 for name, port in found.hosts)
    return {(found.kind, len(found.hosts), found.service == "", *sorted(found.settings))}


# ---- commands


def replies_in(answer: bytes) -> list[object]:
    """The whole replies that an answer is made of."""
    parser = ReplyParser()
    parser.feed(answer + b":77\r\n")  # a reply that must be the last one
    found: list[object] = []
    while (reply := parser.next()) is not INCOMPLETE:
        assert not (isinstance(reply, CommandError) and "internal error" in str(reply)), reply
        found.append(reply)
    assert found.pop() == 77
    return found


def too_much(words: list[bytes]) -> bool:
    """Whether the request is for a string of up to half a gigabyte, as it may be."""
    return (
        words[0].lower() == b"setrange"
        and len(words) > 2
        and words[2].strip(b"+-").isdigit()
        and int(words[2]) > SHORT_STRING
    )


def run_commands(data: bytes) -> set[Hashable]:
    """Requests, as a server would read them, for a few clients of one engine: replies, and sound data."""
    engine = Engine()
    sessions = [engine.create_session() for _ in range(SESSIONS)]
    for line in SETUP.split(b";"):
        engine.execute(sessions[0], line.split(), NOW)
    sessions[0].reply.take()
    engine.set_effect_recording(True)
    if data[-1:] != b"\n":  # also with little memory, of which the oldest entries are let go
        engine.keyspace.memory.limit = engine.keyspace.memory.total + LITTLE_BYTES
        engine.keyspace.settings.stream_node_max_entries = 2
        engine.write_gate.eviction.policy = STREAM_OLDEST
    found: set[Hashable] = set()
    parser = RequestParser()
    parser.unauthenticated = data[:1] == b"P"  # of whom little is taken
    parser.feed(data)
    now, turn = NOW, 0
    try:
        while (words := parser.next()) is not None:
            now += 1
            free = [session for session in sessions if session.waiter is None and not session.closing]
            if not free:
                break
            session = free[turn % len(free)]
            turn += words[0][:1].isupper() or words[0][:2] == b"xr"
            if too_much(words):
                continue
            engine.execute(session, words, now)
            for one in sessions:
                for reply in replies_in(one.reply.take()):
                    is_error = isinstance(reply, CommandError)
                    shape = NAMES.sub("#", str(reply)[:40]) if is_error else type(reply)
                    found.add((words[0].lower()[:12], shape))
            engine.take_woken()
            engine.killed_sessions.clear()
    except ProtocolError:
        pass
    engine.tick(now + 100_000_000)
    for database in engine.keyspace.databases:
        for value in database.values.values():
            if isinstance(value, Stream):
                value.check()
        database.flush()
    for session in sessions:
        engine.close(session)
    assert engine.keyspace.memory.total == 0, "what was weighed in was not weighed out"
    return found


COMMAND_WORDS = [
    *(command.name.upper() + b" " for command in COMMANDS),
    *(sub.name.replace(b"|", b" ") + b" " for command in COMMANDS for sub in command.unique_subcommands()),
    *(word + b" " for word in MORE_WORDS.split()),
    b"*2\r\n$3\r\nGET\r\n$1\r\n",
    *[b"\r\n"] * 20,
]
URLS = b"""redis:// rediss:// unix:// sentinel:// sentinels:// cluster:// clusters:// user:password@
localhost 127.0.0.1 :6379 [::1] /0 /service /service/1 , ?db=1 ?socket_timeout=1.5 ?ssl_cert_reqs=none ? &
= % %40 # @ :99999 ?max_connections=x ?protocol=3 ?health_check_interval= \xc3\xa9"""
RULE_WORDS = [*(b" " + word + b" " for word in RULES.split()), b"\nuser a "]
SETTINGS = [b"yes", b"no", b'""', b"64mb", b"1gb", b"normal 0 0 0", b"include x\n"]
DIRECTIVE_WORDS = [*(b"\n" + d.name.encode() + b" " for d in DIRECTIVES), *SETTINGS]
VALUES = b"""{"orders":"1-1"} [] ["a"] 64m 5s latest earliest 1e999 2023-11-14T22:13:20Z true FAILFAST
\nstream\n"""
OPTION_WORDS = [*(b"\n" + o.name.encode() + b" " for o in OPTIONS), *VALUES.split(b" "), b"sink\n"]
TARGETS = [
    Target("users", change_users, (InvalidUserFile,), RULE_WORDS, executions=(300, 2000)),
    Target("config", configure, (UsageError,), DIRECTIVE_WORDS, executions=(500, 3000), size_max=600),
    Target("options", spark_options, (UsageError,), OPTION_WORDS, executions=(1500, 2500), size_max=500),
    Target("address", address, (UsageError,), URLS.split(), executions=(3000, 6000), size_max=200),
    Target("commands", run_commands, (), COMMAND_WORDS, executions=(150, 800), size_max=1500),
]
