"""LCS: the longest common subsequence of two strings.

          ""  m  y  t        lengths  each cell: the length for the two prefixes that end there. A match
      ""   0  0  0  0                 is the cell above left plus 1; else the larger of above and left.
      o    0  0  0  0        up       one bit a cell: above is larger than left. From the last cell back, a
      y    0  0  1  1                 match is taken; else the way leads up if the bit is set, else left.

Only one row of lengths exists at a time; limits.LCS_CELLS_MAX bounds the bits, and the time.
"""

from __future__ import annotations

import cython

from headrace import limits, mem
from headrace.commands.arguments import Arguments
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax, WrongType


class NotStrings(CommandError):
    text = "ERR The specified keys must contain string values"


class LengthAndIndexes(CommandError):
    text = "ERR If you want both the length and indexes, please just use IDX."


class TooLarge(CommandError):
    text = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"


@cython.final
@cython.cclass
class Subsequence:
    """The longest common subsequence of a and b."""

    a: bytes
    b: bytes
    length: cython.Py_ssize_t
    up_bits: bytearray | None  # the bits, row by row; None if only the length is wanted

    def __init__(self, a: bytes, b: bytes, with_matches: cython.bint) -> None:
        self.a = a
        self.b = b
        self.up_bits = bytearray((len(a) * len(b) + 7) // 8) if with_matches else None
        self._compute()

    @cython.cfunc
    def _compute(self) -> cython.void:
        p: cython.p_const_uchar = self.a
        q: cython.p_const_uchar = self.b
        n: cython.Py_ssize_t = len(self.a)
        m: cython.Py_ssize_t = len(self.b)
        marks: cython.bint = self.up_bits is not None
        bits: bytearray = self.up_bits if self.up_bits is not None else bytearray(1)
        up: cython.p_uchar = bits
        row: bytearray = bytearray(4 * (m + 1))  # the lengths of the row above, replaced from left to right
        lengths: cython.p_uchar = row
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        cell: cython.Py_ssize_t = 0
        diagonal: cython.uint
        above: cython.uint
        left: cython.uint
        for i in range(n):
            diagonal = left = 0
            for j in range(1, m + 1):
                above = mem.u32le(lengths, 4 * j)
                if p[i] == q[j - 1]:
                    left = diagonal + 1
                elif above > left:
                    left = above
                    if marks:
                        up[cell >> 3] |= 1 << (cell & 7)
                diagonal = above
                mem.put_u32le(lengths, 4 * j, left)
                cell += 1
        self.length = mem.u32le(lengths, 4 * m)

    def match_runs(self) -> list[tuple[int, int, int]]:
        """Return the runs of matches, last first: the start in a, the start in b, the length."""
        p: cython.p_const_uchar = self.a
        q: cython.p_const_uchar = self.b
        i: cython.Py_ssize_t = len(self.a)
        j: cython.Py_ssize_t = len(self.b)
        width: cython.Py_ssize_t = j
        assert self.up_bits is not None
        bits: bytearray = self.up_bits
        up: cython.p_uchar = bits
        found: list[tuple[int, int, int]] = []
        run: cython.Py_ssize_t
        cell: cython.Py_ssize_t
        while i > 0 and j > 0:
            run = 0
            while i > 0 and j > 0 and p[i - 1] == q[j - 1]:
                i -= 1
                j -= 1
                run += 1
            if run:
                found.append((i, j, run))
                continue
            cell = (i - 1) * width + j - 1
            if up[cell >> 3] >> (cell & 7) & 1:
                i -= 1
            else:
                j -= 1
        return found


def run_lcs(call: Call) -> None:
    """LCS: reply with the subsequence, its length, or where its parts are."""
    try:
        first, second = call.database.string(call.argv[1]), call.database.string(call.argv[2])
    except WrongType:
        raise NotStrings() from None
    arguments: Arguments = call.arguments()
    arguments.at += 2
    wants_length = wants_indexes = wants_lengths = False
    least = 0
    while arguments.has_more():
        if arguments.take_flag(b"LEN"):
            wants_length = True
        elif arguments.take_flag(b"IDX"):
            wants_indexes = True
        elif arguments.take_flag(b"WITHMATCHLEN"):
            wants_lengths = True
        elif arguments.take_option(b"MINMATCHLEN"):
            least = arguments.next_integer()
        else:
            raise InvalidSyntax()
    if wants_length and wants_indexes:
        raise LengthAndIndexes()
    a, b = bytes(first or b""), bytes(second or b"")
    if (len(a) + 1) * (len(b) + 1) > limits.LCS_CELLS_MAX:
        raise TooLarge()
    common = Subsequence(a, b, not wants_length)
    if wants_length:
        call.reply.integer(common.length)
    elif wants_indexes:
        write_indexes(call, common, least, wants_lengths)
    else:
        call.reply.bulk(b"".join([a[at : at + n] for at, _, n in reversed(common.match_runs())]))


@cython.cfunc
def write_indexes(
    call: Call, common: Subsequence, least: cython.longlong, with_lengths: cython.bint
) -> cython.void:
    """Reply with the runs of at least `least` matches, and the length of the whole subsequence."""
    runs = [run for run in common.match_runs() if run[2] >= least]
    call.reply.map(2)
    call.reply.bulk(b"matches")
    call.reply.array(len(runs))
    for at, other, n in runs:
        call.reply.array(3 if with_lengths else 2)
        for start in (at, other):
            call.reply.array(2)
            call.reply.integer(start)
            call.reply.integer(start + n - 1)
        if with_lengths:
            call.reply.integer(n)
    call.reply.bulk(b"len")
    call.reply.integer(common.length)


COMMANDS = [
    Command(
        "lcs",
        -3,
        run_lcs,
        "readonly",
        keys="1..2: RO access",
        group="string",
        since="7.0.0",
        summary="Returns the longest common subsequence of two strings.",
        syntax="key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
        complexity="O(N*M), N and M being the lengths of the strings",
    ),
]
