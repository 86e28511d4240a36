# The C face of entries.py.
from headrace.commands.read_options cimport Room
from headrace.resp.writer cimport Answer
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.stream cimport Stream
from headrace.structures.streamid cimport StreamId

cdef unsigned long long U64_MAX

cdef void answer_entry(Answer answer, StreamIterator entry)
cdef long long answer_entries(Answer answer, StreamIterator entries, long long count)
cdef void answer_parts(Answer answer, StreamIterator entry)
cdef long long answer_after(Answer answer, Stream stream, StreamId after, Room room)
cdef void answer_edge(Answer answer, Stream stream, bint reverse)
