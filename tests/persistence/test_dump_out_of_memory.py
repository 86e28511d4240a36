"""Out of memory during DUMP: the next payload is right, and nothing is written after a block."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("_testcapi")
pytestmark = pytest.mark.skipif(
    "HEADRACE_COMPILED" not in os.environ, reason="the interpreter allocates at every step itself"
)

# In a process of its own: what is written behind a block as large as that ends it.
DUMPS = """
import random, _testcapi
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.dump import dump, restore
from headrace.persistence.rdb.versions import COMPATIBLE_VERSION

def payload(value):
    return dump(value, COMPATIBLE_VERSION, compress=True, now_ms=1)

value = random.Random(1).randbytes(900_000)  # packed in a buffer that is kept
larger = random.Random(2).randbytes(2_000_000)  # packed in one that the next string makes small
refused = 0
for nth in range(20):
    payload(larger)
    payload(b"a" * 100)
    _testcapi.set_nomemory(nth, nth + 1)
    try:
        payload(value)
    except MemoryError:
        refused += 1
    finally:
        _testcapi.remove_mem_hooks()
    assert restore(payload(value), Keyspace(), 1) == value
assert 0 < refused < 20, refused
"""


def test_a_payload_after_an_out_of_memory_error_is_right():
    done = subprocess.run([sys.executable, "-c", DUMPS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
