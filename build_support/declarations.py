"""Generate the Cython declaration files (.pxd) of the compiled modules.

A declaration file is for a compiled module what a header is for a C file: Cython reads it to lay out the
module's C classes and to let other compiled modules call its functions in C. It follows from the annotated
.py file:

    import cython                            the module is compiled, and has a declaration file
    from headrace.a import b                 from headrace.a cimport b, if it uses what b declares
    from headrace.a.b import C               from headrace.a.b cimport C, if C is a C class or ccall function
    N = cython.declare(cython.int, 3)        cdef int N
    @cython.cclass class C:                  cdef class C:
        size: cython.int                         cdef readonly int size
        size: Public[cython.int]                 cdef public int size
        _size: cython.int                        cdef int _size
        p: cython.p_uchar                        cdef unsigned char *p
        @cython.cfunc def f(self) -> bytes       cdef bytes f(self)
        @cython.ccall def f(self) -> bytes       cpdef bytes f(self)
        @cython.cfunc @cython.inline def ...     cdef inline ...
    @cython.exceptval(-1, check=False)       except -1
    @cython.exceptval(check=False)           noexcept
    @cython.nogil                            nogil

Python sees a field unless its name begins with an underscore. Python never sees a pointer or a bytearray:
a compiled class may hold a pointer into its bytearray, which dangles after a resize.
Outside of classes, a name that begins with an underscore is private to its module and is not declared: the
C compiler then knows all callers of a function, and can inline it.

A module with a declaration file beside it in the source tree is a twin: the .pxd is the same module written
in C, by hand.
"""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

C_TYPES = {
    "bint": "bint",
    "char": "char",
    "double": "double",
    "int": "int",
    "longlong": "long long",
    "p_const_uchar": "const unsigned char *",
    "p_uchar": "unsigned char *",
    "Py_ssize_t": "Py_ssize_t",
    "size_t": "size_t",
    "uchar": "unsigned char",
    "uint": "unsigned int",
    "ulonglong": "unsigned long long",
    "ushort": "unsigned short",
    "void": "void",
}
BUILTINS = {"bytearray", "bytes", "dict", "list", "memoryview", "object", "set", "str", "tuple"}
CONTAINERS = {"dict", "list", "set", "tuple"}


class DeclarationError(Exception):
    """A module cannot be declared; the message begins with file and line."""


