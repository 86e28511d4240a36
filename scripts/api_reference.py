"""Write docs/api.md from the docstrings of the public API; with `--check` only compare.

python scripts/api_reference.py [--check]

The sources are parsed, not imported, so the page is the same for compiled modules.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"
PAGE = ROOT / "docs" / "api.md"
GENERATED = "*Generated from the code by `scripts/api_reference.py`; a test checks that it is current.*"
WIDTH = 100

# The chapters of the page, in order: (title, [(module, names)]).
CHAPTERS: list[tuple[str, list[tuple[str, list[str]]]]] = [
    (
        "Opening",
        [
            ("headrace.api.database", ["open", "connect", "Database", "DatabaseInfo"]),
            ("headrace.api.local.replica", ["Replica", "ReplicaStatus"]),
        ],
    ),
    (
        "Streams",
        [
            ("headrace.api.stream", ["Stream"]),
            ("headrace.api.entry", ["Entry"]),
            ("headrace.api.arrow_batches", ["ArrowBatches"]),
            ("headrace.api.followers", ["Follower", "AsyncFollower"]),
            ("headrace.api.stream_gaps", ["StreamGap"]),
            ("headrace.api.stream_id", ["StreamID"]),
            ("headrace.api.codecs.codec", ["Codec"]),
            ("headrace.api.rules", ["Retention"]),
            ("headrace.api.info", ["StreamInfo"]),
            ("headrace.api.backend", ["Stop"]),
        ],
    ),
    (
        "Groups",
        [
            ("headrace.api.group", ["Group"]),
            ("headrace.api.retry_policy", ["Backoff"]),
            ("headrace.api.consuming.consumer", ["Consumer"]),
            ("headrace.api.delivery", ["Delivery"]),
            ("headrace.api.batch", ["Batch"]),
            ("headrace.api.consuming.in_flight", ["Counters"]),
            ("headrace.api.consuming.dead_letters", ["DeadLetters", "DeadLetter"]),
            ("headrace.api.info", ["GroupInfo", "ConsumerInfo"]),
            ("headrace.api.group", ["PendingEntry"]),
            ("headrace.api.app", ["App", "HandlerOptions"]),
        ],
    ),
    (
        "SQL",
        [("headrace.pipeline.querying.duckdb_query", ["sql"])],
    ),
    (
        "Jobs",
        [
            ("headrace.pipeline.loading.job", ["load"]),
            ("headrace.pipeline.loading.file_load", ["LoadResult"]),
            ("headrace.pipeline.archiving.job", ["archive", "ArchiveResult"]),
            ("headrace.pipeline.spark_session.query_progress", ["BatchProgress"]),
            ("headrace.pipeline.trimming.job", ["trim", "release"]),
            ("headrace.pipeline.trimming.trim_streams", ["TrimResult"]),
            ("headrace.pipeline.replaying.job", ["replay"]),
            ("headrace.pipeline.replaying.replay_entries", ["ReplayResult"]),
        ],
    ),
    (
        "Spark",
        [
            ("headrace.spark", ["register"]),
            ("headrace.spark.sink.sender", ["write_stream", "write_batches"]),
            ("headrace.spark.sink.marker", ["Marker"]),
            ("headrace.spark.archive_offsets", ["offsets_after_archive"]),
            ("headrace.spark.source.lag", ["progress", "QueryProgress", "StreamProgress"]),
            ("headrace.spark.errors", ["explain"]),
            ("headrace.spark.source.data_loss", ["DataLoss"]),
        ],
    ),
    (
        "Tests",
        [
            ("headrace.testing", ["headrace_db", "headrace_clock", "headrace_client"]),
            ("headrace.api.local.clock", ["ManualClock"]),
        ],
    ),
]

# Used by other modules, but not part of the public API.
HIDDEN = {
    *(
        "Consumer.backend",
        "Consumer.detach_worker",
        "Consumer.stream_and_group_names",
        "Consumer.remove_if_name_generated",
        "Consumer.create_worker",
        "Delivery.reset_for_redelivery",
        "ManualClock.sleep",
        "Replica.on_continue",
        "Replica.on_snapshot_begins",
        "Replica.on_snapshot_bytes",
        "Replica.on_snapshot_complete",
        "Replica.start",
        "Stop.remove_wakeup",
        "Stop.add_wakeup",
    ),
    "Database.engine_session",
    "Marker.error_value",
    "Marker.key",
    "Marker.query_key",
    "Marker.value",
    "Marker.parse_state",
    "Retention.xcfgset_arguments",
    *("ConsumerInfo.from_reply", "GroupInfo.from_reply", "StreamInfo.from_reply"),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def source_of(module: str) -> Path:
    """Return the source file of a module."""
    path = SRC / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


class Sources:
    """The parsed modules of the page, and the definitions in them."""

    def __init__(self) -> None:
        self.definitions: dict[
            str, tuple[str, ast.stmt]
        ] = {}  # by module:name, the module and the definition
        self.lines: dict[str, list[str]] = {}
        for path in [*sorted((SRC / "headrace" / "api").rglob("*.py")), SRC / "headrace" / "errors.py"]:
            self.read(".".join(path.relative_to(SRC).with_suffix("").parts))
        for module in dict.fromkeys(module for _, modules in CHAPTERS for module, _ in modules):
            if module not in self.lines:
                self.read(module)

    def read(self, module: str) -> None:
        """Parse a module and add its classes and functions."""
        text = source_of(module).read_text()
        self.lines[module] = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not is_skipped(
                node
            ):
                self.definitions[f"{module}:{node.name}"] = (module, node)

    def definition(self, module: str, name: str) -> ast.stmt:
        """Return the definition of a name in a module."""
        try:
            return self.definitions[f"{module}:{name}"][1]
        except KeyError:
            raise SystemExit(
                f"{module} has no {name}: correct CHAPTERS in scripts/api_reference.py"
            ) from None

    def bases(self, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """Yield the base classes of a class that are in these modules, nearest first."""
        for base in node.bases:
            name = ast.unparse(base).split("[")[0].split(".")[-1]
            for _, other in self.definitions.values():
                if isinstance(other, ast.ClassDef) and other.name == name and other is not node:
                    yield other
                    yield from self.bases(other)
                    break


def decorators(node: ast.stmt) -> set[str]:
    """Return the names of a definition's decorators."""
    nodes = getattr(node, "decorator_list", [])
    return {ast.unparse(each.func if isinstance(each, ast.Call) else each).split(".")[-1] for each in nodes}


