"""The part of Cython's pure-Python dialect this project allows itself; a name missing here is a type error.

A pointer is typed as the buffer it is borrowed from, which is exactly what it is when interpreted.
"""

import builtins
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type[Any])

compiled: bool

# class and function kinds
def cclass(c: _C, /) -> _C: ...
def final(c: _T, /) -> _T: ...
def cfunc(f: _F, /) -> _F: ...
def ccall(f: _F, /) -> _F: ...
def inline(f: _F, /) -> _F: ...
def exceptval(value: builtins.int | None = None, /, *, check: bool = False) -> Callable[[_F], _F]: ...
def freelist(n: builtins.int, /) -> Callable[[_C], _C]: ...
def no_gc(c: _C, /) -> _C: ...
def nonecheck(on: bool, /) -> Callable[[_T], _T]: ...

class _NoGil:
    """`@cython.nogil`: runs without the GIL; `with cython.nogil:` releases it. No Python object is used there."""

    def __call__(self, f: _F, /) -> _F: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...

nogil: _NoGil

# C scalars
bint: TypeAlias = bool
char: TypeAlias = builtins.int
uchar: TypeAlias = builtins.int
ushort: TypeAlias = builtins.int
int: TypeAlias = builtins.int
uint: TypeAlias = builtins.int
longlong: TypeAlias = builtins.int
ulonglong: TypeAlias = builtins.int
double: TypeAlias = float
Py_ssize_t: TypeAlias = builtins.int
size_t: TypeAlias = builtins.int
void: TypeAlias = None

# borrowed buffers
p_uchar: TypeAlias = bytearray
p_const_uchar: TypeAlias = bytes | bytearray

def declare(t: Any, value: _T, /) -> _T: ...
def likely(condition: bool, /) -> bool: ...
def unlikely(condition: bool, /) -> bool: ...
