"""Tips: what COMMAND tells proxies and clients of a cluster about a command, in Redis's terms.

`request_policy` says to which nodes a request goes, `response_policy` how their replies are combined.
`nondeterministic_output`: the same data may give another reply.
"""

from __future__ import annotations

_TIPS = """
    nondeterministic_output: client|info client|list dump lastsave object|encoding object|freq
        object|idletime object|refcount pttl time ttl xadd xautoclaim xclaim xinfo|consumers xpending xtrim
        cluster|count-failure-reports cluster|getkeysinslot cluster|info cluster|links cluster|myshardid
        cluster|nodes cluster|replicas cluster|shards cluster|slaves cluster|slots cluster|bumpepoch
    nondeterministic_output_order: command command|docs command|info command|list function|list module|list
    nondeterministic_output request_policy:all_nodes response_policy:special: latency|doctor latency|graph
        latency|histogram latency|history latency|latest
    nondeterministic_output request_policy:all_shards: cluster|slot-stats
    nondeterministic_output request_policy:all_shards response_policy:special: function|stats info
        memory|doctor memory|malloc-stats memory|stats
    nondeterministic_output request_policy:special response_policy:special: scan
    request_policy:all_nodes nondeterministic_output: slowlog|get
    request_policy:all_nodes response_policy:agg_sum: latency|reset
    request_policy:all_nodes response_policy:agg_sum nondeterministic_output: slowlog|len
    request_policy:all_nodes response_policy:all_succeeded: acl|deluser acl|save acl|setuser client|setinfo
        client|setname config|resetstat config|rewrite config|set script|flush script|load slowlog|reset
    request_policy:all_shards nondeterministic_output_order: keys
    request_policy:all_shards response_policy:agg_logical_and: script|exists
    request_policy:all_shards response_policy:agg_min: wait waitaof
    request_policy:all_shards response_policy:agg_sum: dbsize
    request_policy:all_shards response_policy:all_succeeded: flushall flushdb function|delete function|flush
        function|load function|restore memory|purge ping
    request_policy:all_shards response_policy:one_succeeded: function|kill script|kill
    request_policy:all_shards response_policy:special nondeterministic_output: randomkey
    request_policy:multi_shard: mget
    request_policy:multi_shard response_policy:agg_sum: del exists touch unlink
    request_policy:multi_shard response_policy:all_succeeded: mset msetex
"""


def _read_tips() -> dict[bytes, list[str]]:
    """Return the tips of each command that has some."""
    found: dict[bytes, list[str]] = {}
    tips: list[str] = []
    for line in _TIPS.strip().splitlines():
        before, colon, names = line.rpartition(": ")
        if colon:
            tips = before.split()
        found |= {name.encode(): tips for name in names.split()}
    return found


TIPS = _read_tips()
