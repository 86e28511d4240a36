"""Docstrings name attributes and parameters that exist."""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "src/headrace"
SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")
Class = tuple[Path, ast.ClassDef]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(SOURCES.rglob("*.py"))}


def classes() -> Iterator[Class]:
    for path, tree in trees().items():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def section(docstring: str, name: str) -> list[str]:
    """Return the names that a section of a docstring explains; a line may have several."""
    _, _, rest = docstring.partition(f"\n{name}:\n")
    lines = rest.split("\n\n")[0].split("\n")
    found = [match[1] for line in lines if (match := re.match(r"    ((?:\w+, )*\w+):", line))]
    return [name for names in found for name in names.split(", ")]


def table(docstring: str) -> list[str]:
    """Return the names in the first column of an indented table: "name, name   what they are"."""
    if any(f"\n{name}:\n" in docstring for name in SECTIONS):
        return []
    found = [match[1] for match in re.finditer(r"^((?:\w+, )*\w+) {2,}\S", docstring, re.MULTILINE)]
    return [name for names in found for name in names.split(", ")]


def assigned(target: ast.AST) -> Iterator[str]:
    """Yield the names that an assignment sets, of variables and of attributes."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


@cache
def members() -> dict[str, set[str]]:
    """Return what classes of each name define, with what their base classes of the project define."""
    own: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for _, node in classes():
        bases[node.name].update(ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases)
        for each in ast.walk(node):
            if isinstance(each, Function):
                own[node.name].add(each.name)
            elif isinstance(each, ast.Assign):
                own[node.name].update(name for target in each.targets for name in assigned(target))
            elif isinstance(each, ast.AnnAssign):
                own[node.name].update(assigned(each.target))

    def of(name: str, seen: frozenset[str]) -> set[str]:
        return own[name].union(*(of(base, seen | {name}) for base in bases[name] - seen))

    return {name: of(name, frozenset()) for name in list(own)}


def test_the_parts_of_a_docstring_are_found() -> None:
    text = "A.\n\nArgs:\n    x, y: two,\n        and more: here\n    z: one\n\nAttributes:\n    n: what"
    assert section(text, "Args") == ["x", "y", "z"] and section(text, "Attributes") == ["n"]
    assert table("A.\n\nfirst, last   the two\nn             the other") == ["first", "last", "n"]


def test_attributes_in_docstrings_of_classes_exist() -> None:
    wrong = []
    for path, node in classes():
        docstring = ast.get_docstring(node) or ""
        for name in section(docstring, "Attributes") + table(docstring):
            if name not in members()[node.name]:
                wrong.append(f"{path.relative_to(SOURCES)}: {node.name} has no {name}")
    assert wrong == []


def test_parameters_in_docstrings_exist() -> None:
    wrong = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                given = node.args
                known = {each.arg for each in given.posonlyargs + given.args + given.kwonlyargs}
                known |= {each.arg for each in (given.vararg, given.kwarg) if each is not None}
                for name in section(ast.get_docstring(node) or "", "Args"):
                    if name not in known:
                        wrong.append(f"{path.relative_to(SOURCES)}: {node.name}() has no {name}")
    assert wrong == []


def test_members_named_with_their_class_in_texts_exist() -> None:
    """`Class.member` in a docstring or a comment."""
    external = re.compile(r"^(Protocol|NamedTuple|Generic|Enum|IntEnum|IntFlag|StrEnum)$")
    partly_known = {
        node.name
        for _, node in classes()
        for base in node.bases
        if (name := ast.unparse(base).split("[")[0].split(".")[-1]) not in members()
        and not external.match(name)
    }
    wrong = []
    for path, tree in trees().items():
        texts = re.findall(r"#.*", path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | Function):
                texts.append(ast.get_docstring(node) or "")
        for owner, member in re.findall(r"\b([A-Z]\w+)\.([a-z_]\w*)\b", "\n".join(texts)):
            known = members().get(owner)
            if known is not None and owner not in partly_known and member not in known:
                wrong.append(f"{path.relative_to(SOURCES)}: {owner} has no {member}")
    assert wrong == []


def test_exceptions_in_docstrings_exist() -> None:
    """The names with a capital after `Raises` or `Raise`, and those in a section `Raises:`."""
    known = {
        node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    }
    known |= {"JSONDecodeError", "LuaError", "PySparkException", "ResponseError", *dir(builtins)}
    wrong = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef | Function):
                continue
            text = ast.get_docstring(node) or ""
            named = set(section(text, "Raises"))
            for words in re.findall(r"\bRaises? ((?:[A-Z]\w+(?:, | and | or |; )?(?:and |or )?)+)", text):
                named.update(re.findall(r"[A-Z]\w+", words))
            for name in named - known:
                wrong.append(f"{path.relative_to(SOURCES)}: {node.name}: {name}")
    assert wrong == []
