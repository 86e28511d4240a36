"""The files of a data directory are readable by their owner only."""

import stat
from pathlib import Path

import headrace


def test_data_files_are_for_their_owner_only(tmp_path: Path):
    with headrace.open(tmp_path / "shop") as db:
        db.stream("orders").add({"item": "pear"})
        db.compact()
    files = [path for path in (tmp_path / "shop").rglob("*") if path.is_file()]
    assert len(files) >= 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
