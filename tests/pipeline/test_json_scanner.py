"""The scanner reads plain objects exactly as the json module does, and leaves all others to it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.file_formats.csv_records import BadRow
from headrace.pipeline.file_formats.json_rows import json_object
from headrace.pipeline.file_formats.json_scanner import JsonScanner

PLAIN = [
    b'{"a":"b"}\n',
    b'{"a": 1, "b": -2, "c": 0, "d": 123456789012345678}',
    b' {\t"a" : 1.5 , "b":-0.25,"c":0.0,"d":-0.0,"e":12345678.1234, "f":0.0001, "g":10.0 } \r\n',
    '{"stra\u00dfe":"\u6c34\U0001f600","":"","a\x7f":" "}'.encode(),
    b'{"a":true,"b":false,"c":null}',
]
OTHERS = [
    b"{}",
    b"[]",
    b"1",
    b"",
    b"\x00",
    b'{"a":1}\x00',
    b'{"a":1} x',
    b'{"a":1,}',
    b'{"a":1',
    b'{"a"',
    b'{"a":"b',
    b'{"a":"b\\n"}',
    b'{"a":"b\x01"}',
    b'{"a\\u0041":1}',
    b'{"a":"\xff"}',
    b'{"\xff":1}',
    b'{"a":1,"a":2}',
    b'{"a":{}}',
    b'{"a":[1]}',
    b'{"a":01}',
    b'{"a":-}',
    b'{"a":-0}',
    b'{"a":1.}',
    b'{"a":.5}',
    b'{"a":+1}',
    b'{"a":1.50}',
    b'{"a":0.00001}',
    b'{"a":-0.00009}',
    b'{"a":1e5}',
    b'{"a":1.5e5}',
    b'{"a":1E5}',
    b'{"a":1234567890123456789}',
    b'{"a":0.1234567890123456}',
    b'{"a":NaN}',
    b'{"a":truex}',
    b'{"a":nul}',
    b'{"a":True}',
    b"{a:1}",
    b"{'a':1}",
    b'\xef\xbb\xbf{"a":1}',
    b'{"a":1}{"b":2}',
]


@pytest.mark.parametrize("line", PLAIN)
def test_plain_objects_are_read_as_json_does(line):
    assert JsonScanner().scan(line) == json_object(line, 2) != {}


@pytest.mark.parametrize("line", OTHERS)
def test_other_lines_are_left_to_json(line):
    scanner = JsonScanner()
    assert scanner.scan(line) is None
    assert scanner.scan(b'{"a":"b"}') == {"a": "b"}, "the next line is not affected"


def test_names_that_change_from_line_to_line_are_right():
    scanner = JsonScanner()
    for names in (["a", "b", "c"], ["a", "c"], ["b"], ["a", "b", "c", "d"], ["d", "c", "b"], ["a"]):
        row = {name: f"{name}{len(names)}" for name in names}
        assert scanner.scan(json.dumps(row).encode()) == row


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals(places=3, allow_nan=False, allow_infinity=False)
    | st.text()
)


@given(
    st.dictionaries(st.text(), VALUES, min_size=1), st.booleans(), st.integers(0, 40), st.binary(max_size=2)
)
def test_every_line_is_read_as_json_does_or_left_to_it(row, ascii_only, at, damage):
    text = json.dumps(row, ensure_ascii=ascii_only, default=float)
    line = text.encode("utf-8", "surrogatepass")
    for one in (line, line[:at] + damage + line[at + 1 :]):
        found = JsonScanner().scan(one)
        expected = json_object(one, 2)
        assert found is None or (found == expected and not isinstance(expected, BadRow)), one


@given(st.from_regex(rb'\A\{"a":-?[0-9.eE+-]{1,18}\}\Z'))
def test_every_number_is_read_as_json_does_or_left_to_it(line):
    found = JsonScanner().scan(line)
    assert found is None or found == json_object(line, 2)
