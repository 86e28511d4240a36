"""Declare which attributes of C classes Python may read and write.

Python reads the attributes of a compiled class, unless the declaration in its body says otherwise:

    rows: cython.longlong            Python code reads it
    rows: Public[cython.longlong]    Python code reads and writes it
    _rows: cython.longlong           only compiled code can access it

build_support/declarations.py generates the declaration file from these. Interpreted, all are public.
"""

from typing import Annotated, TypeVar

_T = TypeVar("_T")

Public = Annotated[_T, "public"]
