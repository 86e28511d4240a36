"""The options of SET, MSETEX and GETEX, and the expiry times that they, SETEX and PSETEX set.

SET    [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET]
       [EX seconds | PX milliseconds | EXAT unix-seconds | PXAT unix-milliseconds | KEEPTTL]
MSETEX [NX | XX] [EX seconds | PX milliseconds | EXAT unix-seconds | PXAT unix-milliseconds | KEEPTTL]
GETEX  [EX seconds | PX milliseconds | EXAT unix-seconds | PXAT unix-milliseconds | PERSIST]

A comparison may be repeated with another operand, which replaces the first one. NX or XX may follow a
comparison: then both conditions must hold. Redis 8 accepts both forms, and writes them to its log and to
its replicas.
"""

from __future__ import annotations

import cython
from xxhash import xxh3_64_hexdigest

from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.errors import CommandError, InvalidSyntax

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)

ALWAYS = cython.declare(cython.int, 0)
IF_ABSENT = cython.declare(cython.int, 1)
IF_PRESENT = cython.declare(cython.int, 2)
IF_EQUAL = cython.declare(cython.int, 3)  # these compare with an operand
IF_NOT_EQUAL = cython.declare(cython.int, 4)
IF_DIGEST = cython.declare(cython.int, 5)
IF_NOT_DIGEST = cython.declare(cython.int, 6)
DIGEST_LENGTH = cython.declare(cython.Py_ssize_t, 16)

NO_EXPIRY_UNIT = cython.declare(cython.int, 0)
EX = cython.declare(cython.int, 1)
PX = cython.declare(cython.int, 2)
EXAT = cython.declare(cython.int, 3)
PXAT = cython.declare(cython.int, 4)


class InvalidExpireTime(CommandError):
    """The expiry is invalid; `command` is the command's name, lower case."""

    def __init__(self, command: str) -> None:
        super().__init__(f"ERR invalid expire time in '{command}' command")


class BadDigest(CommandError):
    text = "ERR must be exactly 16 hexadecimal characters"


