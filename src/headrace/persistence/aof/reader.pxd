# The C face of reader.py.
from headrace cimport mem
from headrace.resp.inbox cimport Inbox

cdef Py_ssize_t NOTE_MAX
cdef Py_ssize_t DIGITS_MAX
cdef unsigned char CR
cdef unsigned char LF
cdef unsigned char ARRAY
cdef unsigned char BULK
cdef unsigned char NOTE
cdef long long NONE


cdef class LogReader(Inbox):
    cdef object source
    cdef str name
    cdef object execute
    cdef object progress
    cdef long long size
    cdef long long fed
    cdef long long valid
    cdef long long begin
    cdef list words
    cdef long long left
    cdef bint past_end
    cdef long long multi_at
    cdef list held
    cdef long long records
    cdef long long commands
    cdef long long failed
    cdef long long first_failed
    cdef bytes refusal

    cdef bint _read_more(self)
    cdef long long _here(self) noexcept
    cdef list[bytes] _record(self)
    cdef bint _begin_record(self)
    cdef bytes _word(self)
    cdef long long _number(self)
    cdef void _accept(self, list[bytes] words)
    cdef void _begin_transaction(self)
    cdef void _end_transaction(self)
    cdef void _play(self, long long offset, list[bytes] words)
    cdef object _damaged(self, str what)
    cdef str _found(self)
