"""The effects of a turn, encoded once: the replicas and the log take the same bytes.

    effects   [ SET k 1 ] [ XADD s 1-0 f v ] [ XACK s g 1-0 ]  ...recorded meanwhile
              |-------------- count: encoded --------------|

              body_start
    bytes     | SELECT 0 | *3 $3 SET ... | *5 $4 XADD ... | *4 $4 XACK ... |
                                         ^ fed: the replicas have what is before
                                                                           ^ size

The bytes continue those of the last turn, so that they begin with a SELECT only if the database changes. The
log leaves this SELECT out or adds one, because it may have begun another file.

A signal handler may raise in any call made here. So what belongs together changes in one statement, at the
end, and the next call cuts off what an interrupted one has left.
"""

from __future__ import annotations

import cython

from headrace.persistence.aof.log_buffer import DatabaseRequest, LogBuffer
from headrace.visibility import Public


@cython.final
@cython.cclass
class EncodedEffects:
    """The first `count` effects of a turn, encoded. The first `fed_count` were fed to the replicas."""

    count: Public[cython.Py_ssize_t]
    fed_count: cython.Py_ssize_t
    fed_bytes: cython.Py_ssize_t  # bytes
    size: cython.Py_ssize_t
    _buffer: LogBuffer
    _body_start: cython.Py_ssize_t  # index of the first effect: after a SELECT, if there is one
    _database: cython.Py_ssize_t  # of the first effect

    def __init__(self) -> None:
        self._buffer = LogBuffer()
        self.count = self.fed_count = self.fed_bytes = self.size = 0
        self._body_start = self._database = 0

    @cython.ccall
    def encode(self, effects: list[DatabaseRequest]) -> cython.void:
        """Encode the effects of this turn that are not encoded yet."""
        buffer = self._buffer
        n: cython.Py_ssize_t = len(effects)
        if n == self.count:
            return
        if self.count == 0:
            if buffer.used != self.size:
                buffer.forget_database()  # what an interrupted call has left may end in another one
            buffer.clear()
            self.fed_count = self.fed_bytes = self.size = 0
            self._database = effects[0][0]
            buffer.select(self._database)
            self._body_start = buffer.used
            buffer.put_all(effects)
        else:
            if buffer.used != self.size:
                buffer.truncate(self.size)
            buffer.put_all(effects[self.count :])
        self.size, self.count = buffer.used, n

    @cython.ccall
    def has_unfed(self) -> cython.bint:
        """Return whether there are encoded effects that the replicas do not have."""
        return self.count > 0 and self.fed_bytes < self.size

    @cython.ccall
    def unfed_bytes(self) -> memoryview:
        """Return the bytes that the replicas do not have. Release the view before more is encoded."""
        return self._buffer.view()[self.fed_bytes : self.size]

    @cython.ccall
    def mark_fed(self) -> cython.void:
        """Count all bytes as fed: the replicas have them, or are not to get them."""
        self.fed_bytes, self.fed_count = self.size, self.count

    @cython.ccall
    def copy_to(self, log: LogBuffer) -> cython.void:
        """Append the bytes to the buffer of a log."""
        log.put_encoded(self._buffer, self._body_start, self._database)

    @cython.ccall
    def drop(self, effects: list[DatabaseRequest]) -> cython.void:
        """Clear the list of effects and drop their bytes: they are in the log, or there is no log."""
        effects[:], self.count = (), 0

    @cython.ccall
    def forget_database(self) -> cython.void:
        """Begin the next bytes with a SELECT, even if the database does not change."""
        self._buffer.forget_database()