@cython.final
@cython.cclass
class SetOptions:
    """The options after the value (SET), the last pair (MSETEX) or the key (GETEX)."""

    condition: cython.int  # ALWAYS, IF_ABSENT or IF_PRESENT
    comparison: cython.int  # ALWAYS, or a condition with an operand
    operand: bytes  # of IFEQ, IFNE, IFDEQ and IFDNE
    get: cython.bint
    keep_ttl: cython.bint  # KEEPTTL
    persist: cython.bint
    unit: cython.int
    expiry_text: bytes  # unparsed: the order of errors requires that all options are read first

    def __init__(self) -> None:
        self.condition = ALWAYS
        self.comparison = ALWAYS
        self.operand = b""
        self.get = False
        self.keep_ttl = False
        self.persist = False
        self.unit = NO_EXPIRY_UNIT
        self.expiry_text = b""

    @cython.cfunc
    def read_set(self, argv: list[bytes]) -> cython.void:
        """Read the options of SET. Raises InvalidSyntax if one is unknown or they contradict each other."""
        at: cython.Py_ssize_t = 3
        word: bytes
        comparison: cython.int
        while at < len(argv):
            word = argv[at]
            comparison = parse_comparison(word)
            if arguments.is_keyword(word, b"GET"):
                self.get = True
            elif (
                comparison != ALWAYS
                and at + 1 < len(argv)
                and self.condition == ALWAYS
                and self.comparison in (ALWAYS, comparison)
            ):
                self.comparison = comparison
                at += 1
                self.operand = argv[at]
            else:
                at = self._read_shared(argv, at)
            at += 1

    @cython.cfunc
    def read_msetex(self, argv: list[bytes], at: cython.Py_ssize_t) -> cython.void:
        """Read the options of MSETEX from index `at` on. Raises InvalidSyntax on the errors of read_set()."""
        while at < len(argv):
            at = self._read_shared(argv, at) + 1

    @cython.cfunc
    def _read_shared(self, argv: list[bytes], at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read an option that SET and MSETEX share; return the index of its last argument."""
        word: bytes = argv[at]
        if self.condition in (ALWAYS, IF_ABSENT) and arguments.is_keyword(word, b"NX"):
            self.condition = IF_ABSENT
        elif self.condition in (ALWAYS, IF_PRESENT) and arguments.is_keyword(word, b"XX"):
            self.condition = IF_PRESENT
        elif self.unit == NO_EXPIRY_UNIT and arguments.is_keyword(word, b"KEEPTTL"):
            self.keep_ttl = True
        else:
            return self._read_time(argv, at)
        return at

    @cython.cfunc
    def read_getex(self, argv: list[bytes]) -> cython.void:
        """Read the options of GETEX. Raises InvalidSyntax if one is unknown or they contradict each other."""
        at: cython.Py_ssize_t = 2
        while at < len(argv):
            if self.unit == NO_EXPIRY_UNIT and arguments.is_keyword(argv[at], b"PERSIST"):
                self.persist = True
            else:
                at = self._read_time(argv, at)
            at += 1

    @cython.cfunc
    def _read_time(self, argv: list[bytes], at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a unit and its amount; return the amount's index. The same unit again replaces the amount."""
        unit: cython.int = parse_expiry_unit(argv[at])
        if unit == NO_EXPIRY_UNIT or at + 1 == len(argv) or self.keep_ttl or self.persist:
            raise InvalidSyntax()
        if self.unit != NO_EXPIRY_UNIT and self.unit != unit:
            raise InvalidSyntax()
        self.unit = unit
        self.expiry_text = argv[at + 1]
        return at + 1


@cython.cfunc
def parse_comparison(word: bytes) -> cython.int:
    """Return the condition with an operand that the argument names; ALWAYS if it names none."""
    if arguments.is_keyword(word, b"IFEQ"):
        return IF_EQUAL
    if arguments.is_keyword(word, b"IFNE"):
        return IF_NOT_EQUAL
    if arguments.is_keyword(word, b"IFDEQ"):
        return IF_DIGEST
    if arguments.is_keyword(word, b"IFDNE"):
        return IF_NOT_DIGEST
    return ALWAYS


@cython.cfunc
def digest_of(value: bytes | bytearray) -> bytes:
    """Return the hash of a string: XXH3 with 64 bits, in hexadecimal."""
    return xxh3_64_hexdigest(value).encode()


@cython.cfunc
def comparison_holds(condition: cython.int, value: bytes | bytearray, operand: bytes) -> cython.bint:
    """Return whether the comparison holds for an existing string.

    Raises BadDigest if the operand is compared as a digest but does not have 16 characters.
    """
    if condition == IF_EQUAL:
        return value == operand
    if condition == IF_NOT_EQUAL:
        return value != operand
    if len(operand) != DIGEST_LENGTH:
        raise BadDigest()
    return (digest_of(value) == operand.lower()) == (condition == IF_DIGEST)


@cython.cfunc
def parse_expiry_unit(word: bytes) -> cython.int:
    """Return the unit that the argument names; NO_EXPIRY_UNIT if it names none."""
    if arguments.is_keyword(word, b"EX"):
        return EX
    if arguments.is_keyword(word, b"PX"):
        return PX
    if arguments.is_keyword(word, b"EXAT"):
        return EXAT
    if arguments.is_keyword(word, b"PXAT"):
        return PXAT
    return NO_EXPIRY_UNIT


@cython.cfunc
def expiry_ms(call: Call, unit: cython.int, amount: bytes) -> cython.longlong:
    """Return the expiry in milliseconds since 1970; it may be in the past.

    Raises:
        NotAnInteger: if amount is not an integer.
        InvalidExpireTime: if it is not positive, or too large.
    """
    ms: cython.longlong = arguments.parse_i64(amount)
    in_seconds: cython.bint = unit in (EX, EXAT)
    relative: cython.bint = unit in (EX, PX)
    if ms <= 0 or (in_seconds and ms > I64_MAX // 1000):
        raise InvalidExpireTime(call.command.name.decode())
    if in_seconds:
        ms *= 1000
    if relative:
        if ms > I64_MAX - call.now:
            raise InvalidExpireTime(call.command.name.decode())
        ms += call.now
    return ms
