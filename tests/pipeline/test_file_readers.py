"""Reading files as batches of columns."""

import datetime
import gzip
import re
import zipfile
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from headrace.columns.value_texts import texts_and_reasons
from headrace.errors import UsageError
from headrace.pipeline.file_formats import file_readers
from headrace.pipeline.file_formats.csv_records import BadRow
from headrace.pipeline.file_formats.file_readers import FileReader
from headrace.pipeline.loading.row_checks import ValidRows, split_valid_rows

CSV = b"id,name,note\n007,Ann,\n1.50,Bo,NA\n"
ROWS = [{"id": "007", "name": "Ann", "note": None}, {"id": "1.50", "name": "Bo", "note": "NA"}]


def rows_of(path: Path, null_values: tuple[str, ...] = ("",)) -> list[dict[str, Any]]:
    with FileReader(path, null_values) as table:
        return [row for batch in table.batches() for row in batch.to_pylist()]


def test_csv_values_keep_their_text(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(CSV)
    assert rows_of(path) == ROWS
    assert rows_of(path, ("", "NA"))[1]["note"] is None


def test_compressed_csv_is_read(tmp_path: Path) -> None:
    packed = tmp_path / "people.csv.gz"
    packed.write_bytes(gzip.compress(CSV))
    assert rows_of(packed) == ROWS
    packed = tmp_path / "people.csv.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("people.csv", CSV)
    assert rows_of(packed) == ROWS


def test_csv_with_quotes_a_byte_order_mark_and_lines_within_a_value(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_bytes('\ufeff"a,b",c\n"x\ny",""\n'.encode())
    assert rows_of(path) == [{"a,b": "x\ny", "c": ""}]


def test_json_lines_keep_text_and_write_the_rest_as_json(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"a": "é", "n": 1.50, "t": true, "none": null}\n\n{"a": "", "deep": {"x": [1, 2]}}\n')
    assert rows_of(path) == [
        {"a": "é", "n": "1.5", "t": "true", "none": None, "deep": None},
        {"a": "", "n": None, "t": None, "none": None, "deep": '{"x":[1,2]}'},
    ]


def test_parquet_keeps_its_types_and_its_position_is_in_rows(tmp_path: Path) -> None:
    path = tmp_path / "numbers.parquet"
    pyarrow.parquet.write_table(pa.table({"n": [1, None, 3]}), path)
    with FileReader(path) as table:
        assert [batch.to_pydict() for batch in table.batches()] == [{"n": [1, None, 3]}]
        assert (table.position, table.size) == (3, 3)


def test_a_long_file_is_read_in_several_batches_with_its_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_readers, "BLOCK_BYTES", 1000)
    path = tmp_path / "long.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(1000)))
    with FileReader(path) as table:
        batches = table.batches()
        first = next(batches)
        assert 0 < table.position < table.size
        assert first.num_rows + sum(batch.num_rows for batch in batches) == 1000
        assert table.position == table.size


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.txt", b"x", "unknown file type"),
        ("noextension", b"x", "unknown file type"),
        ("a.parquet.gz", b"x", "unknown file type"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"a,b,a\n1,2,3\n", "two columns named 'a'"),
        ("a.csv", b"a,b\n1,2\n3\n", "line 3: expected 2 columns, found 1: '3'"),
        ("a.csv", b"a\n\xff\xfe\n", "line 2: not UTF-8"),
        ("a.csv.gz", b"not gzip", "Not a gzipped file"),
        ("a.csv.gz", gzip.compress(CSV * 1000)[:-20], "end-of-stream"),
        ("a.csv.zip", b"not zip", "not a zip file"),
        ("a.parquet", b"not parquet", "magic bytes"),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', "line 2: not JSON"),
        ("a.jsonl", b'{"a": 1}\n[1]\n', "line 2: not a JSON object"),
        ("a.jsonl", b'\xff{"a": 1}\n', "line 1: not UTF-8"),
        ("a.jsonl", b'{"a": 1e99999999999999999999}\n', "line 1: not JSON: the exponent of the number 1e9+"),
        ("a.json", b'[{"a": 1}, {"a": ]', "row 2: not JSON: Expecting value"),
        ("a.json", b'[{"a": 1}', "row 1: not JSON: expected a comma or the end of the array"),
        ("a.json", b'[{"a": 1}] {"a": 2}', "row 1: more text after the end of the array"),
        ("a.json", b'[{"a": 1},]', "row 2: not JSON"),
        ("a.json", b'[{"a": 1}, {"a": 1, "a": 2}]', "row 2: the key 'a' occurs twice"),
        ("a.json", b'[{"a": "\xff"}]', "not UTF-8"),
        ("a.json", b"[" + b'{"a":' * 100_000, "row 1: "),
        ("a.csv", b"\xe9,b\n1,2\n", "line 1: the column names are not UTF-8"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16-le"), "--encoding utf-16-le names it"),
        ("a.csv", b"sep=;\na;b\n1;2\n3\n", "line 4: expected 2 columns, found 1: '3'"),
        ("a.csv", b"a,b\r1,2\r3\r", "line 3: expected 2 columns, found 1: '3'"),
    ],
)
def test_a_bad_file_is_rejected_with_its_name(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=complaint) as refusal:
        rows_of(path)
    assert str(path) in str(refusal.value)


