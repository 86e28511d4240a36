"""Splitting inline requests into words."""

import pytest

from headrace.resp.inline import split_line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", []),
        (b"  \t ", []),
        (b"PING", [b"PING"]),
        (b" set  key\tvalue ", [b"set", b"key", b"value"]),
        (b'set key "two words"', [b"set", b"key", b"two words"]),
        (b"set key 'two words'", [b"set", b"key", b"two words"]),
        (b'"" x', [b"", b"x"]),
        (b"''", [b""]),
        (rb'"\x41\x0a\n\r\t\a\b\"\\\q"', [b'A\n\n\r\t\a\b"\\q']),
        (rb'"\xzz"', [b"xzz"]),
        (rb"'it\'s \n'", [rb"it's \n"]),
        (rb"'back\\slash'", [rb"back\\slash"]),
        (b'pre"fix"', [b"prefix"]),
        (b"a\\b", [b"a\\b"]),
        (b"one\0two", [b"one"]),
        (b'a\v"b"', [b"a\vb"]),
    ],
)
def test_a_line_is_split_into_words(line: bytes, words: list[bytes]):
    assert split_line(line) == words


@pytest.mark.parametrize("line", [b'"', b"'", b'"a"b', b"'a''b'", b'a "b c', b'"a\\"', b"'a\\'", b'"a\0"'])
def test_a_quote_that_does_not_end_its_word_spoils_the_line(line: bytes):
    assert split_line(line) is None