def is_skipped(node: ast.stmt) -> bool:
    """Return whether a definition is an overload, a setter or a deleter."""
    return bool(decorators(node) & {"overload", "setter", "deleter"})


def docstring(node: ast.ClassDef | Function) -> str:
    """Return the docstring; for an error without one, its text on the wire."""
    if text := ast.get_docstring(node):
        return text
    texts = [each.value for each in node.body if isinstance(each, ast.Assign | ast.AnnAssign)]
    return f"`{ast.literal_eval(texts[0])}`" if texts and isinstance(texts[0], ast.Constant) else ""


def signature(node: Function, prefix: str = "", method: bool = False) -> str:
    """Return the signature without self; a long one has one parameter per line."""
    arguments = deepcopy(node.args)
    if method and "staticmethod" not in decorators(node):
        (arguments.posonlyargs or arguments.args).pop(0)
    begin = ("async " if isinstance(node, ast.AsyncFunctionDef) else "") + prefix + node.name
    end = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    parameters = [
        format_parameter(one) for one in split_parameters(ast.unparse(arguments).removeprefix("/, "))
    ]
    inside = ", ".join(parameters)
    if len(begin) + len(inside) + len(end) + 2 > WIDTH:
        inside = "\n" + "".join(f"    {one},\n" for one in parameters)
    return f"{begin}({inside}){end}".replace("'", '"')


