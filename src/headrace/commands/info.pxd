# The C face of info.py.
from headrace cimport mem
from headrace.commands cimport arguments, entries
from headrace.commands.call cimport Call
from headrace.resp.writer cimport Answer
from headrace.streams cimport delivery
from headrace.streams.consumer cimport Consumer
from headrace.streams.group cimport Group
from headrace.streams.idempotency cimport Idempotency
from headrace.streams.iterator cimport StreamIterator
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream

cdef unsigned long long U64_MAX
cdef long long FULL_COUNT

cdef Stream existing_stream(Call call)
cdef long long parse_full(list[bytes] argv)
cdef void answer_counters(Answer answer, Stream stream)
cdef void answer_progress(Answer answer, Stream stream, Group group)
cdef void answer_group(Answer answer, Stream stream, Group group, long long count)
cdef void answer_consumer(Answer answer, Pending pending, Consumer consumer, long long count)
