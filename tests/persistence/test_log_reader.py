"""Reading a log: the commands it executes, where a file may end, and the errors for damage."""

import pytest

from headrace.engine.engine import Engine
from headrace.engine.replaying import Replayer
from headrace.persistence.aof.reader import READ_BYTES, LogReader, RewindableSource
from headrace.persistence.damage import Damaged
from persistence.memory_source import MemorySource
from support.speaking import encoded as record


def replay(source, name, execute, snapshot=None, progress=None):
    return LogReader(source, name, execute, progress).run(snapshot)


def read(data, most=1 << 30):
    """The commands that came out, and the outcome."""
    got = []
    return got, replay(MemorySource(data, most), "log", lambda words: got.append(words))


def damage(data):
    with pytest.raises(Damaged) as caught:
        read(data)
    assert caught.value.file == "log" and "headrace check" in str(caught.value)
    return caught.value


LOG = [
    record("SELECT", 0),
    b"#TS:1795205495\r\n",
    record("XADD", "s", "1-1", "f", b"\r\n*1\r\n\0"),
    b"# it's a bare line\n",
    record("MULTI"),
    record("XADD", "s", "2-1", "f", "v"),
    b"#TS:1795205496\r\n",
    record("xdel", "s", "1-1"),
    record("EXEC"),
    record("SET", "k", b""),
    record("multi"),
    record("exec"),
]


def meant(parts):
    """What those whole parts come to: commands, and how many bytes of them count."""
    commands, valid, at, queue = [], 0, 0, None
    for part in parts:
        at += len(part)
        if part.startswith(b"#"):
            valid = valid if queue is not None else at
            continue
        words = list(read_words(part))
        if words == [b"MULTI"] or words == [b"multi"]:
            queue = []
        elif words[0].upper() == b"EXEC":
            commands += queue
            queue, valid = None, at
        elif queue is not None:
            queue.append(words)
        else:
            commands.append(words)
            valid = at
    return commands, valid


def read_words(part):
    """The words of one record, taken apart by its lengths."""
    at = part.index(b"\n") + 1
    while at < len(part):
        end = part.index(b"\r\n", at)
        n = int(part[at + 1 : end])
        yield part[end + 2 : end + 2 + n]
        at = end + 4 + n


def test_commands_are_read_in_order_and_comments_are_skipped():
    got, done = read(b"".join(LOG))
    assert (got, done.valid_end) == meant(LOG)
    assert done.record_count == sum(not part.startswith(b"#") for part in LOG)
    assert (done.command_count, done.cut_within, done.size) == (len(got), "", done.valid_end)


@pytest.mark.parametrize("most", [1, 7, 64])
def test_a_truncated_log_yields_its_complete_records(most):
    whole = b"".join(LOG)
    for cut in range(len(whole) + 1):
        parts, left = [], cut
        for part in LOG:
            if len(part) > left:
                break
            parts.append(part)
            left -= len(part)
        got, done = read(whole[:cut], most)
        assert (got, done.valid_end) == meant(parts), cut
        opened = sum(p.upper().endswith(b"MULTI\r\n") - p.upper().endswith(b"EXEC\r\n") for p in parts)
        assert done.cut_within == ("transaction" if opened else "record" if left else ""), cut
        assert done.size == cut


@pytest.mark.parametrize("most", [1, 1 << 20])
def test_only_a_comment_at_the_end_is_the_ending(most):
    line = b"#REPL:0,abc,17\r\n"
    assert read(LOG[0] + line, most)[1].last_comment == line
    assert read(LOG[0] + line[:-1], most)[1].last_comment == b""
    assert read(LOG[0] + line + LOG[0], most)[1].last_comment == b""
    assert read(LOG[0] + line + LOG[0][:-1], most)[1].last_comment == line, "what follows is cut off"
    assert read(record("MULTI") + line, most)[1].last_comment == b""


def test_an_empty_log_is_fine():
    assert read(b"") == ([], (0, 0, 0, -1, b"", 0, 0, "", b""))


