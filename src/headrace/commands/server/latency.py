"""LATENCY: what delayed the server, and the distribution of the commands' durations."""

from __future__ import annotations

from typing import Any

from headrace.commands.call import Call
from headrace.commands.command_rows import server_command, server_container
from headrace.errors import CommandError, to_text

GRAPH_ROWS = 4
GRAPH_COLUMNS = 80

AGE_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def run_latest(call: Call) -> None:
    """LATENCY LATEST: reply with each event's name, latest sample (second, milliseconds) and maximum."""
    events = call.engine.timing.latency_monitor.events
    call.reply.value([[name, *event.samples[-1], event.worst_ms] for name, event in events.items()])


def run_history(call: Call) -> None:
    """LATENCY HISTORY: reply with an event's samples, oldest first: second and milliseconds."""
    event = call.engine.timing.latency_monitor.events.get(call.argv[2])
    call.reply.value([list(sample) for sample in event.samples] if event is not None else [])


def run_reset(call: Call) -> None:
    """LATENCY RESET: delete these events, or all; reply how many existed."""
    call.reply.integer(call.engine.timing.latency_monitor.reset(call.argv[2:]))


def run_histogram(call: Call) -> None:
    """LATENCY HISTOGRAM: reply with the commands' calls and their cumulative counts by microseconds."""
    wanted = {word.lower() for word in call.argv[2:]}
    found: dict[bytes, Any] = {}
    for timed in call.engine.stats.rows:
        name = timed.command.name
        if timed.latency_histogram is None or (wanted and not {name, name.partition(b"|")[0]} & wanted):
            continue
        octaves = dict(timed.latency_histogram.cumulative_buckets())
        found[name] = {b"calls": timed.latency_histogram.total_count(), b"histogram_usec": octaves}
    call.reply.value(found)


def run_doctor(call: Call) -> None:
    """LATENCY DOCTOR: reply with a report in words."""
    threshold = call.keyspace.settings.latency_monitor_threshold
    events = call.engine.timing.latency_monitor.events
    if not events:
        if threshold:
            text = f"Nothing has taken {threshold} ms or longer since the last LATENCY RESET."
        else:
            text = "Events are not recorded: latency-monitor-threshold, in milliseconds, is 0."
        call.reply.verbatim(text.encode() + b"\n")
        return
    lines = [f"{len(events)} kind(s) of events delayed the server:", ""]
    for number, (name, event) in enumerate(events.items(), 1):
        seconds = max(call.now // 1000 - event.samples[0][0], 0) / len(event.samples)
        lines.append(
            f"{number}. {name.decode()}: {len(event.samples)} times (mean {event.average_ms():.0f} ms, mean"
            f" deviation {event.deviation_ms():.0f} ms, every {seconds:.2f} s). Worst: {event.worst_ms} ms."
        )
    lines += ["", "What may help:"]
    if b"command" in events or b"fast-command" in events:
        lines.append("- SLOWLOG GET shows the requests, if slowlog-log-slower-than is set.")
        lines.append("- A range of many entries, or a trim of many, is cheaper in pieces: COUNT and LIMIT.")
    call.reply.verbatim("\n".join(lines).encode() + b"\n")


def run_graph(call: Call) -> None:
    """LATENCY GRAPH: reply with a bar chart of an event's latest samples and their age."""
    event = call.engine.timing.latency_monitor.events.get(call.argv[2])
    if event is None:
        shown = to_text(call.argv[2])
        raise CommandError(f"ERR No samples available for event '{shown}'")
    samples = list(event.samples)[-GRAPH_COLUMNS:]
    heights = [ms for _, ms in samples]
    low, high = min(heights), max(heights)
    name = call.argv[2].decode("utf-8", "replace")
    lines = [
        f"{name} - high {high} ms, low {low} ms (all time high {event.worst_ms} ms)",
        "-" * GRAPH_COLUMNS,
    ]
    lines += bar_chart_lines(heights) + vertical_labels(
        [format_age(call.now // 1000 - at) for at, _ in samples]
    )
    call.reply.verbatim("\n".join(lines).encode() + b"\n")


def bar_chart_lines(heights: list[int]) -> list[str]:
    """Return the lines of a bar chart, from the top."""
    low, span = min(heights), max(max(heights) - min(heights), 1)
    tops = [1 + (height - low) * (GRAPH_ROWS - 1) // span for height in heights]
    return [
        "".join("#" if top == level else "|" if top > level else " " for top in tops)
        for level in range(GRAPH_ROWS, 0, -1)
    ]


def format_age(seconds: int) -> str:
    """Return a duration as short text: 5s, 3m, 2h, 1d."""
    for length, unit in AGE_UNITS:
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return "now"


def vertical_labels(labels: list[str]) -> list[str]:
    """Return the labels side by side, each written from top to bottom."""
    return ["".join(label[at : at + 1] or " " for label in labels) for at in range(max(map(len, labels)))]


EVENT_TIPS = "nondeterministic_output request_policy:all_nodes response_policy:special"

SUBCOMMANDS = [
    server_command(
        "latency|latest",
        2,
        run_latest,
        "2.8.13",
        "Returns the latest latency events.",
        tips=EVENT_TIPS,
    ),
    server_command(
        "latency|history",
        3,
        run_history,
        "2.8.13",
        "Returns samples of an event.",
        "event",
        tips=EVENT_TIPS,
    ),
    server_command(
        "latency|reset",
        -2,
        run_reset,
        "2.8.13",
        "Deletes events.",
        "[event [event ...]]",
        tips="request_policy:all_nodes response_policy:agg_sum",
    ),
    server_command(
        "latency|doctor",
        2,
        run_doctor,
        "2.8.13",
        "Reports latency problems.",
        tips=EVENT_TIPS,
    ),
    server_command(
        "latency|graph",
        3,
        run_graph,
        "2.8.13",
        "Draws the samples of an event.",
        "event",
        tips=EVENT_TIPS,
    ),
    server_command(
        "latency|histogram",
        -2,
        run_histogram,
        "7.0.0",
        "Returns distributions.",
        "[command ...]",
        tips=EVENT_TIPS,
    ),
]

COMMANDS = [server_container("latency", "2.8.13", "Latency events.", SUBCOMMANDS)]
