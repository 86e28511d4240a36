"""The declaration files of compiled modules: how they are generated, and that each mode is what it claims."""

import ast
import importlib
import importlib.util
import os
import pathlib
import re
import types

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SRC = ROOT / "src" / "headrace"
TWINS = [
    "mem",
    "scripting/lua",
    "scripting/lua_json",
    "scripting/lua_numbers",
    "server/loop/descriptors",
    "system",
]  # written twice: in Python, and in C as a .pxd


def load(path: pathlib.Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


declarations = load(ROOT / "build_support" / "declarations.py")
PACKAGE = declarations.Package(SRC)

NODE = """
from __future__ import annotations

import cython

from pack import alone, other, plain, twin
from pack.other import Item, weigh
from pack.visibility import Public

LIMIT = cython.declare(cython.Py_ssize_t, 3)
_OWN = cython.declare(cython.int, 4)
NAMES = ["a"]


@cython.final
@cython.cclass
class Node(Item):
    next: Node | None
    size: cython.longlong
    rows: Public[cython.uint]
    _seen: cython.bint
    items: list[Item]
    buf: bytearray
    p: cython.p_uchar
    convert: plain.Converter | None

    def __init__(self, size: cython.longlong) -> None:
        self.size = size

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def find(self, p: cython.p_const_uchar, words: list[bytes] | None, at: cython.int = 0) -> cython.bint:
        return False

    @cython.ccall
    @cython.exceptval(check=False)
    def count(self, rows: list[plain.Row]) -> cython.void:
        pass

    @cython.ccall
    @cython.exceptval(-2, check=True)
    def both(self, tail: Tail) -> tuple[cython.longlong, cython.int]:
        return 1, 2


@cython.cclass
class Tail:
    @cython.cfunc
    @cython.inline
    def end(self) -> cython.int:
        return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def skip(p: cython.p_const_uchar, at: cython.int) -> cython.int:
    return at


@cython.ccall
def parse(text: bytes, item: Item) -> Node:
    return Node(alone.plain_function(other.hidden(item)))


@cython.cfunc
def _own(text: bytes) -> bytes:
    return text
"""
NODE_DECLARATION = """
from pack cimport other
from pack cimport twin
from pack.other cimport Item
from pack.other cimport weigh
cdef Py_ssize_t LIMIT
cdef class Tail
cdef class Node(Item):
    cdef readonly Node next
    cdef readonly long long size
    cdef public unsigned int rows
    cdef bint _seen
    cdef readonly list items
    cdef bytearray buf
    cdef unsigned char *p
    cdef readonly object convert
    cdef bint find(self, const unsigned char *p, list[bytes] words, int at=*) except -1
    cpdef void count(self, list rows) noexcept
    cpdef (long long, int) both(self, Tail tail) except? -2
cdef class Tail:
    cdef inline int end(self)
cdef int skip(const unsigned char *p, int at) noexcept nogil
cpdef Node parse(bytes text, Item item)
"""
OTHER = """
import cython

@cython.cclass
class Item:
    pass

@cython.ccall
def weigh(item: Item) -> cython.int:
    return 0

@cython.cfunc
def hidden(item: Item) -> cython.int:
    return 0
"""


def make_package(directory: pathlib.Path, node: str = NODE) -> pathlib.Path:
    source = directory / "src" / "pack"
    source.mkdir(parents=True)
    files = {
        "__init__.py": "",
        "alone.py": "import cython\n",
        "node.py": node,
        "other.py": OTHER,
        "plain.py": "",
        "twin.py": "",
        "twin.pxd": "",
    }
    for name, text in files.items():
        (source / name).write_text(text)
    return source


def test_a_declaration_file_follows_from_the_annotations(tmp_path: pathlib.Path) -> None:
    text = declarations.Package(make_package(tmp_path)).declaration("pack.node")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == NODE_DECLARATION.strip().splitlines()


@pytest.mark.parametrize(
    ("code", "line", "problem"),
    [
        ("X = cython.declare(cython.float128, 1)", 2, "cython.float128 cannot be declared"),
        ("X, Y = cython.declare(cython.int, 1)", 2, "write NAME = cython.declare(TYPE, VALUE)"),
        ("from pack.other import hidden", 2, "call the cfunc as pack.other.hidden"),
        ("@cython.cfunc\ndef f(a) -> cython.int: ...", 3, "argument a has no type"),
        ("@cython.cfunc\ndef f(a: 'Item') -> cython.int: ...", 3, "'Item' without quotation marks"),
        ("@cython.cfunc\ndef f(a: bytes): ...", 3, "f(): it has no return type"),
        (
            "@cython.cfunc\ndef f(*a: bytes) -> bytes: ...",
            3,
            "f(): a C function takes ordinary arguments only",
        ),
        ("@cython.cclass\nclass C:\n    a: cython.int = 3", 4, "NAME: TYPE, without a value"),
        (
            "@cython.cclass\nclass C:\n    a: Public[bytes] | None",
            4,
            "write Public[...] around the whole type",
        ),
        ("@cython.cclass\nclass C:\n    p: Public[cython.p_uchar]", 4, "Python may not write a pointer"),
        (
            "@cython.cclass\nclass C:\n    a: cython.int | None",
            4,
            "cython.int | None: a C type is never None",
        ),
        ("@cython.cclass\nclass C(Unknown): ...", 3, "C: Unknown is not a C class"),
        ("@cython.cclass\nclass C(A, B): ...", 3, "C: a C class has one base class"),
    ],
)
def test_what_cannot_be_declared_is_named_with_its_line(
    tmp_path: pathlib.Path, code: str, line: int, problem: str
) -> None:
    source = make_package(tmp_path, f"import cython\n{code}\n")
    with pytest.raises(declarations.DeclarationError) as raised:
        declarations.Package(source).generate(tmp_path / "target")
    assert str(raised.value).startswith(f"{source / 'node.py'}:{line}: ")
    assert problem in str(raised.value)


def test_only_files_whose_declarations_changed_are_written(tmp_path: pathlib.Path) -> None:
    source, target = make_package(tmp_path), tmp_path / "target"
    files = declarations.Package(source).generate(target)
    assert sorted(p.name for p in target.rglob("*.pxd")) == [
        "__init__.pxd",
        "alone.pxd",
        "node.pxd",
        "other.pxd",
    ]
    assert files["pack.twin"] == source / "twin.pxd"
    for path in target.rglob("*.pxd"):
        os.utime(path, (1, 1))
    (source / "node.py").write_text(NODE.replace("return False", "return True"))
    (source / "other.py").write_text(OTHER.replace("    pass", "    size: cython.int"))
    declarations.Package(source).generate(target)
    written = [path.name for path in target.rglob("*.pxd") if path.stat().st_mtime > 1]
    assert written == ["other.pxd"]


def test_the_declaration_file_of_a_removed_module_is_removed(tmp_path: pathlib.Path) -> None:
    source, target = make_package(tmp_path), tmp_path / "target"
    declarations.Package(source).generate(target)
    (source / "node.py").unlink()
    declarations.Package(source).generate(target)
    assert not (target / "pack" / "node.pxd").exists()


def test_a_module_depends_on_what_its_imports_declare(tmp_path: pathlib.Path) -> None:
    source = make_package(tmp_path)
    (source / "user.py").write_text("import cython\nfrom pack.node import Node\n")
    dependencies = declarations.Package(source).dependencies("pack.user")
    assert dependencies == {"pack.user", "pack.node", "pack.other", "pack.twin"}


def test_a_changed_declaration_removes_the_c_files_that_depend_on_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_package(tmp_path)
    setup = load(ROOT / "setup.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(setup, "SOURCE", pathlib.Path("src/pack"))
    c_directory = pathlib.Path("build/c")
    assert setup.declare(c_directory) == ["pack.alone", "pack.node", "pack.other"]
    for path in [*setup.DECLARATIONS.rglob("*.pxd"), source / "twin.pxd"]:
        os.utime(path, (1, 1))
    c_files = [c_directory / "src" / "pack" / f"{name}.c" for name in ("alone", "node", "other")]
    c_files[0].parent.mkdir(parents=True)
    for path in c_files:
        path.touch()
        os.utime(path, (2, 2))
    assert setup.declare(c_directory) and all(path.exists() for path in c_files)
    (source / "other.py").write_text(OTHER.replace("    pass", "    size: cython.int"))
    setup.declare(c_directory)
    assert [path.stem for path in c_files if path.exists()] == ["alone"]


def test_the_build_stops_with_the_line_that_cannot_be_declared(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_package(tmp_path, "import cython\nX = cython.declare(cython.float128, 1)\n")
    setup = load(ROOT / "setup.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(setup, "SOURCE", pathlib.Path("src/pack"))
    with pytest.raises(SystemExit, match=r"^src/pack/node\.py:2: cython\.float128 cannot be declared"):
        setup.declare(pathlib.Path("build/c"))


# The package itself.


def c_classes() -> list[tuple[str, ast.ClassDef]]:
    return [(name, node) for name, m in PACKAGE.modules.items() for node in m.classes.values()]


def fields_of(name: str, node: ast.ClassDef) -> set[str]:
    """The names that a C class and its bases declare or define."""
    module = PACKAGE.modules[name]
    found = {ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)} | {
        item.name for item in node.body if isinstance(item, ast.FunctionDef)
    }
    for base in node.bases:
        origin = PACKAGE.find_class(module, ast.unparse(base))
        assert origin is not None
        found |= fields_of(origin[0].name, origin[0].classes[origin[1]])
    return found


def test_attributes_assigned_on_self_in_c_classes_are_declared() -> None:
    wrong = [
        f"{name}.{node.name}.{part.attr} (line {part.lineno})"
        for name, node in c_classes()
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store | ast.Del)
        and ast.unparse(part.value) == "self"
        and part.attr not in fields_of(name, node)
    ]
    assert not wrong, "\n".join(wrong)


def test_c_classes_have_no_slots() -> None:
    """The declaration of a field is its slot, and the only place where its name stands."""
    wrong = [
        f"{name}.{node.name}"
        for name, node in c_classes()
        for item in node.body
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "__slots__"
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_twins_have_a_declaration_file_written_by_hand() -> None:
    written = sorted(str(path.relative_to(SRC).with_suffix("")) for path in SRC.rglob("*.pxd"))
    assert written == TWINS
    assert not [stem for stem in TWINS if PACKAGE.modules[f"headrace.{stem.replace('/', '.')}"].compiled]


@pytest.mark.parametrize("stem", TWINS)
def test_twins_have_the_same_functions_in_python_and_in_c(stem: str) -> None:
    tree = ast.parse((SRC / f"{stem}.py").read_text())
    interpreted = {n.name for n in tree.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")}
    compiled = set(
        re.findall(r"^cdef inline [\w ]+?\*?\b(?!_)(\w+)\(", (SRC / f"{stem}.pxd").read_text(), re.MULTILINE)
    )
    assert interpreted == compiled


@pytest.mark.parametrize("name", PACKAGE.compiled())
def test_the_mode_is_the_one_asked_for(name: str) -> None:
    file = importlib.import_module(name).__file__
    assert file is not None
    assert file.endswith(".so") == ("HEADRACE_COMPILED" in os.environ), file


C_SOURCES = sorted((ROOT / "build" / "c" / "plain").rglob("*.c"))


@pytest.mark.skipif(
    not C_SOURCES or "HEADRACE_COMPILED" not in os.environ, reason="nothing was compiled here"
)
def test_no_pointer_leaves_for_python() -> None:
    """A pointer given to a Python function would become bytes cut at the first NUL, silently."""
    leak = re.compile(r"__Pyx_Py(Object|Bytes|ByteArray|Unicode)_From[CUS]String\(")
    wrong = [
        f"{path}:{i}: {line.strip()}"
        for path in C_SOURCES
        for i, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if leak.search(line) and not line.lstrip().startswith("#") and "static CYTHON_INLINE" not in line
    ]
    assert not wrong, "\n".join(wrong)
