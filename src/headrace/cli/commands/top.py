"""`headrace top`: watch a server in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live

from headrace.cli.options.option_types import check_finite
from headrace.cli.options.server_options import url_option
from headrace.client.connection_errors import explain_connection_errors
from headrace.client.reply_shapes import check_reply
from headrace.client.servers import Servers
from headrace.client.url import parse_server_url, without_password
from headrace.console.server_stats import Request, SendPipeline, collect_stats
from headrace.console.top_picture import SORT_ORDERS, StatsHistory, head_lines, top_picture
from headrace.errors import UsageError

MEMORY_EVERY_FRAMES = 10  # frames: a server reads all nodes of a stream to compute its memory
TABLE_EXTRA_LINES = 3  # lines of a frame for an empty line, the titles, and the number of streams left out


@click.command(
    "top",
    epilog="""\b
Examples:
  headrace top --url redis://127.0.0.1:7777
  headrace top --order lag --every 5
  headrace top --once
""",
)
@url_option
@click.option(
    "--every",
    type=click.FloatRange(0.1, 86_400),
    callback=check_finite,
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait this long between frames.",
)
@click.option(
    "--order",
    type=click.Choice(SORT_ORDERS),
    default="rate",
    show_default=True,
    help="Sort the streams by this value.",
)
@click.option("--once", is_flag=True, help="Print one frame after --every seconds, and exit.")
def command(url: str, every: float, order: str, once: bool) -> None:
    """Watch a server: throughput, streams, groups, lag, oldest pending entries, memory.

    Ctrl-C exits. Works with any Redis or Valkey server.
    """
    address = without_password(url)
    if parse_server_url(url).kind == "cluster":
        raise UsageError(f"{address}: top shows one server; give a node of the cluster as redis://host:port")
    console = Console(highlight=False)
    history = StatsHistory()
    with request_sender(url) as send:
        history.add(collect_stats(send, consumers=False, memory=True))
        if once:
            time.sleep(every)
            history.add(collect_stats(send, consumers=False))
            console.print(top_picture(history, address, order, None))
            return
        frames = 0
        with frame_drawer(console) as draw, suppress(KeyboardInterrupt):
            while True:
                lines = lines_for_streams(console, history, address) if console.is_terminal else None
                draw(top_picture(history, address, order, lines))
                time.sleep(every)
                frames += 1
                history.add(collect_stats(send, consumers=False, memory=frames % MEMORY_EVERY_FRAMES == 0))


def lines_for_streams(console: Console, history: StatsHistory, address: str) -> int:
    """Return the number of lines for streams; a narrow screen wraps the lines about the server."""
    assert history.latest_stats is not None
    head = console.render_lines(Group(*head_lines(history, history.latest_stats, address)), pad=False)
    return max(console.height - len(head) - TABLE_EXTRA_LINES, 1)


@contextmanager
def frame_drawer(console: Console) -> Iterator[Callable[[RenderableType], object]]:
    """Yield a function that draws a frame: in place on a terminal, otherwise below the previous one."""
    if not console.is_terminal:
        yield console.print
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield partial(live.update, refresh=True)


@contextmanager
def request_sender(url: str) -> Iterator[SendPipeline]:
    """Yield a function that sends requests to a server; it raises HeadraceError if the connection fails."""
    with Servers(url, reconnect_timeout=0) as servers:

        def send(requests: list[Request]) -> list[object]:
            with explain_connection_errors(url):
                pipe = servers.client().pipeline(transaction=False)
                for words in requests:
                    # redis-py does not know command names as bytes, so it does not convert the replies.
                    pipe.execute_command(
                        *(word.encode() if isinstance(word, str) else word for word in words)
                    )
                replies: list[object] = pipe.execute(raise_on_error=False)
            for words, reply in zip(requests, replies, strict=True):
                check_reply(url, words, reply)
            return replies

        yield send
