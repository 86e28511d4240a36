"""The directives of replication."""

from __future__ import annotations

from headrace.server.config.config_types import (
    I63_MAX,
    U31_MAX,
    BacklogSize,
    Choice,
    Flag,
    Number,
    PrimaryAddress,
    Text,
)
from headrace.server.config.directive import Directive

REPLICATION = [
    Directive("masterauth", Text(), "", "The password that this replica sends to its primary.", secret=True),
    Directive("masteruser", Text(), "", "The user as which it authenticates there; empty for the default."),
    Directive(
        "min-replicas-max-lag",
        Number(0, U31_MAX),
        "10",
        "Seconds a replica may be silent and still count for min-replicas-to-write.",
        alias="min-slaves-max-lag",
    ),
    Directive(
        "min-replicas-to-write",
        Number(0, U31_MAX),
        "0",
        "Reject writes while fewer replicas are connected and acknowledge; 0 for never.",
        alias="min-slaves-to-write",
    ),
    Directive(
        "propagation-error-behavior",
        Choice(("ignore", "panic", "panic-on-replicas")),
        "ignore",
        "Accepted, without effect: a replica that fails synchronises again.",
    ),
    Directive(
        "repl-backlog-size",
        BacklogSize(),
        "1mb",
        "How much of the stream is kept for replicas that reconnect; at least 16kb.",
    ),
    Directive(
        "repl-backlog-ttl",
        Number(0, I63_MAX),
        "3600",
        "Free it this many seconds after the last replica has left; 0 for never.",
    ),
    Directive(
        "repl-disable-tcp-nodelay",
        Flag(),
        "no",
        "Let the system collect what is sent to replicas: fewer packets, more delay.",
    ),
    Directive(
        "repl-diskless-load",
        Choice(("disabled", "on-empty-db", "swapdb", "flushdb")),
        "disabled",
        "When a replica loads its primary's snapshot without storing it first.",
    ),
    Directive(
        "repl-diskless-sync",
        Flag(),
        "yes",
        "Send snapshots to replicas directly; no: through a file.",
    ),
    Directive(
        "repl-diskless-sync-delay",
        Number(0, U31_MAX),
        "5",
        "Seconds to wait for more replicas before such a snapshot begins.",
    ),
    Directive(
        "repl-diskless-sync-max-replicas",
        Number(0, U31_MAX),
        "0",
        "Begin at once when so many replicas wait; 0 for no such number.",
    ),
    Directive(
        "repl-ping-replica-period",
        Number(1, U31_MAX),
        "10",
        "Seconds between PINGs to replicas.",
        alias="repl-ping-slave-period",
    ),
    Directive("repl-timeout", Number(1, U31_MAX), "60", "Close a link that is silent for so many seconds."),
    Directive(
        "replica-announce-ip",
        Text(),
        "",
        "The address that this replica reports to its primary; empty: its own.",
        alias="slave-announce-ip",
    ),
    Directive(
        "replica-announce-port",
        Number(0, 65535),
        "0",
        "The port that it reports; 0 for its own.",
        alias="slave-announce-port",
    ),
    Directive("replica-announced", Flag(), "yes", "Whether Sentinels list this replica."),
    Directive(
        "replica-ignore-maxmemory",
        Flag(),
        "yes",
        "A replica leaves eviction to its primary.",
        alias="slave-ignore-maxmemory",
    ),
    Directive(
        "replica-priority",
        Number(0, U31_MAX),
        "100",
        "Sentinels prefer the replica with the lowest one; 0: never promote this one.",
        alias="slave-priority",
    ),
    Directive(
        "replica-read-only",
        Flag(),
        "yes",
        "Reject writes of clients while this server is a replica.",
        alias="slave-read-only",
    ),
    Directive(
        "replica-serve-stale-data",
        Flag(),
        "yes",
        "Serve clients while the link to the primary is down; no: reject most requests.",
        alias="slave-serve-stale-data",
    ),
    Directive(
        "replica-skip-foreign-types",
        Flag(),
        "no",
        "Skip keys of types that do not exist here; no: refuse a primary with such keys.",
    ),
    Directive(
        "replicaof",
        PrimaryAddress(),
        "",
        "The primary to follow; REPLICAOF changes it.",
        mutable=False,
        alias="slaveof",
    ),
    Directive(
        "shutdown-timeout",
        Number(0, U31_MAX),
        "10",
        "Seconds that SHUTDOWN waits for replicas to receive the last writes.",
    ),
    Directive("tls-replication", Flag(), "no", "Connect to the primary with TLS."),
]