def test_a_path_that_is_not_a_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        FileReader(tmp_path / "missing.csv")
    with pytest.raises(UsageError, match="is a directory"):
        FileReader(tmp_path)


def test_a_zip_with_two_files_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "two.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", CSV)
        archive.writestr("b.csv", CSV)
    with pytest.raises(UsageError, match="holds 2 files"):
        rows_of(path)


@pytest.mark.parametrize(
    ("content", "delimiter"),
    [
        (b"sep=;\r\na;b\r\n1;2,5\r\n", ";"),
        (b'\xef\xbb\xbf"sep=|"\na|b\n1|2,5\n', "|"),
        ("sep=\t\na\tb\n1\t2,5\n".encode("utf-16"), "\t"),
        (b"a;b\n1;2,5\n", ";"),
        (b"a\tb\n1\t2,5\n", "\t"),
        ("a;b\r\n1;2,5\r\n".encode("utf-16"), ";"),
        ("a;b\r1;2,5\r".encode("utf-32"), ";"),
        (b"a;b\r1;2,5\r", ";"),
        (b"a;b\r1;2,5", ";"),
        (b"\n\na;b\n1;2,5\n", ";"),
    ],
)
def test_exports_of_spreadsheets_are_read(tmp_path: Path, content: bytes, delimiter: str) -> None:
    path = tmp_path / "excel.csv"
    path.write_bytes(content)
    with FileReader(path) as table:
        assert [row for batch in table.batches() for row in batch.to_pylist()] == [{"a": "1", "b": "2,5"}]
        assert table.delimiter == table.found_delimiter == delimiter


def test_the_delimiter_is_looked_for_in_the_whole_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for delimiter, other in ((",", ";"), (";", "|")):
        name = f"x{other}y\nz"
        path.write_text(f'"{name}"{delimiter}v\n1{delimiter}2\n')
        with FileReader(path) as table:
            assert [row for batch in table.batches() for row in batch.to_pylist()] == [{name: "1", "v": "2"}]


def test_a_given_delimiter_is_used_and_a_comma_in_the_header_keeps_the_default(tmp_path: Path) -> None:
    path = tmp_path / "both.csv"
    path.write_bytes(b"sep=;\na;x,b\n1;y,2\n")
    with FileReader(path, delimiter=",") as table:
        assert [batch.to_pylist() for batch in table.batches()] == [[{"a;x": "1;y", "b": "2"}]]
    path.write_bytes(b'a;x,"b;c"\n1;y,2\n')
    assert rows_of(path) == [{"a;x": "1;y", "b;c": "2"}]
    path.write_bytes(b'"a;b"\n1;2\n')
    assert rows_of(path) == [{"a;b": "1;2"}]


def test_carriage_returns_end_lines_only_if_the_file_has_no_line_feed(tmp_path: Path) -> None:
    path = tmp_path / "mac.csv"
    path.write_bytes(b'a,b\r"1\r2",3\r\r4,5\r')
    assert rows_of(path) == [{"a": "1\r2", "b": "3"}, {"a": "4", "b": "5"}]
    path.write_bytes(b'a,b\r\n"1\r2",3\r\n')
    assert rows_of(path) == [{"a": "1\r2", "b": "3"}]
    path = tmp_path / "mac.jsonl"
    path.write_bytes(b'{"a":1}\r{"a":2}\r')
    assert rows_of(path) == [{"a": "1"}, {"a": "2"}]


