"""Write docs/commands.md, docs/options.md and the tables in docs/directives.md and docs/rules.md.

With `--check` only compare.

python scripts/reference.py [--check]
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from headrace.commands.spec import Command
from headrace.commands.table import COMMANDS
from headrace.server.config.directives import DIRECTIVES
from headrace.spark.options import OPTIONS
from headrace.streams.rules import GroupRules, StreamRules

DOCS = Path(__file__).parent.parent / "docs"
GENERATED = "*Generated from the code by `scripts/reference.py`; a test checks that it is current.*"
GROUPS = {
    "stream": "Streams",
    "string": "Strings",
    "generic": "Keys",
    "transactions": "Transactions",
    "pubsub": "Channels",
    "scripting": "Scripts",
    "connection": "Connection",
    "server": "Server",
    "cluster": "Cluster",
}


def cell(text: str) -> str:
    """Escape text for a table cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def rows_of(command: Command) -> list[Command]:
    """Return the command, or the subcommands of a container command; CLUSTER's are all rejected alike."""
    if command.group == "cluster":
        return [command]
    return command.unique_subcommands() or [command]


def commands() -> str:
    """Return docs/commands.md."""
    found = [row for command in COMMANDS for row in rows_of(command)]
    order = list(GROUPS)
    found.sort(key=lambda c: (order.index(c.group), c.name))
    lines = ["# Commands", "", GENERATED, ""]
    for group, rows in groupby(found, key=lambda c: c.group):
        lines += [
            f"## {GROUPS[group]}",
            "",
            "| command | what it does | since Redis | cost |",
            "|---|---|---|---|",
        ]
        for row in rows:
            name = row.name.decode().replace("|", " ").upper()
            words = cell(f"{name} {row.syntax}".strip())
            lines.append(f"| `{words}` | {cell(row.summary)} | {row.since} | {cell(row.complexity)} |")
        lines.append("")
    return "\n".join(lines)


def options() -> str:
    """Return docs/options.md."""
    lines = ["# Options", "", GENERATED, "", '## Spark: `format("headrace")`', ""]
    lines += ["| option | value | default | for | |", "|---|---|---|---|---|"]
    for option in OPTIONS:
        names = ", ".join(f"`{name}`" for name in (option.name, *option.aliases))
        default = "" if option.default is None else f"`{option.default}`"
        where = ", ".join(option.scopes)
        lines.append(f"| {names} | {cell(option.type)} | {default} | {where} | {cell(option.help)} |")
    lines += ["", "The server's directives are in [directives.md](directives.md)."]
    return "\n".join([*lines, ""])


def directives() -> str:
    """Return docs/directives.md with the current table."""
    lines = ["| directive | takes | default | CONFIG SET | |", "|---|---|---|---|---|"]
    for directive in DIRECTIVES:
        default = f"`{directive.default}`" if directive.default else ""
        about = cell(
            directive.about + (f" ({directive.only_value_reason})" if directive.only_value_reason else "")
        )
        mutable = "yes" if directive.mutable else "no"
        syntax = directive.kind.syntax
        names = ", ".join(f"`{name}`" for name in (directive.name, directive.alias) if name)
        lines.append(f"| {names} | {syntax} | {default} | {mutable} | {about} |")
    return with_table((DOCS / "directives.md").read_text(), "directives", lines)


def rules() -> str:
    """Return docs/rules.md with the current tables."""
    text = (DOCS / "rules.md").read_text()
    for name, kind in (("stream rules", StreamRules), ("group rules", GroupRules)):
        lines = ["| rule | takes | | requires |", "|---|---|---|---|"]
        for _, rule in kind.declarations().values():
            requires = " or ".join(f"`{other}`" for other in rule.requires)
            lines.append(f"| `{rule.name}` | {rule.accepted_values} | {cell(rule.summary)} | {requires} |")
        text = with_table(text, name, lines)
    return text


def with_table(text: str, name: str, lines: list[str]) -> str:
    """Return the text with the lines between the marks of this name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return "\n".join([before + begin, GENERATED, "", *lines, end + after])


PAGES = {"commands.md": commands, "options.md": options, "directives.md": directives, "rules.md": rules}


def main(arguments: list[str]) -> int:
    stale = [name for name, page in PAGES.items() if (DOCS / name).read_text() != page()] if arguments else []
    if stale:
        print(f"stale: {', '.join(stale)}; run python scripts/reference.py", file=sys.stderr)
        return 1
    if not arguments:
        for name, page in PAGES.items():
            (DOCS / name).write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
