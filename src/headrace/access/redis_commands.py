"""The names of Redis's commands up to 8.10, which rules may use although Headrace has no such command.

Such a rule is kept and shown and has no effect. Any other unknown name is a spelling error.
"""

from __future__ import annotations

_COMMANDS = """
    acl append arcount ardel ardelrange arget argetrange argrep arinfo arinsert arlastitems arlen
    armget armset arnext arop arring arscan arseek arset asking auth backup bgrewriteaof bgsave
    bitcount bitfield bitfield_ro bitop bitpos blmove blmovem blmpop blpop brpop brpoplpush bzmpop
    bzpopmax bzpopmin client cluster command config copy dbsize debug decr decrby del delex digest
    discard dump echo eval eval_ro evalsha evalsha_ro exec exists expire expireat expiretime
    failover fcall fcall_ro flushall flushdb function geoadd geodist geohash geopos georadius
    georadius_ro georadiusbymember georadiusbymember_ro geosearch geosearchstore get getbit getdel
    getex getrange getset hdel hello hexists hexpire hexpireat hexpiretime hget hgetall hgetdel
    hgetex himport hincrby hincrbyfloat hkeys hlen hmget hmset hotkeys hpersist hpexpire hpexpireat
    hpexpiretime hpttl hrandfield hscan hset hsetex hsetnx hstrlen httl hvals incr incrby
    incrbyfloat increx info keys lastsave latency lcs lindex linsert llen lmove lmovem lmpop lolwut
    lpop lpos lpush lpushx lrange lrem lset ltrim memory mget migrate module monitor move mset
    msetex msetnx multi object persist pexpire pexpireat pexpiretime pfadd pfcount pfdebug pfmerge
    pfselftest ping psetex psubscribe psync pttl publish pubsub punsubscribe quit randomkey readonly
    readwrite rename renamenx replconf replicaof reset restore restore-asking role rpop rpoplpush
    rpush rpushx sadd save scan scard script sdiff sdiffcard sdiffstore select set setbit setex
    setnx setrange shutdown sinter sintercard sinterstore sismember slaveof slowlog smembers
    smismember smove sort sort_ro spop spublish srandmember srem sscan ssubscribe strlen subscribe
    substr sunion sunioncard sunionstore sunsubscribe swapdb sync time touch ttl type unlink
    unsubscribe unwatch vadd vcard vdim vemb vgetattr vinfo vismember vlinks vrandmember vrange vrem
    vsetattr vsim wait waitaof watch xack xackdel xadd xautoclaim xcfgset xclaim xdel xdelex xgroup
    xidmprecord xinfo xlen xnack xpending xrange xread xreadgroup xrevrange xsetid xtrim zadd zcard
    zcount zdiff zdiffstore zincrby zinter zintercard zinterstore zlexcount zmpop zmscore zpopmax
    zpopmin zrandmember zrange zrangebylex zrangebyscore zrangestore zrank zrem zremrangebylex
    zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore
    zunion zunionstore
"""

# Commands of the modules that Redis 8 contains: filters, sketches, search, JSON, time series.
_OF_MODULES = """
    bf.add bf.card bf.exists bf.info bf.insert bf.loadchunk bf.madd bf.mexists bf.reserve
    bf.scandump cf.add cf.addnx cf.count cf.del cf.exists cf.info cf.insert cf.insertnx cf.loadchunk
    cf.mexists cf.reserve cf.scandump cms.incrby cms.info cms.initbydim cms.initbyprob cms.merge
    cms.query ft._list ft.aggregate ft.aliasadd ft.aliasdel ft.aliaslist ft.aliasupdate ft.alter
    ft.config ft.create ft.cursor ft.dictadd ft.dictdel ft.dictdump ft.dropindex ft.explain
    ft.explaincli ft.hybrid ft.info ft.profile ft.search ft.spellcheck ft.sugadd ft.sugdel ft.sugget
    ft.suglen ft.syndump ft.synupdate ft.tagvals json.arrappend json.arrindex json.arrinsert
    json.arrlen json.arrpop json.arrtrim json.clear json.debug json.del json.forget json.get
    json.merge json.mget json.mset json.numincrby json.nummultby json.objkeys json.objlen json.resp
    json.set json.strappend json.strlen json.toggle json.type tdigest.add tdigest.byrank
    tdigest.byrevrank tdigest.cdf tdigest.create tdigest.info tdigest.max tdigest.merge tdigest.min
    tdigest.quantile tdigest.rank tdigest.reset tdigest.revrank tdigest.trimmed_mean topk.add
    topk.count topk.incrby topk.info topk.list topk.query topk.reserve ts.add ts.alter ts.create
    ts.createrule ts.decrby ts.del ts.deleterule ts.get ts.incrby ts.info ts.madd ts.mget ts.mrange
    ts.mrevrange ts.nrange ts.nrevrange ts.queryindex ts.querylabels ts.range ts.read ts.revrange
"""

# Each line begins with a container, followed by its subcommands.
_SUBCOMMANDS = """
    acl: cat deluser dryrun genpass getuser help list load log save setuser users whoami
    backup: abort cleanup help list seal start status
    client: caching getname getredir help id info kill list maint_notifications no-evict no-touch
        pause reply setinfo setname tracking trackinginfo unblock unpause
    cluster: addslots addslotsrange bumpepoch count-failure-reports countkeysinslot delslots
        delslotsrange failover flushslots forget getkeysinslot help info keyslot links meet
        migration myid myshardid nodes replicas replicate reset saveconfig set-config-epoch setslot
        shards slaves slot-stats slots
    command: count docs getkeys getkeysandflags help info list
    config: get help resetstat rewrite set
    function: delete dump flush help kill list load restore stats
    himport: discard discardall help prepare set
    hotkeys: get help reset start stop
    latency: doctor graph help histogram history latest reset
    memory: doctor help malloc-stats purge stats usage
    module: help list load loadex unload
    object: encoding freq help idletime refcount
    pubsub: channels help numpat numsub shardchannels shardnumsub
    script: debug exists flush help kill load
    slowlog: get help len reset
    xgroup: create createconsumer delconsumer destroy help setid
    xinfo: consumers groups help stream
"""


def _subcommands() -> dict[str, list[str]]:
    """Return the subcommands of each container."""
    found: dict[str, list[str]] = {}
    words: list[str] = []
    for word in _SUBCOMMANDS.split():
        if word.endswith(":"):
            words = found.setdefault(word[:-1], [])
        else:
            words.append(word)
    return found


def redis_commands() -> dict[bytes, list[bytes]]:
    """Return the full names of the subcommands by command: {b"get": [], b"config": [b"config|get", ...]}."""
    subcommands = _subcommands()
    return {
        name.encode(): [f"{name}|{word}".encode() for word in subcommands.get(name, ())]
        for name in (*_COMMANDS.split(), *_OF_MODULES.split())
    }
