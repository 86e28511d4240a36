"""The directives: each declared once, with its type, its default and what it does.

CONFIG GET and SET, redis.conf, the command line and the reference page are derived from DIRECTIVES.
"""

from __future__ import annotations

from headrace import limits
from headrace.keyspace import eviction
from headrace.persistence.rdb.versions import VERSIONS
from headrace.server.config.config_types import (
    I63_MAX,
    U31_MAX,
    BufferLimitsType,
    Choice,
    EventClasses,
    FileName,
    Flag,
    Memory,
    NonRedisChoice,
    Number,
    Octal,
    Percentiles,
    Port,
    SaveRulesType,
    Text,
    TlsVersions,
    UserLineType,
    Words,
)
from headrace.server.config.directive import Directive
from headrace.server.config.replication_directives import REPLICATION_DIRECTIVES
from headrace.server.config.store_url import StoreUrl

KEY_EVICTION_POLICIES = (
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lrm",
    "allkeys-lrm",
)
NO_KEY_EVICTION_REASON = "whole keys are never evicted here; there are noeviction and stream-oldest"

_GENERAL = [
    Directive(
        "acl-pubsub-default",
        Choice(("allchannels", "resetchannels")),
        "resetchannels",
        "The channels of a new user.",
        only_value="resetchannels",
        only_value_reason="a new user has no channels here: grant them by &pattern",
        unsupported_is_fatal=True,
    ),
    Directive(
        "aclfile",
        Text(),
        "",
        "A file of users, in dir, for ACL LOAD and ACL SAVE; empty for none.",
        mutable=False,
    ),
    Directive("acllog-max-len", Number(0, I63_MAX), "128", "How many denials ACL LOG keeps."),
    Directive(
        "aof-checksum",
        Flag(),
        "yes",
        "Write checksums into the log and compare them at the start; no: neither.",
    ),
    Directive("aof-disable-auto-gc", Flag(), "no", "Keep the files of the log that a rewrite has replaced."),
    Directive(
        "aof-load-truncated",
        Flag(),
        "yes",
        "Start if the log ends within a record, as after a power failure; no: refuse.",
    ),
    Directive(
        "aof-rewrite-incremental-fsync",
        Flag(),
        "yes",
        "Sync a rewritten log while it is written; no: at its end.",
    ),
    Directive("aof-timestamp-enabled", Flag(), "no", "Record the time in the log, once a second."),
    Directive("aof-use-rdb-preamble", Flag(), "yes", "Rewrite the log as a snapshot; no: as requests."),
    Directive(
        "appenddirname",
        FileName("appenddirname", "dirname"),
        "appendonlydir",
        "The directory of the log, in dir.",
        mutable=False,
    ),
    Directive(
        "appendfilename",
        FileName("appendfilename", "filename"),
        "appendonly.aof",
        "How the names of the log's files begin.",
        mutable=False,
    ),
    Directive("appendonly", Flag(), "yes", "Write every change to the log before the reply is sent."),
    Directive(
        "appendfsync",
        Choice(("everysec", "always", "no")),
        "everysec",
        "Sync the log before each reply, once a second, or when the system does.",
    ),
    Directive(
        "auto-aof-rewrite-min-size",
        Memory(0, I63_MAX),
        "64mb",
        "A smaller log is not rewritten automatically.",
    ),
    Directive(
        "auto-aof-rewrite-percentage",
        Number(0, U31_MAX),
        "100",
        "Rewrite the log when it has grown by so many percent; 0 for never.",
    ),
    Directive(
        "bind",
        Words(),
        "127.0.0.1 -::1",
        "Addresses to listen on; - before one that may be missing.",
        mutable=False,
    ),
    Directive(
        "busy-reply-threshold",
        Number(0, I63_MAX),
        "5000",
        "Milliseconds after which a script is slow: others get BUSY; 0 for never.",
        alias="lua-time-limit",
    ),
    Directive(
        "client-output-buffer-limit",
        BufferLimitsType(),
        "normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60",
        "Limits on unread replies.",
    ),
    Directive(
        "client-query-buffer-limit",
        Memory(1 << 20, I63_MAX),
        "1gb",
        "Close a client with more bytes of requests not yet executed.",
    ),
    Directive(
        "cold-cache-memory",
        Memory(1 << 20, I63_MAX),
        "64mb",
        "Memory for nodes of streams that were read back from files.",
    ),
    Directive(
        "cold-local-bytes",
        Memory(0, I63_MAX),
        "1gb",
        "Bytes of cold files that stay in dir when the object store has them.",
    ),
    Directive(
        "cold-store",
        StoreUrl(),
        "",
        "The object store for cold files: s3://bucket/prefix, gs://, az:// or file://.",
        mutable=False,
    ),
    Directive(
        "cold-store-timeout",
        Number(1, 3600),
        "30",
        "Seconds that a read of the object store may take, with all its attempts.",
    ),
    Directive(
        "daemonize",
        Flag(),
        "no",
        "Run in the background.",
        mutable=False,
        only_value=False,
        only_value_reason="run it under a supervisor instead",
        unsupported_is_fatal=True,
    ),
    Directive(
        "databases", Number(1, 10000), "16", "How many databases SELECT can choose from.", mutable=False
    ),
    Directive(
        "dbfilename", FileName("dbfilename", "filename"), "dump.rdb", "The snapshot, in dir.", mutable=False
    ),
    Directive("dir", Text(), ".", "The directory of the data files.", mutable=False),
    Directive(
        "disable-thp",
        Flag(),
        "yes",
        "Keep memory on small pages; no: on those that the system chooses.",
        mutable=False,
    ),
    Directive(
        "enable-debug-command",
        Choice(("no", "yes", "local")),
        "no",
        "Which clients may use DEBUG: none, all, or those on this machine.",
        mutable=False,
    ),
    Directive("hz", Number(1, 500), "10", "How often per second clients are checked and counters sampled."),
    Directive(
        "latency-monitor-threshold",
        Number(0, I63_MAX),
        "0",
        "Record events that delay the server for so many milliseconds; 0 for none.",
    ),
    Directive("latency-tracking", Flag(), "yes", "Keep the distribution of each command's durations."),
    Directive(
        "latency-tracking-info-percentiles",
        Percentiles(),
        "50 99 99.9",
        "Which percentiles of them INFO latencystats shows.",
    ),
    Directive("log-format", Choice(("text", "json")), "text", "Lines of the log: text, or an object each."),
    Directive("logfile", Text(), "", "The file of log messages; empty: standard error.", mutable=False),
    Directive(
        "load-skip-foreign-types",
        Flag(),
        "no",
        "Skip keys of types that do not exist here; no: refuse such files.",
        mutable=False,
    ),
    Directive(
        "loglevel",
        Choice(("debug", "verbose", "notice", "warning", "nothing")),
        "notice",
        "The least severe messages that are logged.",
    ),
    Directive("maxclients", Number(1, 0xFFFFFFFF), "10000", "How many clients may be connected."),
    Directive(
        "maxmemory",
        Memory(0, I63_MAX),
        "0",
        "Memory for data, as used_memory counts it; 0 for no limit.",
    ),
    Directive(
        "maxmemory-clients",
        Text(),
        "0",
        "Memory for all clients together.",
        only_value="0",
        only_value_reason="there is no such limit here, only 0: each client is limited by "
        "client-query-buffer-limit and"
        " client-output-buffer-limit",
    ),
    Directive(
        "maxmemory-policy",
        NonRedisChoice(eviction.POLICIES, KEY_EVICTION_POLICIES, NO_KEY_EVICTION_REASON),
        eviction.NO_EVICTION,
        "When memory is full: reject writes, or evict old entries of big streams.",
    ),
    Directive(
        "metrics-port",
        Port(),
        "0",
        "TCP port for /metrics and /healthz over HTTP, at the addresses of bind; 0 for none.",
        mutable=False,
    ),
    Directive(
        "no-appendfsync-on-rewrite",
        Flag(),
        "no",
        "Do not sync the log during a snapshot or rewrite: a power failure may lose more.",
    ),
    Directive(
        "notify-keyspace-events",
        EventClasses(),
        "",
        "Which events of keys are published: letters of classes, with K or E.",
    ),
    Directive("pidfile", Text(), "", "A file to write the process number to.", mutable=False),
    Directive("port", Port(), "7777", "TCP port; 0 for none, free for any that is free."),
    Directive("port-file", Text(), "", "A file to write the TCP port to once it is open.", mutable=False),
    Directive(
        "proto-max-bulk-len",
        Memory(1 << 20, 1 << 40),
        str(limits.BULK_BYTES_MAX),
        "The longest argument accepted, in bytes.",
    ),
    Directive(
        "protected-mode",
        Flag(),
        "yes",
        "Reject clients from other machines while the default user needs no password.",
    ),
    Directive(
        "rdb-save-incremental-fsync",
        Flag(),
        "yes",
        "Sync a snapshot while it is written; no: at its end.",
    ),
    Directive(
        "rdb-stream-types",
        Choice(tuple(version.name for version in VERSIONS)),
        "compatible",
        "The format of streams in snapshots: for Redis 7.0, or for newer versions.",
    ),
    Directive(
        "snapshot-effort",
        Number(1, 100),
        "10",
        "Percent of the event loop's time for a snapshot while clients send requests.",
    ),
    Directive("rdbchecksum", Flag(), "yes", "End snapshots with a checksum."),
    Directive("rdbcompression", Flag(), "yes", "Compress long strings in snapshots."),
    Directive(
        "requirepass", Text(), "", "The password of the default user; empty: none is needed.", secret=True
    ),
    Directive(
        "sanitize-dump-payload",
        Choice(("no", "yes", "clients")),
        "yes",
        "Accepted, without effect: RESTORE and snapshots are always checked.",
    ),
    Directive(
        "save",
        SaveRulesType(),
        "",
        "Rules: save a snapshot after so many seconds if there were so many changes.",
    ),
    Directive(
        "slowlog-log-slower-than",
        Number(-1, I63_MAX),
        "10000",
        "Keep requests that take so many microseconds, for SLOWLOG; -1 for none.",
    ),
    Directive("slowlog-max-len", Number(0, I63_MAX), "128", "How many slow requests are kept."),
    Directive(
        "stop-writes-on-bgsave-error",
        Flag(),
        "yes",
        "Reject writes after a failed snapshot, if there are save rules.",
    ),
    Directive(
        "stream-compact-tombstones",
        Flag(),
        "yes",
        "Free the memory of deleted entries in the background.",
    ),
    Directive(
        "stream-hot-memory",
        Memory(0, I63_MAX),
        "0",
        "Bytes of data from which on the oldest nodes of streams move to files; 0: none do.",
    ),
    Directive(
        "stream-idmp-duration",
        Number(1, 86400),
        "100",
        "Seconds for which a new stream remembers idempotent requests.",
    ),
    Directive(
        "stream-idmp-maxsize",
        Number(1, 10000),
        "100",
        "Idempotent requests of one producer that a new stream remembers.",
    ),
    Directive(
        "stream-node-max-bytes", Memory(0, I63_MAX), "4096", "Bytes in one node of a stream; 0 for no limit."
    ),
    Directive(
        "stream-node-max-entries",
        Number(0, I63_MAX),
        "100",
        "Entries in one node of a stream; 0 for no limit.",
    ),
    Directive(
        "supervised",
        Choice(("no", "auto", "systemd")),
        "auto",
        "Accepted, without effect: with NOTIFY_SOCKET set, readiness is reported there.",
        mutable=False,
    ),
    Directive(
        "tcp-backlog", Number(0, U31_MAX), "511", "Connections that may wait to be accepted.", mutable=False
    ),
    Directive(
        "tcp-keepalive", Number(0, U31_MAX), "300", "Seconds between probes of a silent client; 0 for none."
    ),
    Directive("timeout", Number(0, U31_MAX), "0", "Close a client idle for so many seconds; 0 for never."),
    Directive(
        "tls-auth-clients",
        Choice(("yes", "optional", "no")),
        "yes",
        "Whether clients must present a certificate, may, or are not asked for one.",
    ),
    Directive(
        "tls-auth-clients-user",
        Choice(("off", "CN")),
        "off",
        "Authenticate a client as the user that its certificate's common name gives.",
    ),
    Directive(
        "tls-ca-cert-dir", Text(), "", "A directory of authorities' certificates, named by openssl rehash."
    ),
    Directive(
        "tls-ca-cert-file", Text(), "", "Certificates of the authorities that sign clients' certificates."
    ),
    Directive("tls-cert-file", Text(), "", "The server's certificate, and the chain above it."),
    Directive(
        "tls-ciphers", Text(), "", "Ciphers for TLSv1.2, in the syntax of openssl ciphers; empty: safe ones."
    ),
    Directive(
        "tls-ciphersuites",
        Text(),
        "",
        "Ciphers for TLSv1.3.",
        only_value="",
        only_value_reason="Python's ssl cannot choose among them; OpenSSL offers its own, all of them safe",
        unsupported_is_fatal=True,
    ),
    Directive("tls-dh-params-file", Text(), "", "Parameters for DHE in TLSv1.2; ECDHE needs none."),
    Directive("tls-key-file", Text(), "", "The key to the server's certificate."),
    Directive("tls-key-file-pass", Text(), "", "The password of that key, if it is encrypted.", secret=True),
    Directive("tls-port", Port(), "0", "TCP port for TLS, at the addresses of bind."),
    Directive(
        "tls-prefer-server-ciphers",
        Flag(),
        "no",
        "Whether the server's order of ciphers decides, or the client's.",
    ),
    Directive("tls-protocols", TlsVersions(), "", "Versions of TLS offered; empty: both."),
    Directive(
        "tracking-table-max-keys",
        Number(0, I63_MAX),
        "1000000",
        "Keys remembered for clients that cache them; 0 for no limit.",
    ),
    Directive("unixsocket", Text(), "", "Path of a Unix socket to listen on.", mutable=False),
    Directive(
        "unixsocketperm", Octal(), "0", "Permissions of the Unix socket; 0 leaves the umask's.", mutable=False
    ),
    Directive(
        "user",
        UserLineType(),
        "",
        "A user: name and rules, as for ACL SETUSER; once for each.",
        mutable=False,
        secret=True,
    ),
]

