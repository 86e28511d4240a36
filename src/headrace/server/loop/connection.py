"""One client's connection: its descriptor, its requests on their way in, its session."""

from __future__ import annotations

import cython

from headrace.commands.session import Session
from headrace.resp.parser import RequestParser
from headrace.server.loop.tls_connection import Secure


@cython.final
@cython.cclass
class Connection:
    """What the turn knows of a client. Idle, it holds no block of memory worth mentioning."""

    fd: cython.int
    session: Session
    parser: RequestParser
    secure: Secure | None  # what stands between the descriptor and the requests; None: nothing
    watched: cython.uint  # the events epoll reports of it
    ready: cython.bint  # has requests to execute: it stands in the turn's list of those
    answered: cython.bint  # has something to send or to decide: it stands in the turn's list of those
    halted: cython.bint  # has requests, but executing them waits until its answers have been read
    held: cython.bint  # its answer waits until what it tells of is safe, and so does all else
    ended: cython.bint  # the client has sent its last byte
    closed: cython.bint

    def __init__(self, fd: cython.int, session: Session, secure: Secure | None = None) -> None:
        self.fd = fd
        self.session = session
        self.secure = secure
        self.parser = RequestParser()
        self.watched = 0
        self.ready = False
        self.answered = False
        self.halted = False
        self.held = False
        self.ended = False
        self.closed = False
