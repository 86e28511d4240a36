"""A real server on free ports, in a thread of the test's own process."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event as EventOfProcesses
from pathlib import Path
from typing import Any

import pytest
import redis

from headrace.persistence.data_directory import DiskDirectory, DiskFile, FileIdentity
from headrace.server.config.config import Config
from headrace.server.main import Server
from server.tls_clients import Town
from support.redis_programs import installed_redis_with_tls
from support.redis_server import free_port
from support.speaking import SECONDS_MAX, Client
from support.waiting import answers, wait_until


class FlakyDisk(DiskDirectory):
    """The real directory, with a disk that fails when it is told to."""

    full = False  # nothing can be written
    full_for = "/"  # no file with this in its name can be written
    broken = False  # nothing can be synced
    broken_directories = False
    slow: threading.Event | EventOfProcesses | None = None  # syncs wait for it
    writes = 0
    syncs = 0

    def create(self, name: str) -> FlakyFile:
        return FlakyFile(self, super().create(name))

    def open_append(self, name: str) -> FlakyFile:
        return FlakyFile(self, super().open_append(name))

    def sync_directory(self, name: str) -> None:
        if self.broken_directories:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync_directory(name)


class FlakyFile:
    """A file on it."""

    def __init__(self, disk: FlakyDisk, file: DiskFile) -> None:
        self.disk = disk
        self.file = file
        self.name = file.name

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.disk.writes += 1
        if self.disk.full or self.disk.full_for in Path(self.name).name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)

    def sync(self) -> None:
        self.disk.syncs += 1
        if self.disk.slow is not None:
            self.disk.slow.wait(SECONDS_MAX)
        if self.disk.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.file.sync()

    def start_writeback(self) -> None:
        self.file.start_writeback()

    def truncate(self, size: int) -> None:
        self.file.truncate(size)

    def size(self) -> int:
        return self.file.size()

    def identity(self) -> FileIdentity:
        return self.file.identity()

    def close(self) -> None:
        self.file.close()


class Running:
    """A server and the way to it. It keeps no log unless it is told to."""

    def __init__(self, arguments: list[str]) -> None:
        config = Config()
        config.read_arguments(["--port", "free", "--bind", "127.0.0.1", "--appendonly", "no", *arguments])
        self.server = Server(config)
        self.server.open()
        self.port = self.server.parts.listeners.port
        self.tls_port = self.server.parts.listeners.tls_port
        self.clients: list[Client] = []
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()

    def connect(self) -> Client:
        client = Client.to(self.port)
        self.clients.append(client)
        return client

    def connect_tls(self, context: ssl.SSLContext) -> Client:
        sock = socket.create_connection(("127.0.0.1", self.tls_port), SECONDS_MAX)
        client = Client(context.wrap_socket(sock, server_hostname="127.0.0.1"))
        self.clients.append(client)
        return client

    def stop(self) -> None:
        self.server.stop()
        self.thread.join(SECONDS_MAX)
        for client in self.clients:
            client.close()
        assert not self.thread.is_alive()


@pytest.fixture
def dial() -> Iterator[Callable[[int], Client]]:
    """dial(port) gives a client of a server that is not one of start()'s."""
    clients: list[Client] = []

    def connect(port: int) -> Client:
        clients.append(Client.to(port))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def dial_tls() -> Iterator[Callable[[int, ssl.SSLContext], Client]]:
    """dial_tls(port, context) gives a client that encrypts, of a server that is not one of start()'s."""
    clients: list[Client] = []

    def connect(port: int, context: ssl.SSLContext) -> Client:
        sock = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
        clients.append(Client(context.wrap_socket(sock, server_hostname="127.0.0.1")))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    """start("--maxclients", "3") gives a running server."""
    monkeypatch.chdir(tmp_path)
    started: list[Running] = []

    def run(*arguments: str) -> Running:
        started.append(Running(list(arguments)))
        return started[-1]

    yield run
    for running in started:
        running.stop()


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return Town(tmp_path_factory.mktemp("town"))


@pytest.fixture(scope="session")
def redis_port(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A redis-server that is only reached by TLS."""
    port = free_port()
    folder = tmp_path_factory.mktemp("redis")
    words = [installed_redis_with_tls(), "--port", "0", "--tls-port", str(port), "--save", ""]
    words += town.server_words()
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)
    shown: dict[str, Any] = {"ssl_ca_certs": str(town.authority.file), "ssl_certfile": str(town.ann.file)}
    try:
        with redis.Redis(port=port, ssl=True, ssl_keyfile=str(town.ann.key), **shown) as client:
            wait_until(lambda: answers(client), "redis-server")
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def start_tls(start: Callable[..., Running], town: Town) -> Callable[..., Running]:
    """start_tls("--tls-auth-clients", "no") gives a server that is only reached by TLS."""

    def run(*arguments: str) -> Running:
        return start("--port", "0", "--tls-port", "free", *town.server_words(), *arguments)

    return run


@pytest.fixture
def start_logging(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Running, FlakyDisk]]:
    """start_logging("--appendfsync", "always") gives a server with a log, and its disk."""
    monkeypatch.setattr("headrace.server.main.DiskDirectory", FlakyDisk)

    def run(*arguments: str) -> tuple[Running, FlakyDisk]:
        running = start("--appendonly", "yes", *arguments)
        disk = running.server.parts.disk
        assert isinstance(disk, FlakyDisk)
        return running, disk

    return run


@pytest.fixture
def server(start: Callable[..., Running]) -> Running:
    return start()


@pytest.fixture
def client(server: Running) -> Client:
    return server.connect()
