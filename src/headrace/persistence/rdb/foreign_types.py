"""Skip values of the types that Headrace does not hold, up to the next key.

    type           the value                                             written by
    list         1 count, then: string                                   Redis up to 3.0
                10 string (a ziplist)                                    Redis up to 3.0
                14 count, then: string (a ziplist)                       Redis 3.2 to 6.2
                18 count, then: length, string (an element, a listpack)  Redis 7.0 on, Valkey
    set          2 count, then: string                                   all
                11 string (an intset)                                    all
                20 string (a listpack)                                   Redis 7.2 on, Valkey
    sorted set   3 count, then: string, score as text                    Redis up to 3.2
                 5 count, then: string, f64                              Redis 4.0 on, Valkey
                12 string (a ziplist)                                    Redis up to 6.2
                17 string (a listpack)                                   Redis 7.0 on, Valkey
    hash         4 count, then: string, string                           all
                 9 string (a zipmap)                                     Redis up to 2.4
                13 string (a ziplist)                                    Redis up to 6.2
                16 string (a listpack)                                   Redis 7.0 on, Valkey
                22 count, then: length, string, string                   previews of Redis 7.4
                22 count, then: string, string, i64                      Valkey 9.0 on: expiring fields
                23 string (a listpack)                                   previews of Redis 7.4
                24 i64, count, then: length, string, string              Redis 7.4 on: expiring fields
                25 i64, string (a listpack)                              Redis 7.4 on: expiring fields
    module       7 length (the module), module data                      Redis 4.0 on, Valkey
    array       28 count, 0 | 1 length, then: length, element            Redis 8.8

    score as text   u8: 253 to 255 (NaN, infinities) | n, then n bytes
    module data     length, then by it: 1, 2 length | 3 four bytes | 4 eight bytes | 5 string; 0 is the end
    element         length, then by it: 0, 3 string | 1, 2 eight bytes

Type 6, a module's value in previews of Redis 4, does not say where it ends and cannot be skipped. The tests
compare 2, 4, 5, 11, 16, 17 and 18 with files of redis-server 7.0.15; the others are known from public
descriptions of the format.
"""

from __future__ import annotations

import cython

from headrace.persistence.damage import Damaged, ForeignDataError
from headrace.persistence.rdb.input import RdbInput

TYPE_NUMBERS_BY_NAME = {
    "list": (1, 10, 14, 18),
    "set": (2, 11, 20),
    "sorted set": (3, 5, 12, 17),
    "hash": (4, 9, 13, 16, 22, 23, 24, 25),
    "module value": (6, 7),
    "array": (28,),
}
TYPE_NAMES = {number: name for name, numbers in TYPE_NUMBERS_BY_NAME.items() for number in numbers}

# What to skip, in order: s string, l length, q eight bytes, t score as text, m module data, a array.
# After a star: count, then the rest so many times.
SKIP_PATTERNS = {
    **dict.fromkeys((1, 2, 14), b"*s"),
    **dict.fromkeys((9, 10, 11, 12, 13, 16, 17, 20, 23), b"s"),
    3: b"*st",
    4: b"*ss",
    5: b"*sq",
    7: b"lm",
    18: b"*ls",
    22: b"*lss",
    24: b"q*lss",
    25: b"qs",
    28: b"a",
}
VALKEY_SKIP_PATTERNS = SKIP_PATTERNS | {22: b"*ssq"}

SKIP_STRING = cython.declare(cython.uchar, 115)  # the letters above
SKIP_LENGTH = cython.declare(cython.uchar, 108)
SKIP_EIGHT_BYTES = cython.declare(cython.uchar, 113)
SKIP_SCORE = cython.declare(cython.uchar, 116)
SKIP_MODULE = cython.declare(cython.uchar, 109)
SKIP_ARRAY = cython.declare(cython.uchar, 97)

NAN_SCORE = cython.declare(cython.uint, 253)  # and two infinities above it
MODULE_END = cython.declare(cython.ulonglong, 0)
MODULE_FLOAT = cython.declare(cython.ulonglong, 3)
MODULE_DOUBLE = cython.declare(cython.ulonglong, 4)
MODULE_STRING = cython.declare(cython.ulonglong, 5)


@cython.ccall
def skip_value(inp: RdbInput, kind: cython.int, valkey: cython.bint) -> cython.void:
    """Skip a value of the type `kind`; valkey: the file is one of Valkey.

    Raises Damaged; ForeignDataError for a type that cannot be skipped.
    """
    count: cython.ulonglong
    once: bytes
    star: bytes
    repeated: bytes
    shapes: dict[int, bytes] = VALKEY_SKIP_PATTERNS if valkey else SKIP_PATTERNS
    if kind not in shapes:
        raise ForeignDataError(inp.offset(), f"a value of the type {kind}, which cannot be skipped")
    once, star, repeated = shapes[kind].partition(b"*")
    _skip(inp, once)
    if star:
        count = inp.length()
        while count > 0:
            _skip(inp, repeated)
            count -= 1


@cython.ccall
def skip_module_data(inp: RdbInput) -> cython.void:
    """Skip module data, as the table above describes them. Raises Damaged."""
    at: cython.longlong = inp.offset()
    what: cython.ulonglong = inp.length()
    while what != MODULE_END:
        if what < MODULE_FLOAT:
            inp.length()
        elif what == MODULE_FLOAT:
            inp.skip(4)
        elif what == MODULE_DOUBLE:
            inp.skip(8)
        elif what == MODULE_STRING:
            inp.skip_string()
        else:
            raise Damaged(at, f"the number {what} in the data of a module")
        at = inp.offset()
        what = inp.length()


@cython.cfunc
def _skip(inp: RdbInput, shape: bytes) -> cython.void:
    """Skip the parts that the letters of shape say."""
    letters: cython.p_const_uchar = shape
    at: cython.Py_ssize_t
    letter: cython.uchar
    for at in range(len(shape)):
        letter = letters[at]
        if letter == SKIP_STRING:
            inp.skip_string()
        elif letter == SKIP_LENGTH:
            inp.length()
        elif letter == SKIP_EIGHT_BYTES:
            inp.skip(8)
        elif letter == SKIP_SCORE:
            _skip_score(inp)
        elif letter == SKIP_MODULE:
            skip_module_data(inp)
        elif letter == SKIP_ARRAY:
            _skip_array(inp)


@cython.cfunc
def _skip_score(inp: RdbInput) -> cython.void:
    n: cython.uint = inp.byte()
    if n < NAN_SCORE:
        inp.skip(n)


@cython.cfunc
def _skip_array(inp: RdbInput) -> cython.void:
    count: cython.ulonglong = inp.length()
    at: cython.longlong = inp.offset()
    what: cython.ulonglong = inp.length()
    if what > 1:
        raise Damaged(at, f"the number {what} in the head of an array")
    if what == 1:
        inp.length()
    while count > 0:
        inp.length()
        at = inp.offset()
        what = inp.length()
        if what == 0 or what == 3:
            inp.skip_string()
        elif what < 3:
            inp.skip(8)
        else:
            raise Damaged(at, f"the number {what} in an array")
        count -= 1
