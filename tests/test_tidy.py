"""The rules of docs/architecture.md, as tests: doors between rooms, no cycles, no host, no machine path."""

import ast
import pathlib
import re
import tomllib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SRC = ROOT / "src" / "headrace"

# Which packages a package may import. A sub-package may import what its package may. Leaves are open to all.
MAY_IMPORT: dict[str, set[str]] = {
    "structures": set(),
    "resp": set(),
    "streams": {"structures"},
    "arrow": {"streams", "structures"},
    "columns": {"arrow", "streams", "structures"},
    "keyspace": {"streams", "structures"},
    "access": {"keyspace"},
    "persistence": {"keyspace", "resp", "streams", "structures"},
    "scripting": {"resp"},
    "commands": {"access", "arrow", "persistence", "keyspace", "resp", "scripting", "streams", "structures"},
    "engine": {"access", "commands", "keyspace", "resp", "scripting", "streams", "structures"},
    "replication": {"engine", "persistence", "commands", "keyspace", "resp", "streams", "structures"},
    "console": {"persistence", "keyspace", "resp", "streams", "structures"},
    "server": {
        "access",
        "console",
        "engine",
        "replication",
        "persistence",
        "commands",
        "keyspace",
        "resp",
        "streams",
        "structures",
    },
    "client": set(),
    "positions": {"client"},
    "archive": {"client", "columns", "positions"},
    "queries": {"archive", "client", "columns", "positions"},
    "api": {
        "archive",
        "arrow",
        "client",
        "columns",
        "positions",
        "queries",
        "engine",
        "replication",
        "persistence",
        "commands",
        "keyspace",
        "resp",
        "streams",
        "structures",
    },
    "spark": {"archive", "arrow", "client", "columns", "positions", "resp", "structures"},
    "pipeline": {"archive", "client", "columns", "positions", "queries", "spark", "resp", "structures"},
    "cli": {
        "api",
        "archive",
        "client",
        "columns",
        "console",
        "pipeline",
        "positions",
        "queries",
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
LEAVES = {
    "version",
    "companion_keys",
    "fingerprint",
    "fork_safe_lock",
    "mem",
    "system",
    "errors",
    "limits",
    "memory_size",
    "plurals",
    "suggestions",
    "visibility",
    "__version__",
}
# Which sub-packages of a package one of them may import. None imports a module of the package itself, such as
# server/parts, unless it is listed here: those put the sub-packages together.
PARTS_MAY_IMPORT: dict[str, dict[str, set[str]]] = {
    "server": {
        "config": set(),
        "loop": {"config"},
        "network": {"config", "loop"},
        "commit": {"config", "loop"},
        "disk": {"commit", "config", "loop"},
        "replication": {"commit", "config", "disk", "loop", "network"},
        "observe": {"config", "loop", "network"},
    },
    "pipeline": {
        "shared": set(),
        "file_formats": {"shared"},
        "spark_session": {"shared"},
        "loading": {"file_formats", "shared", "spark_session"},
        "archiving": {"shared", "spark_session"},
        "trimming": {"shared"},
        "replaying": {"shared"},
        "querying": {"shared", "spark_session"},
    },
    "cli": {
        "output_errors": set(),
        "options": set(),
        "connections": set(),
        "output": {"connections", "output_errors"},
        "check": {"output"},
        "demo": set(),
        "query": {"connections", "output"},
        "commands": {"check", "connections", "demo", "options", "output", "output_errors", "query"},
    },
}
# Imports for a type checker that close a circle: each of two public classes has an attribute of the other.
TYPE_CIRCLES = {
    ("headrace.api.consuming.consumer", "headrace.api.group"),
    ("headrace.api.group", "headrace.api.stream"),
    ("headrace.commands.engine_interface", "headrace.commands.call"),
    ("headrace.commands.scripts_interface", "headrace.commands.call"),
}
FUNCTION_LINES_MAX = 70  # from `def` to the last line, docstring included

# What the functions of a module or package may import, and why it is not imported at the top of the file.
# `headrace` itself (__init__, testing) may import any package.
LAZY_IMPORTS: dict[str, tuple[set[str], str]] = {
    "headrace.api.consuming": (
        {"asyncio", "headrace.api.consuming.async_consumer"},
        "most programs do not use asyncio",
    ),
    "headrace.api.database": (
        {"headrace.api.local", "headrace.api.remote_backend", "headrace.api.sql"},
        "only a remote database, and the redis-py clients of a local one, need redis-py; SQL needs DuckDB",
    ),
    "headrace.api.group": ({"headrace.api.async_handlers"}, "most programs do not use asyncio"),
    "headrace.api.sql": (
        {"headrace.api.archived_stream"},
        "only a query with an archive needs its packages and redis-py",
    ),
    "headrace.api.stream": (
        {"headrace.api.arrow_batches", "headrace.api.consuming.async_stream"},
        "most programs use neither Arrow tables, which need pyarrow, nor asyncio",
    ),
    "headrace.archive": (
        {"deltalake", "pyarrow"},
        "options of Spark, and replays of a server, need neither",
    ),
    "headrace.columns.nested_to_json": ({"pyarrow", "pyspark"}, "only Spark's variants need PySpark"),
    "headrace.cli": ({"headrace"}, "a command imports what it needs; `headrace --help` needs none of it"),
    "headrace.persistence.cold.codec": ({"zstandard"}, "only servers and programs with cold streams need it"),
    "headrace.persistence.cold.object_store": ({"obstore"}, "only servers with an object store need it"),
    "headrace.persistence.data_directory": ({"ctypes"}, "only large files need it"),
    "headrace.pipeline": ({"duckdb"}, "load, trim and replay do not need it"),
    "headrace.pipeline.loading.job": (
        {"headrace.pipeline.spark_session.job_spark", "headrace.pipeline.loading.spark_import"},
        "files are loaded without PySpark",
    ),
    "headrace.queries.duckdb_session": ({"duckdb"}, "headrace.sql says how to install it"),
    "headrace.scripting.interpreter": ({"lupa"}, "most servers run no scripts in Lua"),
    "headrace.scripting.lua": ({"lupa"}, "most servers run no scripts in Lua"),
    "headrace.server.disk.startup": ({"rich"}, "only a terminal shows the progress of loading"),
    "headrace.server.network.listeners": ({"headrace.server.network.tls"}, "OpenSSL takes a megabyte"),
    "headrace.server.observe.metrics": (
        {"headrace.server.observe.metrics_http_server"},
        "the HTTP server takes a seventh of the start-up time",
    ),
    "headrace.server.replication.replica_side": ({"headrace.server.network.tls"}, "OpenSSL takes a megabyte"),
    "headrace.spark": (
        {"headrace.spark", "pyarrow", "pyspark"},
        "Spark imports the data source in every worker, and importing the package must not import PySpark",
    ),
}
# They import public names (also under TYPE_CHECKING, for editors), or the program's commands, on first use.
DYNAMIC_IMPORTS = {"headrace", "headrace.cli.main", "headrace.pipeline", "headrace.spark"}


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


# Sub-packages that depend on each other in one direction: the second may import the first.
ONE_DIRECTION = [("commands.stream", "commands.group")]


def test_sub_packages_depend_on_each_other_in_one_direction() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, tree in modules()
        for below, above in ONE_DIRECTION
        if within(name, f"headrace.{below}")
        for other in imported(tree)
        if within(other, f"headrace.{above}")
    ]
    assert not wrong, "\n".join(wrong)


def test_every_room_stands_in_the_table() -> None:
    rooms = {p.name for p in SRC.iterdir() if p.is_dir() and (p / "__init__.py").exists()}
    assert rooms == set(MAY_IMPORT)


@pytest.mark.parametrize("package", PARTS_MAY_IMPORT)
def test_sub_packages_of_a_package_depend_on_each_other_in_one_direction(package: str) -> None:
    """The table has no cycle: each row names rows above it only. Imports for the type checker count, too."""
    may_import = PARTS_MAY_IMPORT[package]
    for position, allowed in enumerate(may_import.values()):
        assert allowed <= set(list(may_import)[:position])
    parts = {name: name.split(".")[2] for name, _ in modules() if name.startswith(f"headrace.{package}.")}
    folders = {p.name for p in (SRC / package).iterdir() if (p / "__init__.py").exists()}
    assert folders <= set(may_import) <= set(parts.values())
    wrong = [
        f"{name} imports {other}"
        for name, tree in modules()
        if parts.get(name) in may_import
        for other in imported(tree)
        if other in parts and parts[other] not in may_import[parts[name]] | {parts[name]}
    ]
    assert not wrong, "\n".join(wrong)


def test_leaves_import_nothing_of_ours_but_leaves() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, tree in modules()
        if room(name) in LEAVES
        for other in imported(tree)
        if room(other) not in LEAVES
    ]
    assert not wrong, "\n".join(wrong)