DIRECTIVES = sorted([*_GENERAL, *REPLICATION_DIRECTIVES], key=lambda directive: directive.name)
DIRECTIVES_BY_NAME = {directive.name: directive for directive in DIRECTIVES}
NAMES_BY_ALIAS = {directive.alias: directive.name for directive in DIRECTIVES if directive.alias}


def canonical(name: str) -> str:
    """Return the name in lower case; for the old name of a directive, its present name."""
    return NAMES_BY_ALIAS.get(name.lower(), name.lower())


# Redis's directives that have no effect here: a warning at the start, then ignored.
_IGNORED = """
    active-defrag-cycle-max active-defrag-cycle-min active-defrag-ignore-bytes
    active-defrag-max-scan-fields active-defrag-threshold-lower active-defrag-threshold-upper
    active-expire-effort activedefrag activerehashing always-show-logo aof-rewrite-cpulist
    aof_rewrite_cpulist bgsave-cpulist bgsave_cpulist bio-cpulist bio_cpulist
    cluster-allow-pubsubshard-when-down cluster-allow-reads-when-down
    cluster-allow-replica-migration cluster-announce-bus-port cluster-announce-hostname
    cluster-announce-human-nodename cluster-announce-ip cluster-announce-port
    cluster-announce-tls-port cluster-compatibility-sample-ratio cluster-config-file
    cluster-link-sendbuf-limit cluster-migration-barrier cluster-node-timeout cluster-port
    cluster-preferred-endpoint-type cluster-replica-no-failover cluster-replica-validity-factor
    cluster-require-full-coverage cluster-slave-no-failover cluster-slave-validity-factor
    cluster-slot-stats-enabled crash-log-enabled crash-memcheck-enabled dynamic-hz
    enable-module-command enable-protected-configs events-per-io-thread hash-max-listpack-entries
    hash-max-listpack-value hash-max-ziplist-entries hash-max-ziplist-value hide-user-data-from-log
    hll-sparse-max-bytes ignore-warnings io-threads io-threads-do-reads jemalloc-bg-thread
    lazyfree-lazy-eviction lazyfree-lazy-expire lazyfree-lazy-server-del lazyfree-lazy-user-del
    lazyfree-lazy-user-flush lfu-decay-time lfu-log-factor list-compress-depth
    list-max-listpack-size list-max-ziplist-size locale-collate lua-enable-deprecated-api
    max-new-connections-per-cycle max-new-tls-connections-per-cycle maxmemory-eviction-tenacity
    maxmemory-samples oom-score-adj oom-score-adj-values prefetch-batch-size-max proc-title-template
    rdb-del-sync-files replica-full-sync-buffer-limit replica-ignore-disk-write-errors
    replica-lazy-flush server-cpulist server_cpulist set-max-intset-entries set-max-listpack-entries
    set-max-listpack-value set-proc-title shutdown-on-sigint shutdown-on-sigterm slave-lazy-flush
    socket-mark-id syslog-enabled syslog-facility syslog-ident tls-client-cert-file
    tls-client-key-file tls-client-key-file-pass tls-cluster tls-session-cache-size
    tls-session-cache-timeout tls-session-caching vset-force-single-threaded-execution
    zset-max-listpack-entries zset-max-listpack-value zset-max-ziplist-entries
    zset-max-ziplist-value
"""
IGNORED = frozenset(_IGNORED.split())

# Redis's directives that promise safety or copies of data: ignoring them would be dangerous.
_UNSUPPORTED = """
    bind-source-addr cluster-enabled loadmodule rename-command
"""
UNSUPPORTED = frozenset(_UNSUPPORTED.split())
