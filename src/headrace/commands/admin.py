"""CONFIG MEMORY LATENCY SLOWLOG TIME WAIT ROLE SHUTDOWN: the server as its operator sees it."""

from __future__ import annotations

from collections.abc import Callable

from headrace.commands.arguments import Arguments, parse_i64
from headrace.commands.call import Call
from headrace.commands.client import parse_timeout
from headrace.commands.help import help_row
from headrace.commands.spec import Command
from headrace.errors import CommandError, NotAnInteger, SyntaxRefused
from headrace.streams.stream import Stream
from headrace.structures import footprint

# A key's place in a dictionary: hash, key and value, at the two thirds it is full on average, and an index.
PLACE_BYTES = 24 * 3 // 2 + 8


class SlowlogCount(CommandError):
    text = "ERR count should be greater than or equal to -1"


class NotShuttingDown(CommandError):
    text = "ERR No shutdown in progress."


def run_config_get(call: Call) -> None:
    """The settings whose names match, as a map."""
    found = call.host.config_get(call.argv[2:])
    call.answer.map(len(found))
    for name, value in found:
        call.answer.bulk(name)
        call.answer.bulk(value)


def run_config_set(call: Call) -> None:
    """Set all of the given settings or none."""
    words = call.argv[2:]
    if len(words) % 2:
        raise SyntaxRefused()
    pairs = list(zip(words[::2], words[1::2], strict=True))
    seen: set[bytes] = set()
    known = {name for name, _ in call.host.config_get([b"*"])}
    for name, _ in pairs:
        lower = name.lower()
        if lower in seen and lower in known:
            shown = name.decode("utf-8", "surrogateescape")
            text = f"ERR CONFIG SET failed (possibly related to argument '{shown}') - duplicate parameter"
            raise CommandError(text)
        seen.add(lower)
    call.host.config_set(pairs)
    call.answer.ok()


def run_config_resetstat(call: Call) -> None:
    """Set what INFO counts to zero."""
    call.engine.stats.reset()
    call.keyspace.hits = 0
    call.keyspace.misses = 0
    call.keyspace.expired = 0
    call.host.config_resetstat()
    call.answer.ok()


def run_config_rewrite(call: Call) -> None:
    """Write the settings to the configuration file."""
    call.host.config_rewrite()
    call.answer.ok()


def memory_of(key: bytes, value: object) -> int:
    """The bytes that key and value take up, their place in the dictionary included."""
    size = value.memory_bytes() if isinstance(value, Stream) else footprint.of(value)
    return PLACE_BYTES + footprint.of(key) + size


def run_memory_usage(call: Call) -> None:
    """The bytes a key takes up, or null. SAMPLES is read and not needed: the figure is exact."""
    arguments: Arguments = call.arguments()
    key = arguments.word()
    while arguments.more():
        if not arguments.option(b"SAMPLES"):
            raise SyntaxRefused()
        if arguments.integer() < 0:
            raise SyntaxRefused()
    value = call.database.find(key)
    if value is None:
        call.answer.null()
    else:
        call.answer.integer(memory_of(key, value))


def run_memory_stats(call: Call) -> None:
    """What the process holds."""
    figures = dict(call.host.info("memory"))
    keys = sum(len(database.values) for database in call.keyspace.databases)
    call.answer.value(
        {
            b"peak.allocated": figures.get("used_memory_peak", 0),
            b"total.allocated": figures.get("used_memory", 0),
            b"keys.count": keys,
        }
    )


def run_memory_doctor(call: Call) -> None:
    """A word on the state of the memory."""
    call.answer.verbatim(
        b"Nothing to report: headrace keeps no statistics that could show a memory problem.\n"
    )


def run_memory_purge(call: Call) -> None:
    """Memory is given back as it becomes free."""
    call.answer.ok()


def run_latency_latest(call: Call) -> None:
    """No latency events are recorded."""
    call.answer.array(0)


def run_latency_reset(call: Call) -> None:
    """No events, none forgotten."""
    call.answer.integer(0)


def run_latency_histogram(call: Call) -> None:
    """No histograms are kept."""
    call.answer.map(0)


def run_latency_doctor(call: Call) -> None:
    """A word on latency."""
    call.answer.verbatim(b"Nothing to report: headrace does not record latency events.\n")


def run_latency_graph(call: Call) -> None:
    """There is nothing to draw."""
    shown = call.argv[2].decode("utf-8", "surrogateescape")
    raise CommandError(f"ERR No samples available for event '{shown}'")


def run_slowlog_get(call: Call) -> None:
    """The slow requests: none are recorded."""
    if len(call.argv) > 2:
        try:
            count = parse_i64(call.argv[2])
        except NotAnInteger:
            raise SlowlogCount() from None
        if count < -1:
            raise SlowlogCount()
    call.answer.array(0)


def run_slowlog_len(call: Call) -> None:
    """How many slow requests are recorded."""
    call.answer.integer(0)


def run_slowlog_reset(call: Call) -> None:
    """Forget the slow requests."""
    call.answer.ok()