class Module:
    """One source file of the package, and what it defines for other compiled modules."""

    def __init__(self, name: str, path: pathlib.Path) -> None:
        self.name = name
        self.path = path
        self.tree = ast.parse(path.read_bytes(), str(path))
        self.twin = path.with_suffix(".pxd").exists() and path.stem != "__init__"
        self.compiled = any(
            isinstance(node, ast.Import) and any(alias.name == "cython" for alias in node.names)
            for node in self.tree.body
        )
        classes = [node for node in self.tree.body if isinstance(node, ast.ClassDef)]
        self.classes = {node.name: node for node in classes if has_decorator(node, "cclass")}
        functions = [node for node in self.tree.body if isinstance(node, ast.FunctionDef)]
        self.functions = {node.name: node for node in functions if is_c_function(node)}
        self.constants = {ast.unparse(target): (node, value) for node, target, value in self._constants()}
        self.imports = dict(self._imports())

    @property
    def declared(self) -> bool:
        """Whether the module has a declaration file, generated or written by hand."""
        return self.compiled or self.twin

    def _imports(self) -> Iterator[tuple[str, tuple[str, str, ast.ImportFrom]]]:
        """Yield local name, module and name there for each `from ... import` outside of functions."""
        for node in outside_functions(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    yield alias.asname or alias.name, (node.module, alias.name, node)

    def _constants(self) -> Iterator[tuple[ast.stmt, ast.expr, ast.Call]]:
        """Yield statement, target and value of each call of `cython.declare` outside of functions."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if ast.unparse(node.value.func) == "cython.declare":
                    yield node, target, node.value

    def uses(self, local: str, other: Module) -> bool:
        """Whether the module uses anything that another one declares, imported as a whole under a name."""
        names = other.functions.keys() | other.constants.keys()
        declared = other.classes.keys() | {name for name in names if not name.startswith("_")}
        return other.twin or any(
            isinstance(node, ast.Attribute)
            and node.attr in declared
            and isinstance(node.value, ast.Name)
            and node.value.id == local
            for node in ast.walk(self.tree)
        )

    def error(self, node: ast.AST, problem: str) -> DeclarationError:
        """Return the error for a construct of this module."""
        return DeclarationError(f"{self.path}:{getattr(node, 'lineno', 1)}: {problem}")


class Package:
    """All modules of a package: finds them, and generates their declaration files."""

    def __init__(self, source: pathlib.Path) -> None:
        self.source = source
        self.modules: dict[str, Module] = {}
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source.parent).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            self.modules[name] = Module(name, path)

    def compiled(self) -> list[str]:
        """Return the names of the compiled modules."""
        return [name for name, module in self.modules.items() if module.compiled]

    def declaration(self, name: str) -> str:
        """Return the text of one module's declaration file.

        Raises:
            DeclarationError: if the module uses a construct that cannot be declared.
        """
        return "\n".join(Declaration(self, self.modules[name]).lines()) + "\n"

    def generate(self, target: pathlib.Path) -> dict[str, pathlib.Path]:
        """Write all declaration files below `target`, and remove those of modules that are gone.

        A file whose text is the same is not written: its time tells what must be compiled again.

        Returns:
            The declaration file of each module that has one, those written by hand included.

        Raises:
            DeclarationError: if a module uses a construct that cannot be declared.
        """
        files = {
            name: module.path.with_suffix(".pxd") if module.twin else generated_file(target, name)
            for name, module in self.modules.items()
            if module.declared
        }
        texts = {files[name]: self.declaration(name) for name in files if not self.modules[name].twin}
        for module in self.modules.values():
            if module.path.stem == "__init__":  # Cython takes a directory without one for no package
                path = target / module.path.relative_to(self.source.parent).with_suffix(".pxd")
                texts[path] = ""
        for path in [path for path in target.rglob("*.pxd") if path not in texts]:
            path.unlink()
        for path, text in texts.items():
            if not path.exists() or path.read_text() != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return files

    def dependencies(self, name: str) -> set[str]:
        """Return the modules whose declarations the C code of a module depends on, itself included."""
        found: set[str] = set()
        pending = [name]
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending += [of for of, _, _ in Declaration(self, self.modules[name]).cimports()]
        return found

    def find_class(self, module: Module, name: str) -> tuple[Module, str] | None:
        """Return where the C class is defined that a module knows by a name; None if it is none."""
        if name in module.classes:
            return module, name
        if name in module.imports:
            of, there, _ = module.imports[name]
            if of in self.modules:
                return self.find_class(self.modules[of], there)
        return None


class Declaration:
    """The declaration file of one module."""

    def __init__(self, package: Package, module: Module) -> None:
        self.package = package
        self.module = module

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        yield f"# Generated from {self.module.path.name} by build_support/declarations.py."
        yield from sorted(
            f"from {of} cimport {name}" + (f" as {local}" if local != name else "")
            for of, name, local in self.cimports(modules=True)
        )
        yield from self._constants()
        for name in self._forward_declared():
            yield f"cdef class {name}"
        for node in self.module.classes.values():
            yield ""
            yield ""
            yield from self._class(node)
        functions = [node for name, node in self.module.functions.items() if not name.startswith("_")]
        if functions:
            yield ""
            yield ""
        for function in functions:
            yield self._function(function)

    def cimports(self, modules: bool = False) -> Iterator[tuple[str, str, str]]:
        """Yield module, name and local name of what is imported from declaration files.

        Args:
            modules: yield a package, module and local name where a whole module is imported; otherwise
                yield the imported module itself.
        """
        known = self.package.modules
        if not self.module.compiled:
            return
        for local, (of, name, node) in self.module.imports.items():
            whole = known.get(f"{of}.{name}")
            if whole is not None and whole.declared:
                if not self.module.uses(local, whole):
                    continue
                yield (of, name, local) if modules else (whole.name, name, local)
            elif of in known and known[of].compiled:
                origin = known[of]
                found = self.package.find_class(self.module, local)
                if found is not None:
                    yield found[0].name, found[1], local
                elif name in origin.functions:
                    if not has_decorator(origin.functions[name], "ccall"):
                        raise self.module.error(node, f"import {of} and call the cfunc as {of}.{name}")
                    if not name.startswith("_"):
                        yield of, name, local

    def _constants(self) -> Iterator[str]:
        """Yield the C variables of the module: what `cython.declare` makes."""
        for name, (node, value) in self.module.constants.items():
            if not name.isidentifier() or len(value.args) != 2:
                raise self.module.error(node, "write NAME = cython.declare(TYPE, VALUE)")
            if not name.startswith("_"):
                yield f"cdef {join_type(self._type(value.args[0]), name)}"

    def _forward_declared(self) -> list[str]:
        """Return the classes that are mentioned before their definition."""
        seen: set[str] = set()
        early: set[str] = set()
        for name, node in self.module.classes.items():
            seen.add(name)
            mentioned = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            early |= mentioned & (self.module.classes.keys() - seen)
        return [name for name in self.module.classes if name in early]

    def _class(self, node: ast.ClassDef) -> Iterator[str]:
        """Yield the declaration of a C class."""
        bases = [base for base in node.bases if ast.unparse(base) != "object"]
        if len(bases) > 1:
            raise self.module.error(node, f"{node.name}: a C class has one base class")
        base = f"({self._type(bases[0])})" if bases else ""
        if base == "(object)":
            raise self.module.error(node, f"{node.name}: {ast.unparse(bases[0])} is not a C class")
        yield f"cdef class {node.name}{base}:"
        fields = [f"    {self._field(item)}" for item in node.body if isinstance(item, ast.AnnAssign)]
        methods = [
            f"    {self._function(item, method=True)}"
            for item in node.body
            if isinstance(item, ast.FunctionDef) and is_c_function(item)
        ]
        yield from fields
        if fields and methods:
            yield ""
        yield from methods
        if not fields and not methods:
            yield "    pass"

    def _field(self, node: ast.AnnAssign) -> str:
        """Return the declaration of a field."""
        if not isinstance(node.target, ast.Name) or node.value is not None:
            raise self.module.error(node, "a field of a C class is declared as NAME: TYPE, without a value")
        name, annotation = node.target.id, node.annotation
        visibility = "" if name.startswith("_") or holds_memory(annotation) else "readonly "
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Public":
            annotation, visibility = annotation.slice, "public "
            if holds_memory(annotation):
                raise self.module.error(node, f"{name}: Python may not write a pointer or its bytearray")
        if any(isinstance(part, ast.Name) and part.id == "Public" for part in ast.walk(annotation)):
            raise self.module.error(node, f"{name}: write Public[...] around the whole type")
        kind = self._type(annotation).partition("[")[0]  # items are checked where they are used
        return f"cdef {visibility}{join_type(kind, name)}"

    def _function(self, node: ast.FunctionDef, method: bool = False) -> str:
        """Return the declaration of a cfunc or ccall function or method."""
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
            raise self.module.error(node, f"{node.name}(): a C function takes ordinary arguments only")
        static = any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
        declared: list[str] = []
        first_default = len(arguments.args) - len(arguments.defaults)
        for i, argument in enumerate(arguments.args):
            if i == 0 and method and not static:
                declared.append("self")
                continue
            if argument.annotation is None:
                raise self.module.error(argument, f"{node.name}(): argument {argument.arg} has no type")
            typed = join_type(self._type(argument.annotation), argument.arg)
            declared.append(typed + ("=*" if i >= first_default else ""))
        if node.returns is None:
            raise self.module.error(node, f"{node.name}(): it has no return type")
        kind = "cpdef" if has_decorator(node, "ccall") else "cdef"
        if method and has_decorator(node, "inline"):
            kind += " inline"  # of a method, Cython heeds the declaration only
        head = f"{kind} {join_type(self._type(node.returns), node.name)}"
        static_line = "@staticmethod\n    " if static else ""
        nogil = " nogil" if has_decorator(node, "nogil") else ""
        return f"{static_line}{head}({', '.join(declared)}){self._exception_clause(node)}{nogil}"

    def _exception_clause(self, node: ast.FunctionDef) -> str:
        """Return the exception clause that @cython.exceptval stands for; "" for Cython's default."""
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "cython.exceptval":
                check = any(k.arg == "check" and ast.unparse(k.value) == "True" for k in decorator.keywords)
                if not decorator.args:
                    return " except *" if check else " noexcept"
                return f" except{'?' if check else ''} {ast.unparse(decorator.args[0])}"
        return ""

    def _type(self, node: ast.expr) -> str:
        """Return the C type of an annotation: `object` for a type that C cannot name."""
        return self._named_type(node) or "object"

    def _named_type(self, node: ast.expr) -> str | None:
        """Return the C type of an annotation; None for a type that C cannot name."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            kinds = [side for side in (node.left, node.right) if ast.unparse(side) != "None"]
            kind = self._named_type(kinds[0]) if len(kinds) == 1 else None
            if kind in C_TYPES.values():
                raise self.module.error(node, f"{ast.unparse(node)}: a C type is never None")
            return kind
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "cython":
            if node.attr not in C_TYPES:
                raise self.module.error(node, f"cython.{node.attr} cannot be declared; see C_TYPES")
            return C_TYPES[node.attr]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            raise self.module.error(node, f"write the annotation {node.value!r} without quotation marks")
        if isinstance(node, ast.Subscript):
            return self._generic(node)
        if isinstance(node, ast.Name):
            known = node.id in BUILTINS or self.package.find_class(self.module, node.id) is not None
            return node.id if known else None
        return None

    def _generic(self, node: ast.Subscript) -> str | None:
        """Return the C type of an annotation with parameters, as list[bytes]."""
        of = self._named_type(node.value)
        if of not in CONTAINERS:
            return of
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        kinds = [kind for item in items if (kind := self._named_type(item)) is not None]
        in_c = [kind for kind in kinds if kind in C_TYPES.values()]
        if of == "tuple" and len(in_c) == len(items):
            return f"({', '.join(kinds)})"  # a C structure
        return of if in_c or len(kinds) < len(items) else f"{of}[{', '.join(kinds)}]"


def generated_file(target: pathlib.Path, name: str) -> pathlib.Path:
    """Return where the declaration file of a module is written."""
    return target.joinpath(*name.split(".")).with_suffix(".pxd")


def outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the statements of a module that stand in no class or function, those below `if` included."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        node = pending.pop(0)
        yield node
        if isinstance(node, ast.If):
            pending += node.body + node.orelse


def has_decorator(node: ast.ClassDef | ast.FunctionDef, name: str) -> bool:
    """Whether a class or function is decorated with cython.NAME."""
    return any(ast.unparse(decorator) == f"cython.{name}" for decorator in node.decorator_list)


def is_c_function(node: ast.FunctionDef) -> bool:
    """Whether a function or method is a cfunc or ccall."""
    return has_decorator(node, "cfunc") or has_decorator(node, "ccall")


def holds_memory(annotation: ast.expr) -> bool:
    """Whether a field is a pointer or may be a bytearray that one points into."""
    names = {ast.unparse(n) for n in ast.walk(annotation) if isinstance(n, ast.Name | ast.Attribute)}
    return bool(names & {"bytearray", "cython.p_uchar", "cython.p_const_uchar"})


def join_type(kind: str, name: str) -> str:
    """Return `TYPE NAME`, without a space after a pointer's asterisk."""
    return f"{kind}{name}" if kind.endswith("*") else f"{kind} {name}"
