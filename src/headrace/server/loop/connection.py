"""One client's connection: its descriptor, its request parser, its session."""

from __future__ import annotations

from typing import Any

import cython

from headrace.commands.session import Session
from headrace.resp.parser import RequestParser
from headrace.server.loop.tls_connection import TlsConnection
from headrace.visibility import Public


@cython.final
@cython.cclass
class Connection:
    """The event loop's state of one client. An idle one holds no large buffer."""

    fd: cython.int
    session: Session
    parser: RequestParser
    tls: TlsConnection | None  # encrypts between descriptor and parser; None: plain TCP
    watched: Public[cython.uint]  # the epoll events that it is registered for
    ready: cython.bint  # has requests to execute: it is in EventLoop.ready
    flush_scheduled: cython.bint  # is in EventLoop.to_flush
    throttled: cython.bint  # its requests wait until the client has read its replies
    backlog_bytes: cython.Py_ssize_t  # its part of EventLoop.backlog_bytes
    # its replies and requests wait until its changes are durable, or replicas have them
    awaiting_commit: Public[cython.bint]
    source: Public[Any]  # of a replica: fill() puts more to send into its buffer; None for other clients
    eof: cython.bint  # the client has closed its sending side
    closed: Public[cython.bint]

    def __init__(self, fd: cython.int, session: Session, tls: TlsConnection | None = None) -> None:
        self.fd = fd
        self.session = session
        self.tls = tls
        self.parser = RequestParser()
        self.watched = 0
        self.ready = False
        self.flush_scheduled = False
        self.throttled = False
        self.backlog_bytes = 0
        self.awaiting_commit = False
        self.source = None
        self.eof = False
        self.closed = False
