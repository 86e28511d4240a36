"""Writes docs/api.md from the docstrings of what `import headrace` offers; `--check` only compares.

python scripts/api_reference.py [--check]

The sources are read, not imported: compiled or not, the page is the same.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"
PAGE = ROOT / "docs" / "api.md"
MADE = "*Made from the code by `scripts/api_reference.py`; a test keeps it current.*"
WIDTH = 100

# What stands on the page: (chapter, module, names in the order of the page).
CHAPTERS: list[tuple[str, list[tuple[str, list[str]]]]] = [
    ("Opening", [("headrace.api.database", ["open", "connect", "Database", "DatabaseInfo"])]),
    (
        "Streams",
        [
            ("headrace.api.stream", ["Stream"]),
            ("headrace.api.entry", ["Entry"]),
            ("headrace.api.stream_id", ["StreamID"]),
            ("headrace.api.codecs.codec", ["Codec"]),
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
            ("headrace.api.consuming.in_flight", ["Counters"]),
            ("headrace.api.consuming.dead_letters", ["DeadLetters", "DeadLetter"]),
            ("headrace.api.info", ["GroupInfo", "ConsumerInfo"]),
            ("headrace.api.group", ["PendingEntry"]),
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

# Public to the other modules, not to users.
HIDDEN = {
    *(
        "Consumer.start_worker",
        "Consumer.finish_worker",
        "Delivery.redeliver",
        "ManualClock.sleep",
        "Stop.remove_wakeup",
        "Stop.add_wakeup",
    ),
    *("ConsumerInfo.from_reply", "GroupInfo.from_reply", "StreamInfo.from_reply"),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def source_of(module: str) -> Path:
    return SRC / Path(*module.split(".")).with_suffix(".py")


class Sources:
    """The modules the page is made of, parsed once, and where each class stands."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, ast.stmt]] = {}  # by name: the module, the definition
        self.lines: dict[str, list[str]] = {}
        for path in [*sorted((SRC / "headrace" / "api").rglob("*.py")), SRC / "headrace" / "errors.py"]:
            self.read(".".join(path.relative_to(SRC).with_suffix("").parts))
        self.read("headrace.testing")

    def read(self, module: str) -> None:
        text = source_of(module).read_text()
        self.lines[module] = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not skipped(node):
                self.found[f"{module}:{node.name}"] = (module, node)

    def named(self, module: str, name: str) -> ast.stmt:
        try:
            return self.found[f"{module}:{name}"][1]
        except KeyError:
            raise SystemExit(f"{module} has no {name}: mend CHAPTERS in scripts/api_reference.py") from None

    def bases(self, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """The classes of the library that this one is made of: what they offer, it offers."""
        for base in node.bases:
            name = ast.unparse(base).split("[")[0].split(".")[-1]
            for _, other in self.found.values():
                if isinstance(other, ast.ClassDef) and other.name == name and other is not node:
                    yield other
                    yield from self.bases(other)
                    break


def decorators(node: ast.stmt) -> set[str]:
    made = getattr(node, "decorator_list", [])
    return {ast.unparse(each.func if isinstance(each, ast.Call) else each).split(".")[-1] for each in made}


def skipped(node: ast.stmt) -> bool:
    return bool(decorators(node) & {"overload", "setter", "deleter"})


def says(node: ast.ClassDef | Function) -> str:
    """The docstring; of an error without one, the text that stands in the place of it."""
    if said := ast.get_docstring(node):
        return said
    texts = [each.value for each in node.body if isinstance(each, ast.Assign | ast.AnnAssign)]
    return f"`{ast.literal_eval(texts[0])}`" if texts and isinstance(texts[0], ast.Constant) else ""


def signature(node: Function, prefix: str = "", method: bool = False) -> str:
    """As it stands in the source, without self; one parameter a line where it is long."""
    arguments = deepcopy(node.args)
    if method and "staticmethod" not in decorators(node):
        (arguments.posonlyargs or arguments.args).pop(0)
    begin = ("async " if isinstance(node, ast.AsyncFunctionDef) else "") + prefix + node.name
    end = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    each = [spaced(one) for one in split(ast.unparse(arguments).removeprefix("/, "))]
    inside = ", ".join(each)
    if len(begin) + len(inside) + len(end) + 2 > WIDTH:
        inside = "\n" + "".join(f"    {one},\n" for one in each)
    return f"{begin}({inside}){end}".replace("'", '"')


def spaced(parameter: str) -> str:
    """As it is usually written: `count: int = 3`."""
    name, colon, rest = parameter.partition(": ")
    return f"{name}: {rest.replace('=', ' = ', 1)}" if colon else parameter


def split(arguments: str) -> list[str]:
    """At the commas that no bracket or quote encloses."""
    parts, depth, quote = [""], 0, ""
    for letter in arguments:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += (letter in "([{") - (letter in ")]}") if not quote else 0
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def block(heading: str, code: str, text: str) -> list[str]:
    return [heading, "", "```python", code, "```", "", markdown(text), ""]


# How a method with a name of Python's own is called.
CALLED = {
    "__getitem__": "{it}[key]",
    "__len__": "len({it})",
    "__iter__": "iter({it})",
    "__bool__": "bool({it})",
    "__contains__": "key in {it}",
    "__call__": "{it}(…)",
    "__aiter__": "async for … in {it}",
    "__enter__": "with {it}",
}


def attributes(node: ast.ClassDef, lines: list[str]) -> list[str]:
    """Those of a dataclass, as they stand in the source, with what the comments say."""
    made = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    if "dataclass" not in decorators(node) or not made:
        return []
    written = [re.sub(r" = field\(.*\)", "", lines[each.lineno - 1].rstrip()) for each in made]
    return ["```python", f"class {node.name}:", *written, "```", ""]


# A list in columns, as docstrings have it: a name, two spaces or more, what is to be said of it.
ROW = re.compile(r"^(\S+(?:,? \S+)*)  +(\S.*)$")


def markdown(text: str) -> str:
    """A docstring as Markdown: lists in columns become tables, examples are fenced."""
    return "\n\n".join(map(paragraph, text.split("\n\n")))


# A section of a docstring in Google style, and an item in it.
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")
ITEM = re.compile(r"^ {4}(\w+): (\S.*)$")


def paragraph(text: str) -> str:
    lines = text.splitlines()
    if lines and (found := SECTION.match(lines[0])):
        return section(found[1], lines[1:])
    if lines and lines[0].startswith(">>> "):
        return f"```pycon\n{text}\n```"
    if not all(ROW.match(line) or line.startswith("  ") for line in lines) or lines[0].startswith(" "):
        return text
    rows: list[str] = []
    for line in lines:
        if found := ROW.match(line):
            rows.append(f"`{cell(found[1])}` | {cell(found[2])}")
        else:
            rows[-1] += " " + cell(line.strip())
    return "\n".join(["| | |", "|---|---|", *(f"| {row} |" for row in rows)])


def section(title: str, lines: list[str]) -> str:
    """A section as a table of its items; `Returns:` as a sentence."""
    if title in ("Returns", "Yields"):
        return f"**{title}:** " + " ".join(line.strip() for line in lines)
    rows: list[str] = []
    for line in lines:
        if found := ITEM.match(line):
            rows.append(f"`{found[1]}` | {cell(found[2])}")
        else:
            rows[-1] += " " + cell(line.strip())
    return "\n".join([f"| {title} | |", "|---|---|", *(f"| {row} |" for row in rows)])


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def members(node: ast.ClassDef) -> Iterator[Function]:
    for each in node.body:
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) or skipped(each):
            continue
        if f"{node.name}.{each.name}" in HIDDEN:
            continue
        if not each.name.startswith("_") or (each.name in CALLED and says(each)):
            yield each