@pytest.mark.parametrize(
    "text",
    [
        '[{"a":1},{"a":"x, ]"},{"b":[1.50]}]',
        '\ufeff [\n  {\n    "a": 1\n  },\n  {"a": "x, ]"}\n,\n {"b": [1.50]}\n]\n\n',
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_an_array_of_objects_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, encoding: str, block: int
) -> None:
    monkeypatch.setattr(file_readers, "BLOCK_BYTES", block)
    path = tmp_path / "rows.json"
    path.write_text(text, encoding)
    assert rows_of(path) == [{"a": "1", "b": None}, {"a": "x, ]", "b": None}, {"a": None, "b": "[1.5]"}]
    path.write_text("[ ]")
    assert rows_of(path) == []


def test_a_bad_row_of_an_array_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[{"a":1},{"a":1e99999999999999999999},\n7,{"a":3,\n"b":{"c":1,"c":2}},{"a":4}]')
    with FileReader(path) as table:
        found = list(table.batches_and_bad_rows())
    bad = [row for row in found if isinstance(row, BadRow)]
    assert [row["a"] for batch in found if not isinstance(batch, BadRow) for row in batch.to_pylist()] == [
        "1",
        "4",
    ]
    assert [(row.row_number, str(row).partition(": ")[2][:20]) for row in bad] == [
        (2, "the exponent of the "),
        (3, "not a JSON object, e"),
        (4, "the key 'c' occurs t"),
    ]
    assert bad[2].text == b'{"a":3, "b":{"c":1,"c":2}}'


def times(*years: int) -> pa.Array:
    return pa.array([datetime.datetime(year, 12, 31) for year in years], pa.timestamp("us"))


def test_times_of_spark_outside_the_range_of_nanoseconds_are_read(tmp_path: Path) -> None:
    path = tmp_path / "int96.parquet"
    table = pa.table({"n": [1, 2, 3], "until": times(9999, 1600, 2020)})
    pyarrow.parquet.write_table(table, path, use_deprecated_int96_timestamps=True)
    with FileReader(path) as file:
        assert pa.Table.from_batches(file.batches()).to_pydict() == table.to_pydict()


def test_nanoseconds_of_old_parquet_times_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "int96.parquet"
    column = pa.array([1, 2_000, None, -1], pa.timestamp("ns"))
    pyarrow.parquet.write_table(
        pa.table({"at": column}), path, use_deprecated_int96_timestamps=True, row_group_size=3
    )
    assert [row["at"] for row in rows_of(path)] == [
        "1970-01-01T00:00:00.000000001",
        "1970-01-01T00:00:00.000002",
        None,
        "1969-12-31T23:59:59.999999999",
    ]


def test_uuids_and_intervals_of_parquet_are_values_and_not_bytes(tmp_path: Path) -> None:
    path = tmp_path / "types.parquet"
    duckdb.sql(
        f"COPY (SELECT uuid '0190aa0e-3f3c-7a1b-9a9b-0123456789ab' u, interval '14 months 3 days 5 ms' i) "
        f"TO '{path}'"
    )
    with FileReader(path) as file:
        [batch] = file.batches()
    texts = [texts_and_reasons(column, "iso8601")[0].to_pylist() for column in batch.columns]
    assert texts == [["0190aa0e-3f3c-7a1b-9a9b-0123456789ab"], ["P14M3DT0.005S"]]


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("1::variant", "column 'x' has the type VARIANT, which has no text"),
        ("[interval 1 month]", "column 'x.list.element' has the type INTERVAL within another type"),
    ],
)
def test_parquet_types_without_text_are_rejected(tmp_path: Path, expression: str, complaint: str) -> None:
    path = tmp_path / "types.parquet"
    duckdb.sql(f"COPY (SELECT {expression} AS x) TO '{path}'")
    with pytest.raises(UsageError, match=re.escape(complaint)):
        rows_of(path)


def test_a_damaged_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    table = pa.table({"good": [1] * 1000, "bad": [f"text {n}" for n in range(1000)]})
    pyarrow.parquet.write_table(table, path, compression="gzip")
    content = bytearray(path.read_bytes())
    start = pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(1).data_page_offset
    content[start + 40 : start + 80] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"damaged.parquet: after row 0: column 'bad' cannot be read"):
        rows_of(path)


def test_all_types_of_duckdb_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    # DuckDB writes arrays of a fixed size in a form that pyarrow does not read, and no empty structs.
    names = duckdb.sql("SELECT * FROM test_all_types()").columns
    columns = ", ".join(f'"{name}"' for name in names if "fixed" not in name and name != "empty_struct")
    duckdb.sql(f"COPY (SELECT {columns} FROM test_all_types()) TO '{path}'")
    with FileReader(path) as file:
        [batch] = file.batches()
    [rows] = split_valid_rows(batch.slice(0, 2), None, 0)
    assert isinstance(rows, ValidRows) and rows.rows.num_rows == 2
    shown = rows.rows.to_pylist()
    assert [row["date"] for row in shown] == ["-5877641-06-25", "+5881580-07-10"]
    assert [row["interval"] for row in shown] == ["PT0S", "P999M999DT16M39.999S"]
    assert not [value for row in shown for value in row.values() if "out of range" in str(value)]


def test_a_file_with_many_columns_is_read(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    names = [f"c{n}" for n in range(20_000)]
    path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    assert rows_of(path) == [dict.fromkeys(names, "1")]
