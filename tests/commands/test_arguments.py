import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.commands import arguments
from headrace.commands.arguments import Arguments
from headrace.errors import InvalidSyntax, NotAFloat, NotAnInteger

I64 = st.integers(-(2**63), 2**63 - 1)


@given(I64)
def test_every_64_bit_integer_is_read_as_python_writes_it(number):
    assert arguments.parse_i64(b"%d" % number) == number


@pytest.mark.parametrize("number", [0, 1, -1, 9, 10, -10, 2**63 - 1, -(2**63), 2**63 - 8, -(2**63) + 7])
def test_the_ends_of_the_range_are_read(number):
    assert arguments.parse_i64(b"%d" % number) == number


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"-",
        b"+1",
        b"-0",
        b"00",
        b"01",
        b"-01",
        b" 1",
        b"1 ",
        b"1x",
        b"x",
        b"1.0",
        b"0x1",
        b"1e3",
        b"--1",
        b"1-",
        b"\x00",
        b"1\x00",
        b"9223372036854775808",
        b"-9223372036854775809",
        b"18446744073709551616",
        b"99999999999999999999",
        b"999999999999999999999999",
        "\u0661".encode(),
    ],
)
def test_what_is_not_an_integer_is_refused(text):
    with pytest.raises(NotAnInteger):
        arguments.parse_i64(text)


@given(st.binary(max_size=24))
def test_an_integer_is_exactly_what_is_written_in_its_one_way(text):
    try:
        number = arguments.parse_i64(text)
    except NotAnInteger:
        return
    assert b"%d" % number == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"1", 1.0),
        (b"-2.5", -2.5),
        (b"+3", 3.0),
        (b".5", 0.5),
        (b"5.", 5.0),
        (b"1e3", 1000.0),
        (b"1E-2", 0.01),
        (b"0x10", 16.0),
        (b"-0x1p4", -16.0),
        (b"inf", math.inf),
        (b"-Infinity", -math.inf),
    ],
)
def test_floats_are_read_as_c_reads_them(text, number):
    assert arguments.parse_double(text) == number


@pytest.mark.parametrize(
    "text", [b"", b" 1", b"1 ", b"1_0", b"nan", b"NaN", b"x", b"1x", b"1e", b"--1", b"\xff", b"0x", b"1\x00"]
)
def test_what_is_no_float_is_refused(text):
    with pytest.raises(NotAFloat):
        arguments.parse_double(text)


@given(st.binary(max_size=12))
def test_any_bytes_are_a_float_or_refused(text):
    with contextlib.suppress(NotAFloat):
        assert not math.isnan(arguments.parse_double(text))


def test_words_are_compared_in_any_case():
    assert arguments.is_keyword(b"maxlen", b"MAXLEN")
    assert arguments.is_keyword(b"MaxLen", b"MAXLEN")
    assert not arguments.is_keyword(b"maxle", b"MAXLEN")
    assert not arguments.is_keyword(b"maxlem", b"MAXLEN")
    assert not arguments.is_keyword(b"", b"X")
    assert not arguments.is_keyword(b"{", b"[")  # 32 apart, as letters are, but no letters


def test_a_cursor_goes_word_by_word():
    words = Arguments([b"SET", b"k", b"v", b"px", b"10", b"a", b"b"], 1)
    assert words.remaining_count() == 6
    assert (words.next_argument(), words.next_argument()) == (b"k", b"v")
    assert not words.take_flag(b"EX")
    assert words.take_option(b"PX")
    assert words.next_integer() == 10
    assert words.has_more()
    assert words.take_rest() == [b"a", b"b"]
    assert not words.has_more() and words.remaining_count() == 0
    words.expect_end()


def test_a_cursor_at_the_end_refuses():
    words = Arguments([b"SET"], 1)
    assert not words.take_flag(b"NX") and not words.take_option(b"PX")
    for read in (words.next_argument, words.next_integer):
        with pytest.raises(InvalidSyntax):
            read()


def test_an_option_needs_its_value():
    words = Arguments([b"SET", b"PX"], 1)
    assert not words.take_option(b"PX")
    assert words.next_argument() == b"PX"


def test_words_left_over_are_refused():
    with pytest.raises(InvalidSyntax):
        Arguments([b"SET", b"x"], 1).expect_end()
