"""A placeholder for a cold run in a snapshot. The encoder's thread reads the run: no other one waits for it.

walk              piece │ RunPiece │ piece        a run takes no memory in the queue
                            │
encoder thread              ▼
                  read, check, decompress ─▶ pieces with the nodes ─▶ encode, write
"""

from __future__ import annotations

import cython

from headrace.persistence.rdb.output import RdbOutput, RdbPiece
from headrace.streams.cold_run import ColdRun
from headrace.streams.node import Node

NODE_KEY_BYTES = cython.declare(cython.uchar, 16)
RUN_PIECE_QUEUE_BYTES = cython.declare(cython.Py_ssize_t, 1024)  # in a queue: the objects


@cython.ccall
def write_node_key(out: RdbOutput, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
    """Write the key of a node, which its listpack follows."""
    out.byte(NODE_KEY_BYTES)
    out.raw_id(ms, seq)


@cython.final
@cython.cclass
class RunPiece:
    """A copy of a cold run, to be expanded later. len() is about the size of its nodes in the file."""

    run: ColdRun
    compress: cython.bint

    def __init__(self, run: ColdRun, compress: cython.bint) -> None:
        self.run = run.copy()
        self.compress = compress

    def __len__(self) -> int:
        return self.run.bytes_if_loaded

    def queue_cost(self) -> int:
        """Return how many bytes the piece counts in a queue."""
        return RUN_PIECE_QUEUE_BYTES


@cython.final
@cython.cclass
class RunExpander:
    """Reads cold runs and makes an RdbPiece or several of the nodes of each, for one file, in one thread."""

    out: RdbOutput
    pieces: list[RdbPiece]

    def __init__(self, compress: cython.bint) -> None:
        self.pieces = []
        self.out = RdbOutput(self.pieces.append, compress, deferred=True)

    def expand(self, piece: RunPiece) -> list[RdbPiece]:
        """Return pieces with the nodes of a run; the next call drops them. Raises DamagedColdRun."""
        node: Node
        out: RdbOutput = self.out
        self.pieces.clear()
        for node in piece.run.read_nodes():
            write_node_key(out, node.ms, node.seq)
            out.shared_string(node.pack.buf, node.pack.used + 1)
        out.flush()
        return self.pieces
