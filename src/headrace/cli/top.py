"""`headrace top`: a server live, in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import click
from rich.console import Console, RenderableType
from rich.live import Live

from headrace.cli.streams import url_option
from headrace.cli.values import finite
from headrace.client.connection_errors import explain_connection_errors
from headrace.client.servers import Servers
from headrace.client.url import parse_server_url, without_password
from headrace.console.server_stats import Request, SendPipeline, collect_stats
from headrace.console.top_picture import ORDERS, History, server_lines, top_picture
from headrace.errors import UsageError

MEMORY_EVERY = 10  # frames: a server goes through all nodes of a stream to tell its memory
TABLE_LINES = 3  # of a frame: an empty one, the titles, and how many streams are left out


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
    callback=finite,
    default=1.0,
    show_default=True,
    help="Seconds between frames.",
)
@click.option(
    "--order", type=click.Choice(ORDERS), default="rate", show_default=True, help="What comes first."
)
@click.option("--once", is_flag=True, help="Print one frame, after --every seconds, and end.")
def command(url: str, every: float, order: str, once: bool) -> None:
    """Watch a server: throughput, streams, groups, lag, oldest pending entries, memory; Ctrl-C ends it.

    Works with any Redis or Valkey server.
    """
    where = without_password(url)
    if parse_server_url(url).kind == "cluster":
        raise UsageError(f"{where}: name one server of the cluster, as redis://host:port")
    console = Console(highlight=False)
    history = History()
    with asking(url) as ask:
        history.add(collect_stats(ask, consumers=False, memory=True))
        if once:
            time.sleep(every)
            history.add(collect_stats(ask, consumers=False))
            console.print(top_picture(history, where, order, None))
            return
        frames = 0
        with screen(console) as draw, suppress(KeyboardInterrupt):
            while True:
                lines = lines_for_streams(console, history, where) if console.is_terminal else None
                draw(top_picture(history, where, order, lines))
                time.sleep(every)
                frames += 1
                history.add(collect_stats(ask, consumers=False, memory=frames % MEMORY_EVERY == 0))


def lines_for_streams(console: Console, history: History, where: str) -> int:
    """Return how many lines of the screen are left for streams; a narrow one wraps the server's lines."""
    assert history.now is not None
    head = console.render_lines(server_lines(history, history.now, where), pad=False)
    return max(console.height - len(head) - TABLE_LINES, 1)


@contextmanager
def screen(console: Console) -> Iterator[Callable[[RenderableType], object]]:
    """Where frames are drawn: each in the place of the one before, or below it where there is no terminal."""
    if not console.is_terminal:
        yield console.print
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield partial(live.update, refresh=True)


@contextmanager
def asking(url: str) -> Iterator[SendPipeline]:
    """A way to ask the server at url; it raises HeadraceError when that is lost, or says no."""
    with Servers(url, reconnect_timeout=0) as servers:

        def ask(requests: list[Request]) -> list[object]:
            with explain_connection_errors(url):
                pipe = servers.client().pipeline(transaction=False)
                for words in requests:
                    # As bytes no name of a command is known to redis-py: it leaves the answer as it is.
                    pipe.execute_command(
                        *(word.encode() if isinstance(word, str) else word for word in words)
                    )
                answers: list[object] = pipe.execute(raise_on_error=False)
                return answers

        yield ask
