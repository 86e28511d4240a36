# The C face of writer.py.
from headrace.keyspace.keyspace cimport Database, Keyspace
from headrace.keyspace.settings cimport Settings
from headrace.persistence.rdb.output cimport RdbOutput
from headrace.streams.stream cimport Stream

cdef unsigned char AUX
cdef unsigned char SIZE_HINT
cdef unsigned char EXPIRES_MS
cdef unsigned char DATABASE
cdef unsigned char END
cdef unsigned char STRING_TYPE
cdef long long IMMORTAL


cdef void _write_key(
    RdbOutput out, bytes key, object value, object version, long long now_ms, long long dies_at, Settings settings
)
