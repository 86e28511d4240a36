"""DIGEST, DELEX, MSETEX and the comparisons of SET reply as Redis 8.4.

There is no server of that version to compare with. The digests are known from Redis's tests and issues.
"""

import pytest
import redis
from xxhash import xxh3_64_hexdigest

from support.headrace_server import headrace_server

DIGESTS = {
    "hello": "9555e8555c62dcfd",
    "123": "404a763b3f4c8c9a",
    "v8": "0cc76dbb41381419",
    "v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd": (
        "00006c38adf31777"
    ),
}
HELLO = DIGESTS["hello"]
WRONG_TYPE = "-WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_A_STRING = "-ERR Key should be of string type if conditions are specified"
BAD_DIGEST = "-ERR must be exactly 16 hexadecimal characters"


@pytest.mark.parametrize("value", DIGESTS)
def test_a_digest_has_sixteen_digits(talk, value):
    talk(f"SET k {value}")
    assert talk("DIGEST k") == DIGESTS[value]
    talk(f"SET k {value[:1]}")
    talk(f"APPEND k {value[1:]}")  # changed in place
    assert talk("DIGEST k") == DIGESTS[value]


CONVERSATION = f"""
DIGEST none                          -> None
DIGEST s                             -> {WRONG_TYPE}
DIGEST k k                           -> -ERR wrong number of arguments for 'digest' command
SET k w IFEQ other                   -> None
SET k w IFEQ hello                   -> OK
SET k hello IFNE w                   -> None
SET k hello IFNE x                   -> OK
SET k w IFDEQ {HELLO[:-1]}           -> {BAD_DIGEST}
SET k w IFDEQ {"0" * 16}             -> None
SET k hello IFDEQ {HELLO.upper()}    -> OK
SET k w IFDNE {HELLO}                -> None
SET k w GET IFDNE {"z" * 16}         -> hello
SET k x GET IFEQ hello               -> w
GET k                                -> w
SET none v IFEQ v                    -> None
SET none v IFDEQ {HELLO}             -> None
EXISTS none                          -> 0
SET new v IFNE v                     -> OK
SET new2 v IFDNE {HELLO}             -> OK
SET s v IFEQ v                       -> {WRONG_TYPE}
SET s v IFDNE {HELLO}                -> {WRONG_TYPE}
SET k v NX IFEQ v                    -> -ERR syntax error
SET k v XX IFNE v                    -> -ERR syntax error
SET k v IFEQ v XX IFEQ v             -> -ERR syntax error
SET k v IFEQ v NX XX                 -> -ERR syntax error
SET k v IFEQ v IFNE v                -> -ERR syntax error
SET k v IFEQ                         -> -ERR syntax error
SET k w IFEQ w NX                    -> None
SET k w2 IFEQ w XX                   -> OK
SET k w IFEQ other IFEQ w2           -> OK
SET k w2 IFEQ w IFEQ other           -> None
SET k v GET IFEQ other NX            -> w
SET new3 v IFEQ v NX                 -> None
SET new3 v IFNE v XX                 -> None
SET new3 v IFNE v NX                 -> OK
SET new4 v IFDNE 0 NX                -> OK
SET k v IFDEQ 0 NX                   -> None
SET k v IFDEQ 0 XX                   -> {BAD_DIGEST}
SET s v IFEQ v NX                    -> None
SET s v IFEQ v XX                    -> {WRONG_TYPE}
DELEX none                           -> 0
DELEX none FOO x                     -> 0
DELEX none IFDEQ x                   -> 0
DELEX k IFEQ                         -> -ERR wrong number of arguments for 'delex' command
DELEX none IFEQ v v                  -> -ERR wrong number of arguments for 'delex' command
DELEX s FOO x                        -> {NOT_A_STRING}
DELEX s IFEQ x                       -> {NOT_A_STRING}
DELEX k FOO x                        -> -ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE
DELEX k IFDNE x                      -> {BAD_DIGEST}
DELEX k ifne w                       -> 0
DELEX k ifeq w                       -> 1
DELEX s                              -> 1
DELEX new2 IFDNE {"z" * 16}          -> 1
MSETEX x k v                         -> -ERR invalid numkeys value
MSETEX 0 k v                         -> -ERR invalid numkeys value
MSETEX 2147483648 k v                -> -ERR invalid numkeys value
MSETEX 2147483647 k v                -> -ERR wrong number of key-value pairs
MSETEX 2 k v k2                      -> -ERR wrong number of key-value pairs
MSETEX 1 k v GET                     -> -ERR syntax error
MSETEX 1 k v IFEQ v                  -> -ERR syntax error
MSETEX 1 k v NX XX                   -> -ERR syntax error
MSETEX 1 k v EX 10 PX 10             -> -ERR syntax error
MSETEX 1 k v KEEPTTL EX 10           -> -ERR syntax error
MSETEX 1 k v EX 0                    -> -ERR invalid expire time in 'msetex' command
MSETEX 1 k v EX x                    -> -ERR value is not an integer or out of range
EXISTS k                             -> 0
MSETEX 2 k 1 k2 2 XX                 -> 0
MSETEX 2 k 1 k2 2 nx ex 10           -> 1
MSETEX 2 k2 3 k3 3 NX                -> 0
TTL k2                               -> 10
MSETEX 2 k2 3 k3 3 keepttl           -> 1
TTL k2                               -> 10
TTL k3                               -> -1
MSETEX 2 k2 4 k3 4                   -> 1
TTL k2                               -> -1
"""


def test_replies_are_those_of_redis_8_4(talk):
    talk("SET k hello")
    talk("XADD s 1-1 f v")
    for line in CONVERSATION.strip().splitlines():
        request, _, reply = line.partition("->")
        assert str(talk(request.strip())) == reply.strip(), request


def test_keys_are_read_only_if_they_are_compared(talk):
    """A user that may only write may not learn what a value is."""
    talk("ACL SETUSER ann on nopass +@all %W~k* resetchannels")
    talk("AUTH ann x")
    for allowed in ("SET k v", "DELEX k", "MSETEX 2 k v k2 v"):
        assert not str(talk(allowed)).startswith("-"), allowed
    for refused in ("SET k v IFEQ v", "DELEX k IFEQ v", "DIGEST k", "LCS k k2", "MSETEX 2 k v x v"):
        assert str(talk(refused)).startswith("-NOPERM"), refused


@pytest.mark.filterwarnings("ignore:Call to")  # redis-py calls these arguments experimental
def test_redis_py_compares_and_sets():
    with headrace_server() as port, redis.Redis(port=port, decode_responses=True) as client:
        assert client.set("k", "v1", ifne="x")
        assert client.set("k", "v2", ifeq="v0") is None
        assert client.set("k", "v2", ifeq="v1")
        digest = client.digest("k")
        assert digest == xxh3_64_hexdigest(b"v2")
        assert client.set("k", "v3", ifdeq=digest, get=True) == "v2"
        assert client.delex("k", ifdeq=digest) == 0
        assert client.delex("k", ifdne=digest) == 1
        assert client.msetex({"a": 1, "b": 2}, ex=100) == 1
        assert client.ttl("b") > 0
        assert client.lcs("a", "b", len=True) == 0
