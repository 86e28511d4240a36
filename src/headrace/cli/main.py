"""The program: its commands, and the one place where what went wrong becomes a line and an exit code.

0    done
1    it could not be done: no server there, the server refused, the query failed
2    bad input: a wrong option, file or value
130  interrupted with Ctrl-C
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import signal
import sys
from types import FrameType

import click

from headrace import HeadraceError, __version__
from headrace.cli.output_errors import OutputLostError
from headrace.console.escaping import EscapingFormatter, one_line
from headrace.errors import UsageError
from headrace.pipeline.suggestions import did_you_mean

# A command lives in the module of its name and is loaded only when it is used.
COMMANDS = {
    "ack": "Acknowledge entries for a consumer group.",
    "add": "Add entries to a stream.",
    "archive": "Write streams to Parquet files, a directory a stream and day.",
    "check": "Say what a snapshot or a log holds, and what is wrong with it.",
    "demo": "A year of real flights: stream, Spark, Parquet archive, chart.",
    "groups": "List the consumer groups of a stream: consumers, lag, pending.",
    "inspect": "Draw a stream as it lies in memory: tree, nodes, pending lists.",
    "load": "Load a CSV, JSON lines or Parquet file into a stream.",
    "ls": "List the streams: entries, times, memory, groups.",
    "pending": "List the entries that a group has not acknowledged.",
    "query": "Ask streams, and their archives, in SQL.",
    "replay": "Add entries of the past to a stream, at their own speed or faster.",
    "serve": "Run the server.",
    "tail": "Print the last entries of streams, and those that come.",
    "top": "Watch a server: throughput, streams, groups, lag, memory.",
    "trim": "Remove from streams what is archived and acknowledged.",
}

OUTPUT_GONE = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT}


class Program(click.Group):
    """The commands of COMMANDS, each imported on first use."""

    def list_commands(self, context: click.Context) -> list[str]:
        """The names, in the order of the alphabet."""
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command, or None if there is none of that name."""
        if name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(f"headrace.cli.{name}")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "headrace":
                raise
            package = (error.name or "").partition(".")[0]
            raise UsageError(f"{name} needs {package}: pip install {package}") from error
        command: click.Command = module.command
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names. UsageError names the one that may be meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(
                f"No such command {args[0]!r}{did_you_mean(args[0], COMMANDS) or '.'}", context
            )
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in --help, written from COMMANDS so that nothing needs importing."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.command(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `headrace demo`, or with `headrace serve` and any Redis client.",
)
@click.version_option(__version__, prog_name="headrace", message="%(prog)s %(version)s")
def program() -> None:
    """Redis Streams for Python, all the way into Spark."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the program and returns its exit code; what is wrong is said in one line on stderr."""
    previous = signal.signal(signal.SIGTERM, stop_cleanly)
    if logging.lastResort is not None:  # what warnings of a job come out of
        logging.lastResort.setFormatter(EscapingFormatter("%(message)s"))
    try:
        result = program.main(arguments, prog_name="headrace", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return 2
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "headrace"
        return complain(f"{error.format_message()} (see {where} --help)", 2)
    except click.ClickException as error:
        return complain(error.format_message(), 2)
    except UsageError as error:
        return complain(str(error), 2)
    except HeadraceError as error:
        return complain(str(error), 1)
    except (KeyboardInterrupt, click.Abort):
        return complain("interrupted", 130)
    except UnicodeEncodeError as error:
        word = error.object[error.start : error.end]
        return complain(f"{word!r} cannot be written in {error.encoding}: {error.reason}", 2)
    except OutputLostError as error:
        return end_output(error.cause)
    except OSError as error:
        if error.errno not in OUTPUT_GONE:
            raise
        return end_output(error)
    finally:
        signal.signal(signal.SIGTERM, previous)


def end_output(error: OSError) -> int:
    """Give up on standard output, which takes no more; return the exit code."""
    # Python would complain again when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:  # its reader has seen enough: `| head`
        return 1
    return complain(f"{error.filename or 'the output'}: {(error.strerror or str(error)).lower()}", 1)


def complain(text: str, code: int) -> int:
    """Says in one line what is wrong; returns the exit code."""
    click.echo(f"headrace: {one_line(text)}", err=True)
    return code


def stop_cleanly(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the program as Ctrl-C does, so that what it started is cleaned up."""
    raise KeyboardInterrupt
