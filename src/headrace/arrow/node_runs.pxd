# The C face of node_runs.py.
from headrace cimport mem
from headrace.arrow cimport column_runs
from headrace.arrow cimport columns as kinds
from headrace.arrow.column_runs cimport ColumnRuns
from headrace.arrow.columns cimport Column
from headrace.arrow.growing cimport Growing
from headrace.streams.node cimport Node
from headrace.structures cimport listpack_walk, streamid

cdef long long SAME_FIELDS
cdef Py_ssize_t RUN_MIN
cdef Py_ssize_t CELL_WORK


cdef class NodeRuns(ColumnRuns):
    cdef Growing key_bytes
    cdef Growing key_ends
    cdef Growing marks
    cdef Py_ssize_t pairs
    cdef bint fits
    cdef Py_ssize_t end
    cdef unsigned long long ms
    cdef unsigned long long seq
    cdef Py_ssize_t work

    cdef bint bind(self, list[Column] bound, Column texts, bint are_text) except -1
    cdef Py_ssize_t append(self, Node node, Py_ssize_t at, Py_ssize_t row, long long rows_max, Py_ssize_t work_max,
                           unsigned long long to_ms, unsigned long long to_seq) except -1
    cdef Py_ssize_t _row_work(self) noexcept
    cdef Py_ssize_t _mark_at(self, Py_ssize_t i, Py_ssize_t j) noexcept
    cdef Py_ssize_t _mark(self, Node node, const unsigned char *p, Py_ssize_t at, Py_ssize_t most,
                          Py_ssize_t work_max, unsigned long long to_ms, unsigned long long to_seq) except -1
    cdef Py_ssize_t _append_values(self, const unsigned char *p, Py_ssize_t rows, Column column) except -1
    cdef Py_ssize_t _append_ids(self, Py_ssize_t rows, Column column) except -1
    cdef Py_ssize_t _append_numbers(self, const unsigned char *p, Py_ssize_t rows, Column column) except -1
    cdef Py_ssize_t _append_texts(self, const unsigned char *p, Py_ssize_t rows, Column column) except -1
    cdef Py_ssize_t _append_maps(self, const unsigned char *p, Py_ssize_t rows, Column column) except -1
    cdef Py_ssize_t _append_keys(self, Py_ssize_t rows) except -1


cdef Py_ssize_t _after(const unsigned char *p, Py_ssize_t at) noexcept
cdef bint _put_element(Growing values, const unsigned char *p, Py_ssize_t at, bint checked) except -1
