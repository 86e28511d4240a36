# The C face of turn.py.
from headrace.commands.session cimport Session
from headrace.engine.clock cimport RealClock
from headrace.engine.engine cimport Engine
from headrace.resp.parser cimport RequestParser
from headrace.resp.spare cimport Spare
from headrace.resp.writer cimport Answer
from headrace.server cimport descriptors
from headrace.server.client_limits cimport Unread
from headrace.server.connection cimport Connection
from headrace.server.handshakes cimport Handshakes

cdef Py_ssize_t READ_BYTES
cdef Py_ssize_t SHARE_BYTES
cdef Py_ssize_t REQUESTS_MAX
cdef Py_ssize_t REQUESTS_OF_ALL
cdef Py_ssize_t UNSENT_MAX
cdef Py_ssize_t STRANGER_MAX
cdef Py_ssize_t AHEAD_MAX
cdef Py_ssize_t EVENTS_MAX
cdef long long WAIT_MAX_MS
cdef unsigned int IN
cdef unsigned int OUT
cdef unsigned int GONE


cdef class Turn:
    cdef readonly Engine engine
    cdef readonly RealClock clock
    cdef readonly object clock_watch
    cdef public object commit
    cdef public bint unsettled
    cdef long long rests_from
    cdef long long rests_until
    cdef bint interrupted
    cdef public long long bulk_max
    cdef public long long query_max
    cdef readonly Unread unread
    cdef public long long received
    cdef public long long sent
    cdef object poller
    cdef int poll_fd
    cdef bytearray events
    cdef unsigned char *events_p
    cdef dict handlers
    cdef readonly dict connections
    cdef readonly Handshakes handshakes
    cdef list ready
    cdef list answered
    cdef readonly list held
    cdef Spare spare_inbox
    cdef Spare spare_answer
    cdef bytearray scratch
    cdef unsigned char *p

    cpdef void rest(self, long long since, long long until)
    cpdef void hurry(self)
    cpdef void interrupt(self)
    cpdef void once(self, long long timeout_ms)
    cdef int _patience(self, long long most_ms, long long deadline)
    cdef void _hear_of(self, int fd, unsigned int what)
    cdef void _hear(self, Connection connection, unsigned int what)
    cdef void _read(self, Connection connection)
    cdef void _execute(self, long long now)
    cdef void _execute_of(self, Connection connection, long long now, Py_ssize_t left)
    cdef void _serve_woken(self)
    cdef void _touch(self, Connection connection)
    cdef void _send_answers(self)
    cdef void _hold_answers(self, long long offset)
    cdef void _flush(self, Connection connection)
    cdef void _watch(self, Connection connection)
    cpdef void refuse(self, Connection connection, str reason)
    cpdef void drop(self, Connection connection)
