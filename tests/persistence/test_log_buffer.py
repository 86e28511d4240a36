"""Records of the log, compared with a second, simple encoder."""

import random

from headrace.persistence.aof.log_buffer import LogBuffer
from headrace.resp.request import request as plain


def taken(recorder: LogBuffer) -> bytes:
    with recorder.view() as view:
        data = bytes(view)
    recorder.clear()
    return data


def test_a_record_is_a_request() -> None:
    recorder = LogBuffer()
    recorder.put(0, [b"XADD", b"s", b"1-1", b"f", b""])
    assert taken(recorder) == (
        b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$3\r\n1-1\r\n$1\r\nf\r\n$0\r\n\r\n"
    )


def test_words_of_any_length_are_recorded() -> None:
    rng = random.Random(5)
    recorder = LogBuffer()
    expected = plain(b"SELECT", b"3")
    for size in [0, 1, 9, 10, 11, 99, 100, 101, 999, 1000, 4095, 4096, 70_000, 1_000_000]:
        word = rng.randbytes(size)
        recorder.put(3, [word, word[:3]])
        expected += plain(word, word[:3])
    for count in [1, 9, 10, 99, 100, 12_345]:
        words = [b"w%d" % i for i in range(count)]
        recorder.put(3, words)
        expected += plain(*words)
    assert recorder.size() == len(expected)
    assert taken(recorder) == expected
    assert recorder.size() == 0


def test_a_select_goes_before_another_database() -> None:
    recorder = LogBuffer()
    recorder.put_all([(0, [b"A"]), (0, [b"B"]), (15, [b"C"]), (15, [b"D"]), (0, [b"E"])])
    assert taken(recorder) == b"".join(
        plain(*words.split())
        for words in (b"SELECT 0", b"A", b"B", b"SELECT 15", b"C", b"D", b"SELECT 0", b"E")
    )
    recorder.put(0, [b"F"])
    assert taken(recorder) == plain(b"F")  # clearing forgets the bytes, not where the file stands
    recorder.forget_database()
    recorder.put(0, [b"G"])
    assert taken(recorder) == plain(b"SELECT", b"0") + plain(b"G")


def test_a_timestamp_is_written_once_a_second() -> None:
    recorder = LogBuffer()
    recorder.put(0, [b"A"])
    recorder.clear()
    for now_ms in (1_795_205_495_000, 1_795_205_495_999, 1_795_205_496_000):
        recorder.put_timestamp(now_ms)
        recorder.put(0, [b"A"])
    assert taken(recorder) == b"#TS:1795205495\r\n%b%b#TS:1795205496\r\n%b" % ((plain(b"A"),) * 3)
    recorder.forget_database()
    recorder.put_timestamp(1_795_205_496_001)
    assert taken(recorder) == b"#TS:1795205496\r\n"


def test_a_word_that_is_rejected_leaves_no_partial_record() -> None:
    recorder = LogBuffer()
    recorder.put(0, [b"A"])
    before = recorder.size()
    try:
        recorder.put(0, [b"B", "text"])  # type: ignore[list-item]
    except TypeError:
        pass
    else:
        raise AssertionError("a str was taken for bytes")
    assert recorder.size() == before


def test_memory_is_given_back_after_a_big_commit() -> None:
    recorder = LogBuffer()
    recorder.put(0, [bytes(10_000)])
    recorder.clear()
    kept = recorder.cap
    assert kept >= 10_000
    recorder.put(0, [bytes(5_000_000)])
    assert recorder.cap >= 5_000_000
    recorder.clear()
    assert recorder.cap == 0
    recorder.put(0, [b"A"])
    assert taken(recorder) == plain(b"A")
