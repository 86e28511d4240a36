"""The page about the library says what its sources say, and leaves nothing out."""

import ast
import importlib.util
import pathlib
import types

import headrace.pipeline
import headrace.spark

ROOT = pathlib.Path(__file__).parent.parent


def script() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("api_reference", ROOT / "scripts" / "api_reference.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current() -> None:
    made = script().page()
    assert (ROOT / "docs" / "api.md").read_text() == made, "stale: python scripts/api_reference.py"


def test_every_public_name_stands_on_it() -> None:
    reference = script()
    listed = {name for _, modules in reference.CHAPTERS for _, names in modules for name in names}
    public = {*headrace.__all__, *headrace.pipeline.__all__, *headrace.spark.__all__}
    public -= {"HeadraceError", "__version__", "errors"}  # errors are a table
    public -= {"HeadraceSource"}  # options.md describes it
    assert public <= listed, f"not in CHAPTERS: {sorted(public - listed)}"


def test_everything_on_it_has_something_said() -> None:
    reference = script()
    sources = reference.Sources()
    silent = []
    for _, modules in reference.CHAPTERS:
        for module, names in modules:
            for name in names:
                node = sources.definition(module, name)
                silent += [] if reference.docstring(node) else [name]
                if isinstance(node, ast.ClassDef):
                    methods = [m for m in reference.members(node) if not reference.docstring(m)]
                    silent += [f"{name}.{m.name}" for m in methods]
    assert not silent, ", ".join(silent)


def test_what_is_hidden_is_there() -> None:
    reference = script()
    sources = reference.Sources()
    classes = {node.name: node for _, node in sources.definitions.values() if isinstance(node, ast.ClassDef)}
    for hidden in reference.HIDDEN:
        owner, _, name = hidden.partition(".")
        assert any(getattr(each, "name", "") == name for each in classes[owner].body), hidden
