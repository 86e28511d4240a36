# The C face of pending.py.
from headrace.commands cimport arguments, members
from headrace.commands.call cimport Call
from headrace.resp.writer cimport Answer
from headrace.streams.consumer cimport Consumer
from headrace.streams.group cimport Group
from headrace.streams.pending cimport Pending
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cdef void answer_summary(Answer answer, Group group)
cdef void answer_list(Call call)
cdef void answer_from(Call call, Pending pending, Py_ssize_t slot, Consumer consumer, StreamId last,
                      long long min_idle, long long count)
