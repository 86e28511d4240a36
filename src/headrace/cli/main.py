"""The program: its commands, and the conversion of errors to a line on stderr and an exit code.

0    done
1    failed: no server, the server rejected a command, the query failed
2    wrong input: an option, a file, a value
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
from headrace.errors import UsageError, os_error_text
from headrace.suggestions import suggestion_suffix

# Each command is in the module of its name in commands, which is imported when it is used.
SUMMARY_BY_COMMAND = {
    "ack": "Acknowledge entries for a consumer group.",
    "add": "Add entries to a stream.",
    "archive": "Copy streams to an archive: a Delta table, by stream and day.",
    "check": "Check a snapshot, a log or an archive for damage.",
    "demo": "Run a demo: a year of flights, a Spark query, an archive, a chart.",
    "export": "Write all data into a snapshot for redis-server.",
    "groups": "List the consumer groups of a stream: consumers, lag, pending.",
    "inspect": "Draw a stream as stored in memory: tree, nodes, pending lists.",
    "load": "Load a CSV, JSON lines or Parquet file into a stream.",
    "ls": "List the streams: entries, times, memory, groups.",
    "pending": "List the entries that a group has not acknowledged.",
    "query": "Query streams and archives in SQL.",
    "recover": "List entries that only a former primary had, and add them again.",
    "replay": "Add the entries of a stream or archive to a stream again.",
    "rules": "Show, set and explain the rules of a stream: retention, redelivery.",
    "serve": "Run the server.",
    "tail": "Print the last entries of streams, and follow them.",
    "top": "Watch a server: throughput, streams, groups, lag, memory.",
    "trim": "Remove entries that are archived and acknowledged.",
}

OUTPUT_ERRNOS = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT}


class Program(click.Group):
    """The commands of SUMMARY_BY_COMMAND, each imported on first use."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names in alphabetical order."""
        return sorted(SUMMARY_BY_COMMAND)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import and return a command; None if there is none of that name.

        Raises UsageError if a package that it needs is not installed.
        """
        if name not in SUMMARY_BY_COMMAND:
            return None
        try:
            module = importlib.import_module(f"headrace.cli.commands.{name}")
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
        """Return the command that the first argument names. click.UsageError if there is none."""
        if args and args[0] not in SUMMARY_BY_COMMAND and not args[0].startswith("-"):
            text = f"unknown command {args[0]!r}{suggestion_suffix(args[0], SUMMARY_BY_COMMAND)}"
            raise click.UsageError(text, context)
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list in --help from SUMMARY_BY_COMMAND, so that no command is imported."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(SUMMARY_BY_COMMAND.items()))


@click.command(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `headrace demo`, or with `headrace serve` and any Redis client.",
)
@click.version_option(__version__, prog_name="headrace", message="%(prog)s %(version)s")
def program() -> None:
    """Redis Streams in Python: a server, everyday commands, and pipelines with Spark."""


def main(arguments: list[str] | None = None) -> int:
    """Run the program and return its exit code. An error is printed as one line on stderr."""
    previous = signal.signal(signal.SIGTERM, on_sigterm)
    if sys.stdout is None:  # it was closed: `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if logging.lastResort is not None:  # the handler that prints warnings
        logging.lastResort.setFormatter(EscapingFormatter("%(message)s"))
    try:
        result = program.main(arguments, prog_name="headrace", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return 2
    except click.UsageError as error:
        name = error.ctx.command_path if error.ctx else "headrace"
        text = error.format_message()
        if isinstance(error, click.NoSuchOption):
            text = f"unknown option {error.option_name!r}"
            text += suggestion_suffix(error.option_name, error.possibilities or ())
        options = error.ctx.command.params if error.ctx else []
        if "unexpected extra argument" in text and any("--stream" in option.opts for option in options):
            text += "; the option for a stream is --stream NAME"
        return print_error(f"{text} (see {name} --help)", 2)
    except click.ClickException as error:
        return print_error(error.format_message(), 2)
    except UsageError as error:
        return print_error(str(error), 2)
    except HeadraceError as error:
        return print_error(str(error), 1)
    except (KeyboardInterrupt, click.Abort):
        return print_error("interrupted", 130)
    except UnicodeEncodeError as error:
        text = error.object[error.start : error.end]
        return print_error(f"{text!r} cannot be written in {error.encoding}: {error.reason}", 2)
    except OutputLostError as error:
        return abandon_output_exit_code(error.cause)
    except OSError as error:
        if error.errno not in OUTPUT_ERRNOS:
            raise
        return abandon_output_exit_code(error)
    finally:
        signal.signal(signal.SIGTERM, previous)


def abandon_output_exit_code(error: OSError) -> int:
    """Redirect the failed standard output to /dev/null; print the error unless a pipe was closed.

    Returns:
        The exit code.
    """
    # Otherwise Python would report the error again when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:  # the reader closed the pipe, as `| head` does
        return 1
    return print_error(f"{error.filename or 'the output'}: {os_error_text(error)}", 1)


def print_error(text: str, code: int) -> int:
    """Print an error as one line on stderr; return the exit code."""
    click.echo(f"headrace: {one_line(text)}", err=True)
    return code


def on_sigterm(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM like Ctrl-C, so that the program cleans up."""
    raise KeyboardInterrupt
