# The C face of trim.py.
from headrace cimport mem
from headrace.streams cimport node as nodes_of
from headrace.streams cimport references
from headrace.streams.node cimport Node
from headrace.streams.node_walk cimport EntryWalk
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.rax_walk cimport RaxCursor
from headrace.structures.streamid cimport StreamId


cpdef long long trim_by_length(Stream stream, unsigned long long maxlen, bint approximate, long long limit,
                              int policy=*)
cpdef long long trim_by_id(Stream stream, unsigned long long ms, unsigned long long seq, bint approximate,
                           long long limit, int policy=*)
cdef long long _bury_oldest(Stream stream, Node node, long long n)
cdef long long _bury_before(Stream stream, Node node, unsigned long long ms, unsigned long long seq)
cdef long long _buried(Stream stream, Node node, long long n)
cdef long long _trim_by_policy(Stream stream, int policy, long long limit, bint by_id, unsigned long long maxlen,
                               unsigned long long ms, unsigned long long seq)
cdef bint _let_go(Stream stream, unsigned long long ms, unsigned long long seq, int policy) except -1
