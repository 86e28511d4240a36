# The C face of members.py.
from headrace.commands.call cimport Call
from headrace.streams.consumer cimport Consumer
from headrace.streams.group cimport Group
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid

cdef long long I64_MAX

cpdef Stream stream_of_group(Call call)
cpdef Consumer join(Call call, bytes key, Group group, bytes name)
cpdef Consumer see(Call call, bytes key, Group group, bytes name)
cpdef long long one_more(long long deliveries) noexcept
cpdef void record_claim(Call call, bytes key, Group group, Py_ssize_t slot, bytes word, bytes last)
cpdef void record_redelivery(Call call, bytes key, Group group, Py_ssize_t slot, list[bytes] ids)
cpdef void record_last_id(Call call, bytes key, Group group)
cpdef void record_consumer(Call call, bytes key, Group group, Consumer consumer)
