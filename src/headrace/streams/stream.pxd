# The C face of stream.py.
from headrace cimport mem
from headrace.streams cimport node as nodes_of
from headrace.streams cimport weight as weights
from headrace.streams.compaction cimport Compaction
from headrace.streams.counting cimport Counting
from headrace.streams.group cimport Group
from headrace.streams.idempotency cimport Idempotency
from headrace.streams.node cimport Node
from headrace.streams.node_check cimport NodeCheck
from headrace.streams.node_walk cimport EntryWalk
from headrace.streams.weight cimport Weight
from headrace.structures cimport streamid
from headrace.structures.listpack cimport Listpack
from headrace.structures.rax cimport Rax
from headrace.structures.rax_walk cimport RaxCursor
from headrace.structures.streamid cimport StreamId


cdef class Stream:
    cdef readonly Weight weight
    cdef readonly Rax nodes
    cdef Node head
    cdef readonly Node tail
    cdef public unsigned long long length
    cdef public unsigned long long entries_added
    cdef public unsigned long long last_ms
    cdef public unsigned long long last_seq
    cdef public unsigned long long first_ms
    cdef public unsigned long long first_seq
    cdef public unsigned long long max_deleted_ms
    cdef public unsigned long long max_deleted_seq
    cdef readonly Counting counting
    cdef public Compaction compaction
    cdef dict groups_by_name
    cdef readonly Py_ssize_t group_count
    cdef readonly Idempotency idempotency
    cdef public long long idmp_duration_s
    cdef public long long idmp_maxsize

    cpdef void append(self, unsigned long long ms, unsigned long long seq, list[bytes] words, Py_ssize_t start,
                      long long node_bytes_max, long long node_entries_max)
    cpdef void load_node(self, bytes key, object data)
    cpdef bint delete(self, unsigned long long ms, unsigned long long seq) except -1
    cpdef void buried(self, Node node, long long n)
    cpdef void drop(self, Node node)
    cpdef void find_first(self)
    cpdef EntryWalk find(self, unsigned long long ms, unsigned long long seq)
    cpdef bint contains(self, unsigned long long ms, unsigned long long seq) except -1
    cpdef Node node_for(self, unsigned long long ms, unsigned long long seq)
    cpdef unsigned long long entries_before(self, Node node)
    cpdef Node first_node(self)
    cpdef StreamId last_id(self)
    cpdef StreamId first_id(self)
    cpdef StreamId max_deleted_id(self)
    cpdef StreamId last_entry_id(self)
    cpdef Group group(self, bytes name)
    cpdef Group make_group(self, bytes name, unsigned long long ms, unsigned long long seq, long long entries_read)
    cpdef bint drop_group(self, bytes name) except -1
    cpdef list[Group] groups(self)
    cpdef void remember(self, Idempotency idempotency)
    cpdef Stream copy(self)
    cpdef void check(self)
    cdef bint _first_is_next_of(self, EntryWalk walk) except -1
    cdef void _open(self, unsigned long long ms, unsigned long long seq, list[bytes] words, Py_ssize_t start,
                    Py_ssize_t raw)
    cdef void _close(self, Node tail)
