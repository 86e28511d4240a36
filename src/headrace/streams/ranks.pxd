# The C face of ranks.py.
from headrace cimport mem
from headrace.streams.group cimport Group
from headrace.streams.node cimport Node
from headrace.streams.node_walk cimport EntryWalk
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid


cpdef unsigned long long rank(Stream stream, unsigned long long ms, unsigned long long seq)
cpdef unsigned long long count(Stream stream, unsigned long long from_ms, unsigned long long from_seq,
                               unsigned long long to_ms, unsigned long long to_seq)
cpdef unsigned long long lag(Stream stream, Group group)