def of_class(module: str, node: ast.ClassDef, sources: Sources) -> list[str]:
    lines = [f"### {node.name}", "", markdown(says(node)), "", *attributes(node, sources.lines[module])]
    known = {name for _, modules in CHAPTERS for _, names in modules for name in names}
    whole = [node]
    for base in sources.bases(node):
        if base.name in known:
            lines += [f"Besides, all that [{base.name}](#{base.name.lower()}) has.", ""]
            break
        whole.append(base)
    seen: set[str] = set()
    for each in whole:
        for member in members(each):
            if member.name not in seen:
                lines += of_member(node.name, member)
            seen.add(member.name)
    return lines


def of_member(owner: str, member: Function) -> list[str]:
    it = owner.lower()
    if "property" in decorators(member):
        kind = ast.unparse(member.returns) if member.returns else "Any"
        return [f"#### {it}.{member.name}", "", f"`{kind}` · {markdown(says(member))}", ""]
    if member.name in CALLED:
        return [f"#### {CALLED[member.name].format(it=it)}", "", markdown(says(member)), ""]
    if decorators(member) & {"classmethod", "staticmethod"}:
        it = owner
    return block(f"#### {it}.{member.name}", signature(member, f"{it}.", method=True), says(member))


def of_function(node: Function, module: str) -> list[str]:
    if "fixture" in decorators(node):
        kind = (
            ast.unparse(node.returns).removeprefix("Iterator[").removesuffix("]") if node.returns else "Any"
        )
        return [f"### {node.name}", "", f"A fixture: `{kind}`. {says(node)}", ""]
    prefix = "headrace." if module.startswith("headrace.api") else ""
    return block(f"### {prefix}{node.name}", signature(node, prefix), says(node))


def errors(sources: Sources) -> list[str]:
    """A table of every error: what it is besides, and when it is raised, or what it says."""
    rows = ["| `headrace.errors.` | is a | |", "|---|---|---|"]
    for module, node in sources.found.values():
        if module == "headrace.errors" and isinstance(node, ast.ClassDef):
            bases = ", ".join(f"`{ast.unparse(base)}`" for base in node.bases)
            rows.append(f"| `{node.name}` | {bases} | {cell(says(node).partition(chr(10) * 2)[0])} |")
    return [*rows, ""]


def page() -> str:
    sources = Sources()
    lines = ["# The library, name by name", "", MADE, ""]
    lines += ["[library.md](library.md) is the guide: what these are for, with examples that run.", ""]
    for chapter, modules in CHAPTERS:
        lines += [f"## {chapter}", ""]
        for module, names in modules:
            for name in names:
                node = sources.named(module, name)
                if isinstance(node, ast.ClassDef):
                    lines += of_class(module, node, sources)
                else:
                    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                    lines += of_function(node, module)
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
