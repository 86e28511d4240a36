"""Characters that a terminal would execute are escaped, and JSON stays exact."""

from __future__ import annotations

import io
import json
import logging
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headrace.console.escaping import EscapingFormatter, is_printable, json_text, one_line, printable
from headrace.console.rich_text import line
from headrace.server.observe.logs import JsonLineFormatter

UNSAFE = [
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u061c\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e",
    *"\u2060\u2066\u2067\u2068\u2069\ufeff\u00ad\u3164\ufe0f\U000e0001\U000e0100",
    "\ud800",
    "\udcff",
]


@pytest.mark.parametrize("letter", UNSAFE, ids=lambda letter: f"U+{ord(letter):04X}")
def test_every_unsafe_character_is_escaped_in_text_and_json(letter: str) -> None:
    assert printable(f"a{letter}b").startswith("a\\") and letter not in printable(f"a{letter}b")
    assert letter not in json_text({letter: letter})
    assert json.loads(json_text({letter: letter})) == {letter: letter}


@pytest.mark.parametrize("text", ["pear", "Grüße", "日本語", "🍐", "a\\b", "[red]", "", "٣"])
def test_printable_text_is_unchanged(text: str) -> None:
    assert printable(text) == printable(text.encode()) == text


def test_bytes_that_are_not_utf8_are_shown_in_hexadecimal() -> None:
    assert printable(b"or\xff\x1b[2J") == "or\\xff\\x1b[2J"
    assert printable("or\udcff") == "or\\xff"
    assert printable("\u3164\U000e0100\ud800") == "\\u3164\\U000e0100\\ud800"
    assert printable(17) == "17"


@given(st.text(st.characters(exclude_categories=())))
def test_escaped_text_has_only_printable_characters(text: str) -> None:
    shown = printable(text)
    assert is_printable(shown)
    assert not {unicodedata.category(letter) for letter in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert json.loads(json_text([text])) == json.loads(json.dumps([text]))
    assert is_printable(json_text([text]))


@given(st.binary())
def test_escaped_bytes_have_only_printable_characters(value: bytes) -> None:
    assert is_printable(printable(value))


@given(st.lists(st.sampled_from(["[", "]", "/", "\\", "a", "red", ":smile:", "\x1b", " "])).map("".join))
def test_markup_and_emoji_codes_are_printed_literally(text: str) -> None:
    console = Console(file=io.StringIO(), width=1000, color_system=None, highlight=False)
    console.print(line((text, "bold"), "|", 5))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == f"{printable(text)}|5\n"


def test_a_message_of_several_lines_becomes_one() -> None:
    assert one_line("a\n  b\x1bc\u2028d") == "a b\\x1bc d"


def test_log_lines_are_escaped_and_tracebacks_keep_their_lines() -> None:
    formatter = EscapingFormatter("%(levelname)s %(message)s")
    try:
        raise ValueError("\x1b[31mbad")
    except ValueError:
        info = sys.exc_info()
    record = logging.LogRecord("headrace", logging.ERROR, "f", 1, "lost %s", ("or\nders\x1b",), info)
    first, *rest = formatter.format(record).split("\n")
    assert first == "ERROR lost or\\nders\\x1b"
    assert rest[0].startswith("Traceback") and rest[-1] == "ValueError: \\x1b[31mbad"


@pytest.mark.parametrize("formatter", [EscapingFormatter("%(message)s"), JsonLineFormatter()])
def test_a_line_of_the_log_is_short_however_long_the_data_are(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("headrace", logging.WARNING, "", 0, "key %s", ("\x1b" * 1_000_000,), None)
    line = formatter.format(record)
    assert len(line) < 30_000 and "(995908 more characters)" in line
