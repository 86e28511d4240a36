"""Parse what INFO says of the replication of a server: its primary, or its replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class ReplicaRow:
    """One replica of a primary; name is its field of INFO (slave0), lag_s the seconds since its last ACK."""

    name: str
    address: str
    state: str
    behind_bytes: int
    lag_s: int


@dataclass
class PrimaryLink:
    """The link of a replica to its primary. A value that is not reported is None."""

    address: str
    is_up: bool
    silent_s: int | None
    down_s: int | None
    snapshot_received_bytes: int | None  # of a snapshot that is being received
    snapshot_total_bytes: int | None  # 0: unknown


def replicas_of(info: Mapping[str, str]) -> list[ReplicaRow]:
    """Return the replicas of a primary."""
    end = _number(info, "master_repl_offset") or 0
    rows = []
    for name, text in info.items():
        if not (name.startswith("slave") and name[5:].isdigit()):
            continue
        row = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        behind = max(end - (_number(row, "offset") or 0), 0)
        address = f"{row.get('ip', '')}:{row.get('port', '')}"
        rows.append(ReplicaRow(name, address, row.get("state", ""), behind, _number(row, "lag") or 0))
    return rows


def primary_of(info: Mapping[str, str]) -> PrimaryLink | None:
    """Return the link to the primary; None if the server is a primary itself."""
    if info.get("role") != "slave":
        return None
    syncing = info.get("master_sync_in_progress") == "1"
    silent = _number(info, "master_last_io_seconds_ago")
    return PrimaryLink(
        f"{info.get('master_host', '')}:{info.get('master_port', '')}",
        info.get("master_link_status") == "up",
        None if silent is None or silent < 0 else silent,
        _number(info, "master_link_down_since_seconds"),
        _number(info, "master_sync_read_bytes") if syncing else None,
        _number(info, "master_sync_total_bytes") if syncing else None,
    )


def _number(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name, "")
    return int(text) if text.removeprefix("-").isdigit() else None
