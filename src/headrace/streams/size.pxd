# The C face of size.py.
from headrace.streams cimport node as nodes_of
from headrace.streams.group cimport Group
from headrace.streams.node cimport Node
from headrace.streams.stream cimport Stream
from headrace.streams.weight cimport Weight
from headrace.structures cimport footprint
from headrace.structures.listpack cimport Listpack
from headrace.structures.rax_walk cimport RaxCursor


cpdef Py_ssize_t memory_bytes(Stream stream)
