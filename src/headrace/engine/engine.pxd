# The C face of engine.py.
from headrace.commands.call cimport Call
from headrace.commands.channels cimport Channels
from headrace.commands.session cimport Session
from headrace.commands.spec cimport Command
from headrace.engine.clock cimport sooner
from headrace.engine.effects cimport Effects
from headrace.engine.gate cimport Gate
from headrace.engine.stats cimport Row, Stats
from headrace.engine.timing cimport Timing
from headrace.keyspace.blocking cimport Blocking, Turns, Waiter
from headrace.keyspace.keyspace cimport Keyspace
from headrace.keyspace.settings cimport Settings
from headrace.resp.writer cimport Answer
from headrace.streams.weight cimport Weight

cdef long long SWEEP_INTERVAL_MS


cdef class Engine:
    cdef readonly Keyspace keyspace
    cdef readonly object host
    cdef readonly dict clients
    cdef public list woken
    cdef public list dropped
    cdef readonly Channels channels
    cdef readonly dict scripts
    cdef readonly Gate gate
    cdef readonly object guard
    cdef readonly Effects effects
    cdef readonly Stats stats
    cdef readonly Timing timing
    cdef dict rows
    cdef bytes last_word
    cdef Row last_row
    cdef dict by_name
    cdef Call call
    cdef Call inner
    cdef Call waking
    cdef long long next_client
    cdef long long swept_ms

    cpdef void unwatch(self, Session session)
    cpdef void execute(self, Session session, list[bytes] argv, long long now_ms)
    cpdef void execute_queue(self, Session session, list[tuple[Row, list[bytes]]] queue)
    cdef void _run(self, Call call, Row row)
    cdef Row _look_closer(self, Session session, Row row, list[bytes] argv)
    cdef void _queue(self, Session session, Row row, list[bytes] argv)
    cdef void _reject(self, Session session, Row row, object refusal)
    cdef void _refuse(self, Session session, object refusal)
    cdef void _mute(self, Session session, Py_ssize_t mark)
    cdef void _serve_ready(self)
    cdef bint _try(self, Waiter waiter)
    cdef Call _call_for(self, Waiter waiter)
    cdef void _wake(self, Session session, Py_ssize_t mark)
    cdef void _stop_waiting(self, Session session)
    cdef void _time_out(self, Waiter waiter, object refusal)
    cpdef void tick(self, long long now_ms)
    cpdef long long next_deadline(self)
    cdef bint _forbidden(self, Session session, Row row, list[bytes] argv, bint queued)
    cdef bint _turn_away(self, Session session, Row row, list[bytes] argv)
    cdef bint _postpone(self, Session session, Row row, list[bytes] argv)