def test_records_longer_than_a_piece_come_whole():
    big = bytes(range(256)) * (READ_BYTES // 128)
    words = [b"SET", b"k", big]
    many = [b"XADD", b"s", b"1-1"] + [b"%d" % n for n in range(3 * READ_BYTES // 8)]
    got, done = read(record(*words) + record(*many) + record("DEL", "k"))
    assert got == [words, many, [b"DEL", b"k"]] and not done.cut_within


def test_a_length_beyond_the_file_is_a_cut_and_reads_no_further():
    good = record("SET", "k", "v")
    source = MemorySource(good + b"*2\r\n$3\r\nSET\r\n$999999999999\r\n" + b"x" * 10 * READ_BYTES)
    done = replay(source, "log", lambda words: None)
    assert (done.cut_within, done.valid_end, done.size) == ("record", len(good), source.size)
    assert source.at <= 2 * READ_BYTES


GOOD = record("SET", "k", "v")


@pytest.mark.parametrize(
    ("bad", "at", "what"),
    [
        (b"\0" * 16, 0, "16 zero bytes, up to the end of the file"),
        (b"\0\0" + GOOD, 0, "found 2 zero bytes"),
        (b"SET k v\r\n", 0, "expected '*' and the length of a record, found 'SET k v"),
        (b"\r\n", 0, "expected '*'"),
        (b"*0\r\n", 4, "without words"),
        (b"*-1\r\n", 1, "expected digits"),
        (b"*x\r\n", 1, "expected digits"),
        (b"*\r\n", 1, "expected digits"),
        (b"*1\n$4\r\nPING\r\n", 2, "expected digits"),
        (b"*1\r$4\r\nPING\r\n", 2, "expected digits"),
        (b"*1234567890123456789\r\n", 19, "expected digits"),
        (b"*1\r\n:4\r\nPING\r\n", 4, "expected '$' and the length of a word, found ':4"),
        (b"*1\r\n$-1\r\n", 5, "expected digits"),
        (b"*1\r\n$3\r\nPING\r\n", 11, "after a word of 3 bytes"),
        (b"*1\r\n$4\r\nPING\n\n", 12, "after a word of 4 bytes"),
        (record("EXEC"), 0, "an EXEC without a MULTI"),
        (
            record("MULTI") + record("MULTI"),
            len(record("MULTI")),
            "a MULTI inside the transaction that began at",
        ),
        (b"#" + b"x" * 70000, 0, "does not end"),
    ],
)
def test_bytes_that_are_not_a_record_are_damage_at_their_offset(bad, at, what):
    assert damage(bad + GOOD if bad[-1:] != b"\0" else bad).offset == at
    found = damage(GOOD + bad)
    assert what in found.what
    assert found.offset == len(GOOD) + at


def test_the_result_after_damage_describes_the_good_part():
    head = GOOD + record("MULTI") + GOOD
    log = LogReader(MemorySource(head + b"junk"), "log", lambda words: None)
    with pytest.raises(Damaged):
        log.run()
    assert (log.result().valid_end, log.result().record_count) == (len(GOOD), 3)


def test_progress_is_the_bytes_read():
    data = GOOD * (3 * READ_BYTES // len(GOOD))
    told = []
    replay(MemorySource(data), "log", lambda words: None, progress=told.append)
    assert told == sorted(told) and told[-1] == len(data) and len(told) == -(-len(data) // READ_BYTES)


def test_a_snapshot_at_the_head_is_loaded_and_records_follow_where_it_ends():
    for magic in (b"REDIS0010....", b"VALKEY080...."):
        data = magic + GOOD
        got = []

        def load(source, magic=magic):
            assert source.read(READ_BYTES).startswith(magic)  # takes more than it needs
            return len(magic)

        done = replay(MemorySource(data), "log", got.append, snapshot=load)
        assert got == [[b"SET", b"k", b"v"]]
        assert (done.valid_end, done.size, done.cut_within) == (len(data), len(data), "")
        with pytest.raises(Damaged, match="a snapshot where"):
            replay(MemorySource(data), "log", got.append)


def test_a_rewound_source_returns_the_same_bytes_again():
    source = RewindableSource(MemorySource(bytes(range(100)), 30))
    assert source.read(20) == bytes(range(20))
    source.rewind_to(5)
    assert source.read(10) == bytes(range(5, 15))
    source.rewind_to(15)
    assert b"".join(iter(lambda: source.read(9), b"")) == bytes(range(15, 100))
    with pytest.raises(ValueError, match="not in the last"):
        source.rewind_to(3)


# With a real engine behind it.


@pytest.fixture
def engine():
    return Engine()


def play(engine, data):
    return replay(MemorySource(data), "log", Replayer(engine, 1_000_000).replay)


def test_a_log_is_replayed_before_effects_are_recorded(engine):
    engine.set_effect_recording(True)
    with pytest.raises(AssertionError, match="recorded again"):
        Replayer(engine, 1_000_000)


def test_replayed_commands_have_no_other_effects(engine):
    data = (
        record("SELECT", 3) + record("xadd", "s", "1-1", "f", "v") + record("XGROUP", "CREATE", "s", "g", 0)
    )
    done = play(engine, data + record("SET", "k", "v") + record("GET", "k"))
    assert (done.command_count, done.failed_command_count) == (5, 0)
    held = engine.keyspace.databases[3]
    assert (
        held.stream(b"s").length == 1
        and held.string(b"k") == b"v"
        and not len(engine.keyspace.databases[0].values)
    )
    assert engine.effects.take() == [] and engine.stats.command_count == 0 and not engine.clients


def test_a_command_that_fails_is_counted_with_its_offset(engine):
    good = record("XADD", "s", "5-5", "f", "v")
    done = play(
        engine, good + record("XADD", "s", "5-4", "f", "v") + record("SET", "s", "v", "NX", "XX") + good
    )
    assert (done.command_count, done.failed_command_count, done.first_failed_offset) == (4, 3, len(good))
    assert done.first_error.startswith(b"ERR The ID specified in XADD is equal or smaller")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (
            ["LPUSH", "l", "x"],
            "the command 'LPUSH': it is unknown: headrace supports streams and strings only",
        ),
        (["XGROUP", "NONSENSE", "s"], "the command 'XGROUP': it has no subcommand 'NONSENSE'"),
        (["XADD", "s"], "the command 'XADD': wrong number of arguments for 'xadd'"),
        (["XGROUP"], "the command 'XGROUP': wrong number"),
        (["SHUTDOWN"], "the command 'SHUTDOWN': it changes no data"),
        (["CLIENT", "PAUSE", "1"], "the command 'CLIENT': it changes no data"),
        (["DISCARD"], "changes no data"),
        (["\x1b[2J"], r"the command '\x1b[2j'"),
    ],
)
def test_commands_that_no_log_can_contain_are_damage(engine, words, what):
    good = record("SET", "k", "v")
    with pytest.raises(Damaged) as caught:
        play(engine, good + record(*words) + good)
    assert caught.value.offset == len(good)
    assert what.lower() in caught.value.what.lower()


def test_commands_in_a_log_do_not_block(engine):
    words = ["XREAD", "BLOCK", 0, "STREAMS", "s", "$"]
    done = play(engine, record("XADD", "s", "1-1", "f", "v") + record(*words))
    assert (done.command_count, done.failed_command_count) == (2, 0) and not engine.keyspace.blocking.count
