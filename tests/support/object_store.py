"""A server with the protocol of S3 (moto), and a process before it that makes requests fail."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from support import faulty_proxy
from support.faulty_proxy import Fault
from support.waiting import wait_until

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "a-key",
    "AWS_SECRET_ACCESS_KEY": "a-secret",
    "AWS_REGION": "us-east-1",
}
# So that a test of a store that stays broken does not wait for minutes.
IMPATIENT = {"max_retries": "1", "retry_timeout": "8s", "timeout": "4s", "connect_timeout": "2s"}
BUCKET = "lake"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def s3_server(log: Path) -> Iterator[int]:
    """Run a server with an empty bucket; yield its port."""
    port = free_port()
    with log.open("wb") as output:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with subprocess.Popen(command, stdout=output, stderr=output) as process:
            try:
                wait_until(lambda: process.poll() is not None or answers(port), "the object store")
                assert process.poll() is None, log.read_text()
                make_bucket(port, BUCKET)
                yield port
            finally:
                process.kill()


def make_bucket(port: int, bucket: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("PUT", f"/{bucket}")
    assert connection.getresponse().status == 200
    connection.close()


def options_of(port: int, **more: str) -> dict[str, str]:
    """The options with which the library reaches a store on this machine."""
    return {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", **more}


def environment_of(port: int) -> dict[str, str]:
    """The environment of a process that finds the store, and the credentials, there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return kept | options_of(port)


class FaultyProxy:
    """A process that passes requests on to the store, except those that have a fault.

    It is a process of its own because deltalake holds the lock of the interpreter while it waits.
    """

    def __init__(self, store_port: int) -> None:
        command = [sys.executable, faulty_proxy.__file__, str(store_port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _send(self, fault: Fault | None) -> list[str]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(None if fault is None else asdict(fault)) + "\n")
        self._process.stdin.flush()
        requests: list[str] = json.loads(self._answer())
        return requests

    def set_fault(self, fault: Fault) -> None:
        """From now on requests have this fault."""
        self._send(fault)

    def requests(self) -> list[str]:
        """Return all requests so far, such as "GET /lake/orders"."""
        return self._send(None)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def proxy_of(store_port: int) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(store_port)
    try:
        yield proxy
    finally:
        proxy.close()
