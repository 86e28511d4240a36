"""The manifest: parsed by the rules of Redis, and replaced atomically."""

import pathlib

import pytest

from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.manifest import Manifest, ManifestLine, ManifestNotDurable
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DiskDirectory
from persistence.faults import FaultyFiles

NAMES = LogFileNames()
TEXT = (
    b"file appendonly.aof.2.base.rdb seq 2 type b\n"
    b"file appendonly.aof.1.incr.aof seq 1 type h\n"
    b"file appendonly.aof.2.incr.aof seq 2 type i\n"
    b"file appendonly.aof.4.incr.aof seq 4 type i\n"
)
MANIFEST = Manifest(
    base=ManifestLine("appendonly.aof.2.base.rdb", 2),
    history=[ManifestLine("appendonly.aof.1.incr.aof", 1)],
    incrs=[ManifestLine("appendonly.aof.2.incr.aof", 2), ManifestLine("appendonly.aof.4.incr.aof", 4)],
)


@pytest.fixture
def files(tmp_path: pathlib.Path) -> FaultyFiles:
    files = FaultyFiles(DiskDirectory(str(tmp_path)))
    files.make_directory(NAMES.directory)
    return files


def put(files: FaultyFiles, name: str, data: bytes) -> None:
    file = files.create(name)
    file.write(data)
    file.close()


def test_the_text_is_that_of_redis() -> None:
    assert MANIFEST.text() == TEXT
    assert Manifest.parse(TEXT) == MANIFEST


def test_manifests_of_newer_and_older_servers_are_read() -> None:
    text = (
        b"# a remark\n"
        b"type i seq 3 startoffset 77 file b.3.incr.aof endoffset 99\r\n"
        b'file "the \\x62ase" seq 9 type b\n'
    )
    assert Manifest.parse(text) == Manifest(
        base=ManifestLine("the base", 9), incrs=[ManifestLine("b.3.incr.aof", 3)]
    )


@pytest.mark.parametrize("name", ["plain", "two words", 'quo"te', "back\\slash", "it's", "ä\n", "\udcff"])
def test_any_file_name_is_stored_and_read_back(name: str) -> None:
    manifest = Manifest(incrs=[ManifestLine(name, 1)])
    assert manifest.text().count(b"\n") == 1
    assert Manifest.parse(manifest.text()) == manifest


@pytest.mark.parametrize(
    ("text", "offset", "what"),
    [
        (b"", 0, "an empty manifest"),
        (b"# only a remark\n", 0, "no file to read"),
        (TEXT + b"\n", len(TEXT), "a blank line"),
        (TEXT[:-1], TEXT.rindex(b"file"), "has no end"),
        (b"file a seq 1 type i\nfile b seq 2\n", 20, "not `file NAME"),
        (b"file a seq 1 type i left\n", 0, "not `file NAME"),
        (b'file "a seq 1 type i\n', 0, "not `file NAME"),
        (b"file a seq 1 typ i\n", 0, "a type that"),
        (b"file a seq 1 type x\n", 0, "a type that"),
        (b"file a seq 0 type i\n", 0, "number of 1"),
        (b"file a seq -1 type i\n", 0, "number of 1"),
        (b"file a seqq 1 type i\n", 0, "number of 1"),
        (b"file ../a seq 1 type i\n", 0, "with a path"),
        (b"fil a seq 1 type i\n", 0, "without a file name"),
        (b"file a seq 1 type b\nfile b seq 2 type b\n", 20, "a second base"),
        (b"file a seq 2 type i\nfile b seq 2 type i\n", 20, "do not rise"),
        (b"file " + b"a" * 1020 + b" seq 1 type i\n", 0, "more than 1024"),
    ],
)
def test_invalid_manifests_are_rejected(text: bytes, offset: int, what: str) -> None:
    with pytest.raises(Damaged, match=what) as caught:
        Manifest.parse(text, "m")
    assert (caught.value.offset, caught.value.file) == (offset, "m")


def test_a_stored_manifest_is_loaded_again(files: FaultyFiles) -> None:
    assert Manifest.load(files, NAMES) is None
    MANIFEST.store(files, NAMES)
    for line in [MANIFEST.base, *MANIFEST.incrs]:
        assert line is not None
        with pytest.raises(Damaged, match=f"names {line.file}, which is missing"):
            Manifest.load(files, NAMES)
        put(files, NAMES.path(line.file), b"")
    assert Manifest.load(files, NAMES) == MANIFEST  # that a history file is missing does not matter
    assert not files.exists(NAMES.temporary_manifest)


def test_a_log_without_its_manifest_is_damage(files: FaultyFiles) -> None:
    put(files, NAMES.path("appendonly.aof.1.base.rdb"), b"left by a first start that was killed")
    put(files, NAMES.path("appendonly.aof.1.incr.aof"), b"")
    assert Manifest.load(files, NAMES) is None
    for name, data in (
        ("appendonly.aof.3.incr.aof", b"*1\r\n$4\r\nPING\r\n"),
        ("appendonly.aof.4.base.rdb", b"what a rewrite had just put there"),
        ("appendonly.aof.2.base.aof", b"*1\r\n$4\r\nPING\r\n"),
    ):
        put(files, NAMES.path(name), data)
        with pytest.raises(Damaged, match=f"{name} holds a log, but the manifest is missing"):
            Manifest.load(files, NAMES)
        files.remove(NAMES.path(name))


@pytest.mark.parametrize(
    ("operation", "unsettled"),
    [("create", False), ("write", False), ("sync", False), ("rename", True), ("sync_directory", True)],
)
def test_a_store_that_fails_leaves_a_whole_manifest(
    files: FaultyFiles, operation: str, unsettled: bool
) -> None:
    MANIFEST.store(files, NAMES)
    before = pathlib.Path(files.files.path(NAMES.manifest)).read_bytes()
    newer = Manifest(base=ManifestLine("appendonly.aof.5.base.rdb", 5))
    files.fail(operation)
    with pytest.raises(OSError) as caught:
        newer.store(files, NAMES)
    assert isinstance(caught.value, ManifestNotDurable) == unsettled
    after = pathlib.Path(files.files.path(NAMES.manifest)).read_bytes()
    assert after == (newer.text() if operation == "sync_directory" else before)
    newer.store(files, NAMES)
    assert pathlib.Path(files.files.path(NAMES.manifest)).read_bytes() == newer.text()


def test_names_tell_incr_and_temporary_files() -> None:
    assert NAMES.is_incr("appendonly.aof.12.incr.aof")
    for name in (
        "appendonly.aof.012.incr.aof",
        "appendonly.aof.1.base.aof",
        "x.1.incr.aof",
        "appendonly.aof",
    ):
        assert not NAMES.is_incr(name)
    assert NAMES.is_temporary("temp-appendonly.aof.manifest") and not NAMES.is_temporary("temp-other")
