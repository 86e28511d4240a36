"""Payloads that servers with deep validation refuse are refused here, and with the same error."""

import base64
import json
import pathlib

import pytest

from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.dump import BadPayload, WrongChecksum, restore

CASES = json.loads((pathlib.Path(__file__).parent / "vectors" / "reject.json").read_bytes())["cases"]
DEEP = "valkey-9.1.2"  # the one of the three servers that always looks at everything
REFUSALS = {"DUMP payload version or checksum are wrong": WrongChecksum, "Bad data format": BadPayload}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_a_careful_server_refuses_is_refused(case):
    payload = base64.b64decode(case["payload"])
    reply = case["reply"][DEEP]
    if reply == "OK":
        restore(payload, Keyspace(), 0).check()
    else:
        with pytest.raises(REFUSALS[reply["error"]]):
            restore(payload, Keyspace(), 0)
