"""The visibility of the fields of C classes.

A compiled class shows its fields to Python read-only, unless the declaration in its body says otherwise:

    rows: cython.longlong            Python code reads it
    rows: Public[cython.longlong]    Python code reads and writes it
    _rows: cython.longlong           only compiled code sees it

build_support/declarations.py derives the declaration file from that. Interpreted, every field is public.
"""

from typing import Annotated, TypeVar

_T = TypeVar("_T")

Public = Annotated[_T, "public"]
