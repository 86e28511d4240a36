"""Check the bytes of a whole cold file without decompressing its runs."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.persistence.cold import cold_file
from headrace.persistence.cold.cold_file import DamagedBytes


def check_checksums(data: bytes, number: int) -> None:
    """Compare all checksums of a file: header, runs, index.

    A file without an index may end with damaged runs, or a part of one: a crash leaves them.

    Args:
        data: the whole file.
        number: the number in the file's name.

    Raises:
        DamagedBytes: if something is damaged.
    """
    cold_file.check_header(data, number)
    footer = data[max(0, len(data) - cold_file.FOOTER_BYTES) :]
    end = cold_file.index_offset(footer, len(data))
    if end is not None:
        for offset, size, checksum in cold_file.parse_index(data[end:]):
            if cold_file.checked_run_checksum(data[offset : offset + size]) != checksum:
                raise DamagedBytes(f"at byte {offset} there is another run than its index says")
        return
    damage = None
    for offset, size in _runs_from_headers(data):
        try:
            cold_file.checked_run_checksum(data[offset : offset + size])
        except DamagedBytes as error:
            damage = damage or DamagedBytes(f"at byte {offset}: {error}")
        else:
            if damage is not None:
                raise damage


def _runs_from_headers(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and size of each run, as their headers state them."""
    at = cold_file.HEADER_BYTES
    while len(data) - at >= cold_file.RUN_HEADER_STRUCT.size:
        try:
            size = cold_file.stated_run_size(data[at : at + cold_file.RUN_HEADER_STRUCT.size])
        except DamagedBytes:
            return
        if at + size > len(data):
            return
        yield at, size
        at += size
