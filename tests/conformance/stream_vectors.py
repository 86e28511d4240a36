"""Recorded commands on streams, executed on a Stream, and what servers answered and stored."""

import base64
import gzip
import json
import pathlib

from headrace.streams import delivery, trim
from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.structures import stream_id

U64_MAX = 2**64 - 1
FILES = sorted((pathlib.Path(__file__).parent / "vectors" / "streams").iterdir())
PLAIN = {"XADD", "XDEL", "XTRIM", "XSETID"}
GROUPED = {"XGROUP", "XREADGROUP", "XCLAIM", "XAUTOCLAIM", "XACK"}
REDIS = ("redis-7.0.15", "redis-8.0.6")


def load(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text)


def as_bytes(word):
    return base64.b64decode(word["b64"]) if isinstance(word, dict) else str(word).encode()


class Dump:
    """What stands in a DUMP payload up to the groups."""

    def __init__(self, payload):
        self.data, self.at = payload, 1
        self.nodes = [(self.string(), self.string()) for _ in range(self.number())]
        self.length = self.number()
        self.last, self.first, self.max_deleted = (f"{self.number()}-{self.number()}" for _ in range(3))
        self.entries_added = self.number()

    def take(self, n):
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self):
        first = self.take(1)[0]
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3F) << 8 | self.take(1)[0]
        return int.from_bytes(self.take({0x80: 4, 0x81: 8}[first]), "big")

    def string(self):
        return self.take(self.number())


class Replay:
    """Runs a vector's commands on a Stream, taking IDs and refusals from the replies."""

    def __init__(self, vector, replies):
        self.stream = Stream()
        self.bytes_max = int(vector["config"].get("stream-node-max-bytes", 4096))
        self.entries_max = int(vector["config"].get("stream-node-max-entries", 100))
        for command, reply in zip(vector["commands"], replies, strict=True):
            words = [as_bytes(word) for word in command]
            if command[0] in PLAIN | GROUPED and not (isinstance(reply, dict) and "error" in reply):
                self.subcommand = command[1]
                getattr(self, command[0].lower())(words[2:], reply)

    def xadd(self, words, reply):
        at, options = self.trim_options(words)
        new = stream_id.parse(reply.encode(), 0)
        assert self.stream.last_id() < new
        self.stream.append(new.ms, new.seq, words, at + 1, self.bytes_max, self.entries_max)
        if options:
            self.trim(options)

    def xtrim(self, words, reply):
        assert self.trim(self.trim_options(words)[1]) == reply

    def trim_options(self, words):
        """Where the options end, and (strategy, threshold, approximate, limit)."""
        if words[0] not in (b"MAXLEN", b"MINID"):
            return 0, None
        at = 1 + (words[1] in (b"=", b"~"))
        approximate = words[1] == b"~"
        limit = min(100 * self.entries_max or 10000, 1000000) if approximate else 0
        after = at + 1
        if words[after : after + 1] == [b"LIMIT"]:
            limit, after = int(words[after + 1]), after + 2
        return after, (words[0], words[at], approximate, limit)

    def trim(self, options):
        strategy, threshold, approximate, limit = options
        if strategy == b"MAXLEN":
            return trim.trim_by_length(self.stream, int(threshold), approximate, limit)
        lowest = stream_id.parse(threshold, 0)
        return trim.trim_by_id(self.stream, lowest.ms, lowest.seq, approximate, limit)

    def xdel(self, words, reply):
        ids = [stream_id.parse(word, 0) for word in words]
        assert sum(self.stream.delete(i.ms, i.seq) for i in ids) == reply

    def xgroup(self, words, reply):
        # words[0] is the key; the subcommand has gone before it
        stream, (name, *rest) = self.stream, words[1:]
        subcommand, group = self.subcommand, stream.group(name)
        if subcommand in ("CREATE", "SETID"):
            at = stream.last_id() if rest[0] == b"$" else stream_id.parse(rest[0], 0)
            read = int(rest[rest.index(b"ENTRIESREAD") + 1]) if b"ENTRIESREAD" in rest else -1
            if subcommand == "CREATE":
                stream.make_group(name, at.ms, at.seq, read)
            else:
                group.last_ms, group.last_seq, group.entries_read = at.ms, at.seq, read
        elif subcommand == "CREATECONSUMER":
            self.consumer(group, rest[0])
        elif subcommand == "DELCONSUMER":
            assert group.drop_consumer(group.consumer(rest[0])) == reply
        else:
            raise NotImplementedError(subcommand)

    def consumer(self, group, name):
        return group.consumer(name) or group.make_consumer(name, 0)

    def xreadgroup(self, words, reply):
        group = self.stream.group(words[0])
        consumer = self.consumer(group, words[1])
        pending = b"NOACK" not in words
        for _, entries in reply or []:
            for one, _ in entries:
                new = stream_id.parse(one.encode(), 0)
                delivery.deliver(self.stream, group, consumer, new.ms, new.seq, 0, pending)

    def xclaim(self, words, reply):
        group = self.stream.group(words[0])
        consumer = self.consumer(group, words[1])
        time, count = (int(words[words.index(w) + 1]) if w in words else 0 for w in (b"TIME", b"RETRYCOUNT"))
        for one in reply:
            claimed = stream_id.parse(one.encode(), 0)
            slot = group.pending.find(claimed.ms, claimed.seq)
            if slot < 0:
                group.pending.add(claimed.ms, claimed.seq, consumer, time, count)
            else:
                group.pending.assign(slot, consumer, time, count)

    def xack(self, words, reply):
        pending = self.stream.group(words[0]).pending
        slots = [pending.find(i.ms, i.seq) for i in (stream_id.parse(word, 0) for word in words[1:])]
        assert len(slots) == reply
        for slot in slots:
            pending.remove(slot)

    def xautoclaim(self, words, reply):
        assert reply[1:] == [[], []]
        self.consumer(self.stream.group(words[0]), words[1])

    def xsetid(self, words, reply):
        new = stream_id.parse(words[0], 0)
        self.stream.last_ms, self.stream.last_seq = new.ms, new.seq
        options = dict(zip(words[1::2], words[2::2], strict=True))
        if b"ENTRIESADDED" in options:
            self.stream.entries_added = int(options[b"ENTRIESADDED"])
        if b"MAXDELETEDID" in options:
            highest = stream_id.parse(options[b"MAXDELETEDID"], 0)
            self.stream.max_deleted_ms, self.stream.max_deleted_seq = highest.ms, highest.seq


