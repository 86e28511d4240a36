# The C face of encoder.py.
from headrace cimport mem
from headrace.arrow cimport columns as kinds
from headrace.arrow cimport field_names
from headrace.arrow.columns cimport Column
from headrace.arrow.field_names cimport FieldNames
from headrace.arrow.growing cimport Growing
from headrace.arrow.ipc cimport BatchMessage
from headrace.arrow.node_runs cimport NodeRuns
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.node cimport Node
from headrace.streams.node_walk cimport EntryWalk
from headrace.structures cimport listpack_walk

cdef long long ROWS_MAX
cdef Py_ssize_t WORK_MAX
cdef Py_ssize_t CELL_WORK
cdef Py_ssize_t CORRUPT_WORK
cdef Py_ssize_t FEW
cdef int PERMISSIVE
cdef int DROPMALFORMED
cdef int FAILFAST


cdef class RangeEncoder:
    cdef list columns
    cdef list named
    cdef dict by_name
    cdef Column ignored
    cdef Column fields
    cdef Column keys
    cdef Column items
    cdef Column corrupt
    cdef str stream
    cdef int mode
    cdef Node node
    cdef list bound
    cdef FieldNames names
    cdef FieldNames names_of_node
    cdef FieldNames names_of_entry
    cdef bint escape
    cdef Growing found_at
    cdef NodeRuns runs
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t dropped
    cdef readonly long long seen
    cdef Py_ssize_t work
    cdef readonly unsigned long long ms
    cdef readonly unsigned long long seq

    cpdef bint encode(self, StreamIterator entries, long long count) except -1
    cpdef bint pass_anchor(self, StreamIterator entries, unsigned long long ms, unsigned long long seq) except -1
    cpdef BatchMessage message(self)
    cpdef void close(self)
    cdef bint _take_run(self, StreamIterator entries, EntryWalk walk, long long count) except -1
    cdef Py_ssize_t _bind(self, Node node) except -1
    cdef Column _column_of(self, const unsigned char *p, Py_ssize_t at)
    cdef bint _append(self, EntryWalk walk, const unsigned char *p) except -1
    cdef Py_ssize_t _find(self, EntryWalk walk, const unsigned char *p) except -1
    cdef Py_ssize_t _find_named(self, EntryWalk walk, const unsigned char *p) except -1
    cdef bint _all_text(self, const unsigned char *p, Column column) except -1
    cdef bint _not_text(self, Column column, Py_ssize_t size) except -1
    cdef bint _malformed(self, Column column) except -1
    cdef str _id(self)
    cdef void _keep_corrupt(self, EntryWalk walk, Column column)
    cdef Py_ssize_t _write(self, const unsigned char *p) except -1
    cdef Py_ssize_t _write_pairs(self, const unsigned char *p, Column column) except -1