def run_time(call: Call) -> None:
    """Seconds and microseconds since 1970."""
    call.answer.array(2)
    call.answer.bulk(b"%d" % (call.now // 1000))
    call.answer.bulk(b"%d" % (call.now % 1000 * 1000 + call.host.microseconds()))


def never(call: Call) -> bool:
    """A waiter that only its deadline can end."""
    return False


def run_wait(call: Call) -> None:
    """How many replicas have all of the caller's writes: none; asked for more, it waits in vain for them."""
    replicas = parse_i64(call.argv[1])
    deadline = parse_timeout(call.argv[2], call.now)
    if replicas <= 0 or not call.may_block:
        call.answer.integer(0)
    else:
        call.wait([], deadline, never, "zero")


def run_role(call: Call) -> None:
    """A master without replicas, as Sentinel wants to know."""
    call.answer.value([b"master", 0, []])


def run_shutdown(call: Call) -> None:
    """Stop the program. There is no answer but the end of the connection, unless it cannot."""
    arguments: Arguments = call.arguments()
    save: bool | None = None
    now = force = False
    if arguments.left() == 1 and arguments.flag(b"ABORT"):
        raise NotShuttingDown()
    while arguments.more():
        if save is not False and arguments.flag(b"SAVE"):
            save = True
        elif save is not True and arguments.flag(b"NOSAVE"):
            save = False
        elif arguments.flag(b"NOW"):
            now = True
        elif arguments.flag(b"FORCE"):
            force = True
        else:
            raise SyntaxRefused()
    call.host.shutdown(save, now, force)
    call.session.closing = True


def row(
    name: str,
    arity: int,
    run: Callable[[Call], None],
    since: str,
    summary: str,
    syntax: str = "",
    flags: str = "admin noscript loading stale",
) -> Command:
    """A row of the server group."""
    return Command(name, arity, run, flags, group="server", since=since, summary=summary, syntax=syntax)


def container(name: str, since: str, summary: str, subcommands: list[Command]) -> Command:
    """The row of a command that is nothing but its subcommands."""
    return Command(
        name,
        -2,
        None,
        group="server",
        since=since,
        summary=summary,
        complexity="Depends on the subcommand",
        subcommands=[*subcommands, help_row(name, subcommands)],
    )


CONFIG = [
    row("config|get", -3, run_config_get, "2.0.0", "Returns settings.", "parameter [parameter ...]"),
    row(
        "config|set",
        -4,
        run_config_set,
        "2.0.0",
        "Changes settings.",
        "parameter value [parameter value ...]",
    ),
    row("config|resetstat", 2, run_config_resetstat, "2.0.0", "Sets the counters of INFO to zero."),
    row("config|rewrite", 2, run_config_rewrite, "2.8.0", "Writes the settings to the configuration file."),
]

MEMORY = [
    Command(
        "memory|usage",
        -3,
        run_memory_usage,
        "readonly",
        keys=(2, 2, 1),
        group="server",
        since="4.0.0",
        summary="Returns how many bytes a key takes up.",
        syntax="key [SAMPLES count]",
    ),
    row("memory|stats", 2, run_memory_stats, "4.0.0", "Returns memory figures.", flags=""),
    row("memory|doctor", 2, run_memory_doctor, "4.0.0", "Reports memory problems.", flags=""),
    row("memory|purge", 2, run_memory_purge, "4.0.0", "Gives memory back to the system.", flags=""),
]

LATENCY = [
    row("latency|latest", 2, run_latency_latest, "2.8.13", "Returns the latest latency events."),
    row("latency|history", 3, run_latency_latest, "2.8.13", "Returns samples of an event.", "event"),
    row("latency|reset", -2, run_latency_reset, "2.8.13", "Forgets events.", "[event [event ...]]"),
    row("latency|doctor", 2, run_latency_doctor, "2.8.13", "Reports latency problems."),
    row("latency|graph", 3, run_latency_graph, "2.8.13", "Draws the samples of an event.", "event"),
    row("latency|histogram", -2, run_latency_histogram, "7.0.0", "Returns distributions.", "[command ...]"),
]

SLOWLOG = [
    row(
        "slowlog|get",
        -2,
        run_slowlog_get,
        "2.2.12",
        "Returns the slowest requests.",
        "[count]",
        flags="admin loading stale",
    ),
    row(
        "slowlog|len",
        2,
        run_slowlog_len,
        "2.2.12",
        "Counts the recorded requests.",
        flags="admin loading stale",
    ),
    row(
        "slowlog|reset",
        2,
        run_slowlog_reset,
        "2.2.12",
        "Forgets the recorded requests.",
        flags="admin loading stale",
    ),
]

COMMANDS = [
    container("config", "2.0.0", "The server's settings.", CONFIG),
    container("memory", "4.0.0", "Memory figures.", MEMORY),
    container("latency", "2.8.13", "Latency events.", LATENCY),
    container("slowlog", "2.2.12", "Slow requests.", SLOWLOG),
    row("time", 1, run_time, "2.6.0", "Returns the server's time.", flags="loading stale fast"),
    Command(
        "wait",
        3,
        run_wait,
        "blocking",
        group="generic",
        since="3.0.0",
        summary="Waits until replicas have the caller's writes.",
        syntax="numreplicas timeout",
        categories="connection",
    ),
    Command(
        "role",
        1,
        run_role,
        "noscript loading stale fast",
        group="server",
        since="2.8.12",
        summary="Returns the server's part in replication.",
        categories="admin dangerous",
    ),
    row(
        "shutdown",
        -1,
        run_shutdown,
        "1.0.0",
        "Stops the server.",
        "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
        "admin noscript loading stale no_multi allow_busy",
    ),
]