def imported_for_types(tree: ast.Module) -> set[str]:
    """What the module imports only for a type checker."""
    only = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return set(imported(ast.Module(list(only), [])))


def test_imports_form_no_circle() -> None:
    graph = {name: set(imported(tree)) - {name} for name, tree in modules()}
    for_types = {name: imported_for_types(tree) for name, tree in modules()}
    for name, other in TYPE_CIRCLES:
        assert other in for_types[name]
        graph[name].remove(other)
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name in done:
            return
        for other in sorted(graph.get(name, ())):
            visit(other, (*trail, name))
        done.add(name)

    for name in sorted(graph):
        visit(name, ())


def lazily_imported(tree: ast.Module) -> Iterator[str]:
    """Everything that functions import, `from a import b` as a.b."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in (node for function in functions for node in ast.walk(function)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")


def test_functions_import_only_what_is_listed() -> None:
    used: set[tuple[str, str]] = set()
    wrong = []
    for name, tree in modules():
        allowed = [
            (at, to) for at, (targets, _) in LAZY_IMPORTS.items() if within(name, at) for to in targets
        ]
        for other in lazily_imported(tree):
            matching = {(at, to) for at, to in allowed if within(other, to)}
            used |= matching
            if not matching:
                wrong.append(f"{name}: {other}")
    assert not wrong, "\n".join(wrong)
    listed = {(at, to) for at, (targets, _) in LAZY_IMPORTS.items() for to in targets}
    assert used == listed, f"no longer needed: {sorted(listed - used)}"


def test_no_module_is_imported_by_a_string() -> None:
    found = {
        name
        for name, tree in modules()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith("import_module"))
        or (isinstance(node, ast.Name) and node.id == "__import__")
    }
    assert found == DYNAMIC_IMPORTS


def test_the_page_of_the_architecture_lists_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| (`[^|]+`) \|$", page, re.MULTILINE)
    assert [package for package, _ in rows] == list(MAY_IMPORT)
    for package, files in rows:
        for name in re.findall(r"`([^`]+)`", files):
            assert (SRC / package / name).is_file(), f"{package}/{name}"
    named = re.findall(r"`(\w+(?:/\w+)+)[.\w()]*`", page.partition("## Where a command runs")[2])
    missing = [name for name in named if not (SRC / f"{name}.py").is_file() and not (ROOT / name).is_dir()]
    assert len(named) >= 10 and not missing, missing


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


def test_helpers_of_tests_are_imported_by_their_path() -> None:
    """A module that several folders use is in tests/support; one of a single folder is in that folder."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["pythonpath"] == ["tests"]
    names = [path.name for path in (ROOT / "tests").iterdir() if path.is_file()]
    helpers = [name for name in names if not name.startswith(("test_", "conftest."))]
    assert helpers == ["sanitizers.supp"]


def test_prose_in_markdown_has_at_most_100_characters_a_line() -> None:
    """Tables and blocks of code may be wider."""
    wrong = []
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        fenced = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced and len(line) > 100 and not line.startswith("|"):
                wrong.append(f"{path.relative_to(ROOT)}:{number}")
    assert not wrong, "\n".join(wrong)