def entries_of(stream, reverse=False):
    iterator = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, reverse)
    found = []
    while iterator.next():
        found.append((f"{iterator.ms}-{iterator.seq}", iterator.remaining_pieces()))
    return found


def counters_of(stream):
    return {
        "length": stream.length,
        "radix-tree-keys": stream.nodes.key_count,
        "radix-tree-nodes": stream.nodes.node_count,
        "last-generated-id": str(stream.last_id()),
        "max-deleted-entry-id": str(stream.max_deleted_id()),
        "entries-added": stream.entries_added,
        "recorded-first-entry-id": str(stream.first_id()),
    }


def text_of(name):
    """A name as the vectors write it."""
    plain = all(32 <= byte < 127 for byte in name)
    return name.decode() if plain else {"b64": base64.b64encode(name).decode()}


def groups_of(stream):
    found = []
    for group in stream.groups():
        pending, rows = group.pending, []
        owned = {consumer.name: [] for consumer in group.consumers()}
        slot = pending.first_by_id_from(0, 0)
        while slot >= 0:
            one, owner = f"{pending.ms_of(slot)}-{pending.seq_of(slot)}", pending.owner_of(slot)
            rows.append(
                [one, text_of(owner.name), pending.delivery_time_of(slot), pending.delivery_count_of(slot)]
            )
            owned[owner.name].append(one)
            slot = pending.next_by_id(slot)
        lag = delivery.lag_or_unknown(stream, group) if delivery.lag_is_known(stream, group) else None
        found.append(
            {
                "name": text_of(group.name),
                "last-delivered-id": f"{group.last_ms}-{group.last_seq}",
                "entries-read": None if group.entries_read == -1 else group.entries_read,
                "lag": lag,
                "pending": rows,
                "consumers": [{"name": text_of(name), "pending": ids} for name, ids in owned.items()],
            }
        )
    return found


def replayed(vector, server):
    replies = vector["replies"] if "replies" in vector else vector["replies_by_server"][server]
    return Replay(vector, replies).stream


def expected(vector, server):
    return vector["expect"] if "expect" in vector else vector["expect_by_server"][server]


def dump_of(vector, server):
    return Dump(base64.b64decode(vector["servers"][server]["dump_raw"]))
