"""Each .pxd agrees with its .py where the compiler would stay silent, and each mode is what it claims."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SRC = ROOT / "src" / "headrace"
TWICE_SAID = ["mem", "system", "server/descriptors"]  # pairs whose .pxd repeats the .py in C
FACES = sorted(
    p
    for p in SRC.rglob("*.pxd")
    if p.stem != "__init__" and str(p.relative_to(SRC).with_suffix("")) not in TWICE_SAID
)
C_NAMES = {
    "unsigned char": "cython.uchar",
    "unsigned int": "cython.uint",
    "unsigned short": "cython.ushort",
    "long long": "cython.longlong",
    "unsigned long long": "cython.ulonglong",
    "unsigned char *": "cython.p_uchar",
    "const unsigned char *": "cython.p_const_uchar",
} | {n: f"cython.{n}" for n in ("Py_ssize_t", "bint", "int", "double", "char", "size_t")}
FIELD = re.compile(r"^    cdef (?:readonly |public )?([\w ]+?\*?) ?(\w+)$", re.MULTILINE)


def fields_of_face(text: str) -> dict[str, str]:
    return {name: C_NAMES.get(kind.strip(), kind.strip()) for kind, name in FIELD.findall(text)}


def fields_of_module(text: str) -> dict[str, str]:
    classes = [
        n
        for n in ast.parse(text).body
        if isinstance(n, ast.ClassDef) and any("cclass" in ast.unparse(d) for d in n.decorator_list)
    ]
    return {
        node.target.id: plain(node.annotation)
        for c in classes
        for node in c.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def fields_without_types(text: str) -> set[str]:
    """Of a class that is a C class by its face alone: what its methods give a value."""
    return {
        node.attr
        for c in ast.parse(text).body
        if isinstance(c, ast.ClassDef)
        for node in ast.walk(c)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
    }


def plain(annotation: ast.expr) -> str:
    """An annotation as the face says it: no type parameters, no `| None`; what C cannot name is an object."""
    return ast.unparse(annotation).split("[")[0].removesuffix(" | None")


@pytest.mark.parametrize("face", FACES, ids=lambda p: str(p.relative_to(SRC)))
def test_fields_have_one_type(face: pathlib.Path) -> None:
    said = fields_of_face(face.read_text())
    module = face.with_suffix(".py").read_text()
    meant = fields_of_module(module)
    if said.pop("__dict__", None):
        assert not meant and set(said) <= fields_without_types(module)
        return
    loose = {
        n for n, kind in said.items() if kind == "object"
    }  # an object in C may be typed more closely in Python
    assert {n: k for n, k in said.items() if n not in loose} == {
        n: k for n, k in meant.items() if n not in loose
    }
    assert set(said) == set(meant)
