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
    watched_events: Public[cython.uint]  # the epoll events that it is registered for
    has_ready_requests: cython.bint  # has requests to execute: it is in EventLoop.ready_connections
    flush_scheduled: cython.bint  # is in EventLoop.to_flush
    throttled: cython.bint  # its requests wait until the client has read its replies
    excess_buffer_bytes: cython.Py_ssize_t  # its part of EventLoop.excess_buffer_bytes
    # its replies and requests wait until its changes are durable, or replicas have them
    awaiting_commit: Public[cython.bint]
    # Of a replica: fill_output_buffer() puts more to send into its buffer; None for other clients.
    output_source: Public[Any]
    eof: cython.bint  # the client has closed its sending side
    closed: Public[cython.bint]

    def __init__(self, fd: cython.int, session: Session, tls: TlsConnection | None = None) -> None:
        self.fd = fd
        self.session = session
        self.tls = tls
        self.parser = RequestParser()
        self.watched_events = 0
        self.has_ready_requests = False
        self.flush_scheduled = False
        self.throttled = False
        self.excess_buffer_bytes = 0
        self.awaiting_commit = False
        self.output_source = None
        self.eof = False
        self.closed = False
