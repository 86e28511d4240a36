"""Measure the memory of a stream by visiting its nodes; memory_account.py has an estimate at any time."""

from __future__ import annotations

import cython

from headrace.streams import cold_run, memory_account
from headrace.streams import node as node_module
from headrace.streams.group import Group
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.node import Node
from headrace.streams.stream import Stream
from headrace.structures import footprint
from headrace.structures.listpack import Listpack
from headrace.structures.rax_walk import RaxCursor


@cython.ccall
def memory_bytes(stream: Stream) -> cython.Py_ssize_t:
    """Return the bytes that the stream takes. Visits the nodes, not the entries."""
    total: cython.Py_ssize_t = footprint.instance_bytes(Stream) + footprint.instance_bytes(MemoryAccount)
    each: cython.Py_ssize_t = footprint.instance_bytes(Node) + footprint.instance_bytes(Listpack)
    cursor: RaxCursor = RaxCursor(stream.nodes)
    node: Node
    more: cython.bint = cursor.seek("^")
    total += stream.nodes.memory_bytes()
    while more:
        node = node_module.node_of_cursor(cursor)
        total += each
        if node.run is None:
            total += footprint.object_bytes(node.pack.buf)
        else:
            total += memory_account.RUN_BYTES + cold_run.run_of(node).removal_record_bytes()
        more = cursor.next()
    if stream.live_counts is not None:
        total += stream.live_counts.memory_bytes()
    group: Group
    if stream.groups_by_name is not None:
        total += footprint.object_bytes(stream.groups_by_name)
    for group in stream.groups():
        total += group.memory_bytes()
    if stream.idempotency is not None:
        total += stream.idempotency.memory_bytes()
    return total
