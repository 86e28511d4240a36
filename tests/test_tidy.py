"""The rules of docs/architecture.md, as tests: doors between rooms, no cycles, no host, no machine path."""

import ast
import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parent.parent
SRC = ROOT / "src" / "headrace"

# Which packages a package may import. A sub-package may import what its package may. Leaves are open to all.
MAY_IMPORT: dict[str, set[str]] = {
    "structures": set(),
    "resp": set(),
    "streams": {"structures"},
    "arrow": {"streams", "structures"},
    "keyspace": {"streams", "structures"},
    "access": {"keyspace"},
    "persistence": {"keyspace", "resp", "streams", "structures"},
    "commands": {"access", "arrow", "persistence", "keyspace", "resp", "streams", "structures"},
    "engine": {"access", "commands", "keyspace", "resp", "streams", "structures"},
    "console": {"persistence", "keyspace", "resp", "streams", "structures"},
    "server": {
        "access",
        "console",
        "engine",
        "persistence",
        "commands",
        "keyspace",
        "resp",
        "streams",
        "structures",
    },
    "client": set(),
    "api": {"client", "engine", "persistence", "commands", "keyspace", "resp", "streams", "structures"},
    "spark": {"arrow", "client", "resp", "structures"},
    "pipeline": {"client", "spark", "resp", "structures"},
    "cli": {
        "api",
        "client",
        "console",
        "pipeline",
        "spark",
        "server",
        "engine",
        "persistence",
        "commands",
        "keyspace",
        "resp",
        "streams",
        "structures",
    },
}
LEAVES = {"mem", "system", "errors", "limits", "plurals", "visibility", "__version__"}
FUNCTION_LINES_MAX = 70  # from `def` to the last line, docstring included
LATE_IMPORTS = {"pyspark", "pyarrow", "rich", "matplotlib"}  # heavy, and only needed at the edges


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SRC.rglob("*.py")):
        name = ".".join(path.relative_to(SRC.parent).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(path.read_text())


def imported(tree: ast.AST) -> Iterator[str]:
    """Every headrace module that a tree imports, `from headrace import mem` as headrace.mem."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "headrace")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "headrace":
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if exists(whole) else node.module


def exists(module: str) -> bool:
    path = SRC.parent / module.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def room(module: str) -> str:
    return (module.split(".") + [""])[1]


def test_rooms_are_entered_only_through_their_doors() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, tree in modules()
        for other in imported(tree)
        if room(name) in MAY_IMPORT and room(other) not in MAY_IMPORT[room(name)] | LEAVES | {room(name), ""}
    ]
    assert not wrong, "\n".join(wrong)


def test_every_room_stands_in_the_table() -> None:
    rooms = {p.name for p in SRC.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert rooms == set(MAY_IMPORT)


def test_leaves_import_nothing_of_ours_but_leaves() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, tree in modules()
        if room(name) in LEAVES
        for other in imported(tree)
        if room(other) not in LEAVES
    ]
    assert not wrong, "\n".join(wrong)


def without_types(tree: ast.Module) -> ast.Module:
    """The module without what it imports for the eyes of a type checker alone."""
    kept = [n for n in tree.body if not (isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")]
    return ast.Module(kept, [])


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {name: set(imported(without_types(tree))) - {name} for name, tree in modules()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name in done:
            return
        for other in sorted(graph.get(name, ())):
            if other != "headrace":
                visit(other, (*trail, name))
        done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_no_import_hides_in_a_function_but_of_heavy_libraries() -> None:
    wrong = []
    for name, tree in modules():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [a.name for a in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                # A command of the program may load its room late: `headrace --help` stays quick.
                late = LATE_IMPORTS | ({"headrace"} if room(name) == "cli" else set())
                if room(name) in ("api", "pipeline", "spark"):
                    late = late | {"headrace"}
                if room(name) == "api":  # redis-py is for those who ask for a client or a server
                    late = late | {"redis"}
                if name == "headrace.persistence.data_directory":  # for large files only
                    late = late | {"ctypes"}
                # HTTP is for those who ask for metrics, OpenSSL for those who have a port for it.
                if name in ("headrace.server.observe.metrics", "headrace.server.loop.listeners"):
                    late = late | {"headrace"}
                wrong += [f"{name}: {n}" for n in names if n.split(".")[0] not in late]
    assert not wrong, "\n".join(wrong)


def test_every_module_and_public_class_says_what_it_is_for() -> None:
    silent = [name for name, tree in modules() if not ast.get_docstring(tree)]
    silent += [
        f"{name}.{node.name}"
        for name, tree in modules()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not any("Error" in ast.unparse(b) for b in node.bases)  # an error's text says what it is
    ]
    assert not silent, "\n".join(silent)


def test_no_function_has_more_than_70_lines() -> None:
    long = [
        f"{name}.{node.name}: {lines}"
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_sources_name_no_host_of_a_registry_and_no_path_of_a_machine() -> None:
    forbidden = re.compile(
        r"/work/|/root/|/home/\w|pypi\.org|files\.pythonhosted|deb\.debian\.org|registry\.npmjs"
    )
    kinds = {".py", ".pxd", ".pyi", ".md", ".toml", ".txt", ".yml", ""}
    skip = {".git", ".venv", ".hypothesis", "build", "dist"}
    wrong = []
    for path in ROOT.rglob("*"):
        if skip & set(path.relative_to(ROOT).parts) or not path.is_file() or path.suffix not in kinds:
            continue
        if path == pathlib.Path(__file__) or "cache" in str(path) or path.name.startswith(".coverage"):
            continue
        wrong += [
            f"{path}:{i}"
            for i, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
            if forbidden.search(line)
        ]
    assert not wrong, "\n".join(wrong)


def test_docs_and_sources_keep_to_plain_words() -> None:
    """A client, a process or a consumer is "it"; something is done again, not anew."""
    avoided = re.compile(
        r"\b(whoever|whomever|nobody|somebody|anew|heeds?|heeded|mends|mended)\b", re.IGNORECASE
    )
    files = [*SRC.rglob("*.py"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {found[0]}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := avoided.search(line))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_two_modules_of_the_tests_have_one_name() -> None:
    """Test files may repeat a name; what they import may not: all directories are searched."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py")]
    helpers = [name for name in names if not name.startswith("test_") and name != "conftest.py"]
    twice = sorted({name for name in helpers if helpers.count(name) > 1})
    assert not twice, f"only one of each would be imported: {', '.join(twice)}"
