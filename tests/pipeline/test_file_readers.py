"""Reading files as batches of columns."""

import gzip
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from headrace.errors import UsageError
from headrace.pipeline import file_readers
from headrace.pipeline.file_readers import FileReader

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
