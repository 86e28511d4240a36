# The C face of info.py.
from headrace cimport mem
from headrace.commands cimport arguments, entries
from headrace.commands.call cimport Call
from headrace.resp.writer cimport Answer
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.stream cimport Stream

cdef unsigned long long U64_MAX
cdef long long FULL_COUNT

cdef Stream existing_stream(Call call)
cdef long long parse_full(list[bytes] argv)
cdef void answer_counters(Answer answer, Stream stream)
