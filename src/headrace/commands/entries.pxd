# The C face of entries.py.
from headrace.commands.read_options cimport Room
from headrace.resp.writer cimport Answer
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.node_walk cimport EntryWalk
from headrace.streams.stream cimport Stream
from headrace.structures.streamid cimport StreamId

cdef unsigned long long U64_MAX

cdef int answer_entry(Answer answer, StreamIterator entry) except -1
cdef long long answer_entries(Answer answer, StreamIterator entries, long long count)
cdef int answer_parts(Answer answer, StreamIterator entry) except -1
cdef long long answer_after(Answer answer, Stream stream, StreamId after, Room room)
cdef void answer_edge(Answer answer, Stream stream, bint reverse)