def format_parameter(parameter: str) -> str:
    """Return a parameter with spaces, such as `count: int = 3`."""
    name, colon, rest = parameter.partition(": ")
    return f"{name}: {rest.replace('=', ' = ', 1)}" if colon else parameter


OPEN_LAMBDA = re.compile(r"\blambda [^:]*$")  # its parameters are not complete


def split_parameters(arguments: str) -> list[str]:
    """Split at the commas that are outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in arguments:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += (letter in "([{") - (letter in ")]}") if not quote else 0
        if letter == "," and not depth and not quote and not OPEN_LAMBDA.search(parts[-1]):
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def code_section(heading: str, code: str, text: str) -> list[str]:
    """Return the lines of a section: heading, code, docstring."""
    return [heading, "", "```python", code, "```", "", markdown(text), ""]


# How special methods are used.
SPECIAL_METHODS = {
    "__getitem__": "{it}[key]",
    "__len__": "len({it})",
    "__iter__": "iter({it})",
    "__bool__": "bool({it})",
    "__contains__": "key in {it}",
    "__call__": "{it}(…)",
    "__aiter__": "async for … in {it}",
    "__enter__": "with {it}",
}


def dataclass_fields(node: ast.ClassDef, lines: list[str]) -> list[str]:
    """Return the fields of a dataclass as in the source, with their comments."""
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    if "dataclass" not in decorators(node) or not fields:
        return []
    written = [re.sub(r" = field\(.*\)", "", lines[each.lineno - 1].rstrip()) for each in fields]
    return ["```python", f"class {node.name}:", *written, "```", ""]


# A row of a list in columns: a name, two spaces or more, a description.
ROW = re.compile(r"^(\S+(?:,? \S+)*)  +(\S.*)$")


def markdown(text: str) -> str:
    """Convert a docstring to Markdown: lists in columns become tables, examples are fenced."""
    return "\n\n".join(map(paragraph, text.split("\n\n")))


# A section of a docstring in Google style, and an item in it.
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")
ITEM = re.compile(r"^ {4}(\w+): (\S.*)$")


def paragraph(text: str) -> str:
    """Convert one paragraph or section of a docstring."""
    lines = text.splitlines()
    if lines and (found := SECTION.match(lines[0])):
        return section(found[1], lines[1:])
    if lines and lines[0].startswith(">>> "):
        return f"```pycon\n{text}\n```"
    if not all(ROW.match(line) or line.startswith("  ") for line in lines) or lines[0].startswith(" "):
        return wrapped(text)
    rows: list[str] = []
    for line in lines:
        if found := ROW.match(line):
            rows.append(f"`{cell(found[1])}` | {cell(found[2])}")
        else:
            rows[-1] += " " + cell(line.strip())
    return "\n".join(["| | |", "|---|---|", *(f"| {row} |" for row in rows)])


def wrapped(text: str) -> str:
    """Wrap prose; leave a drawing, a list or an indented example as it is."""
    lines = text.splitlines()
    if any(line[:1] in (" ", "-") for line in lines):
        return text
    return textwrap.fill(" ".join(lines), WIDTH, break_long_words=False, break_on_hyphens=False)


def section(title: str, lines: list[str]) -> str:
    """Convert a section: to a table of its items, or `Returns:` to a sentence."""
    if title in ("Returns", "Yields"):
        return wrapped(f"**{title}:** " + " ".join(line.strip() for line in lines))
    rows: list[str] = []
    for line in lines:
        if found := ITEM.match(line):
            rows.append(f"`{found[1]}` | {cell(found[2])}")
        else:
            rows[-1] += " " + cell(line.strip())
    return "\n".join([f"| {title} | |", "|---|---|", *(f"| {row} |" for row in rows)])


def cell(text: str) -> str:
    """Escape text for a table cell."""
    return text.replace("|", "\\|")


def members(node: ast.ClassDef) -> Iterator[Function]:
    """Yield the public methods and properties of a class, and its documented special methods."""
    for each in node.body:
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) or is_skipped(each):
            continue
        if f"{node.name}.{each.name}" in HIDDEN:
            continue
        if not each.name.startswith("_") or (each.name in SPECIAL_METHODS and docstring(each)):
            yield each


def class_section(module: str, node: ast.ClassDef, sources: Sources) -> list[str]:
    """Return the lines of a class, its members and those of its private bases."""
    lines = [
        f"### {node.name}",
        "",
        markdown(docstring(node)),
        "",
        *dataclass_fields(node, sources.lines[module]),
    ]
    known = {name for _, modules in CHAPTERS for _, names in modules for name in names}
    whole = [node]
    for base in sources.bases(node):
        if base.name in known:
            lines += [f"Also has all members of [{base.name}](#{base.name.lower()}).", ""]
            break
        whole.append(base)
    seen: set[str] = set()
    for each in whole:
        for member in members(each):
            if member.name not in seen:
                lines += member_section(node.name, member)
            seen.add(member.name)
    return lines


def member_section(owner: str, member: Function) -> list[str]:
    """Return the lines of a method or property."""
    it = owner.lower()
    if "property" in decorators(member):
        kind = ast.unparse(member.returns) if member.returns else "Any"
        return [f"#### {it}.{member.name}", "", f"`{kind}` · {markdown(docstring(member))}", ""]
    if member.name in SPECIAL_METHODS:
        return [f"#### {SPECIAL_METHODS[member.name].format(it=it)}", "", markdown(docstring(member)), ""]
    if decorators(member) & {"classmethod", "staticmethod"}:
        it = owner
    return code_section(
        f"#### {it}.{member.name}", signature(member, f"{it}.", method=True), docstring(member)
    )


def function_section(node: Function, module: str) -> list[str]:
    """Return the lines of a function or fixture."""
    if "fixture" in decorators(node):
        kind = (
            ast.unparse(node.returns).removeprefix("Iterator[").removesuffix("]") if node.returns else "Any"
        )
        return [f"### {node.name}", "", markdown(f"A fixture: `{kind}`. {docstring(node)}"), ""]
    prefix = "headrace."
    if node.name != "sql":
        package = module.split(".")[1]
        prefix += {"pipeline": "pipeline.", "spark": "spark."}.get(package, "")
    return code_section(f"### {prefix}{node.name}", signature(node, prefix), docstring(node))


def errors(sources: Sources) -> list[str]:
    """Return the table of all errors: name, bases, summary."""
    rows = ["| `headrace.errors.` | is a | |", "|---|---|---|"]
    for module, node in sources.definitions.values():
        if module == "headrace.errors" and isinstance(node, ast.ClassDef):
            bases = ", ".join(f"`{ast.unparse(base)}`" for base in node.bases)
            rows.append(f"| `{node.name}` | {bases} | {cell(docstring(node).partition(chr(10) * 2)[0])} |")
    return [*rows, ""]


def page() -> str:
    """Return the text of docs/api.md."""
    sources = Sources()
    lines = ["# The library, name by name", "", GENERATED, ""]
    lines += ["[library.md](library.md) is the guide: what these are for, with examples that run.", ""]
    for chapter, modules in CHAPTERS:
        lines += [f"## {chapter}", ""]
        for module, names in modules:
            for name in names:
                node = sources.definition(module, name)
                if isinstance(node, ast.ClassDef):
                    lines += class_section(module, node, sources)
                else:
                    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                    lines += function_section(node, module)
    lines += ["## Errors", "", *errors(sources)]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    if arguments and PAGE.read_text() != page():
        print("stale: api.md; run python scripts/api_reference.py", file=sys.stderr)
        return 1
    if not arguments:
        PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
