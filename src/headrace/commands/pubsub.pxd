# The C face of pubsub.py.
from headrace.commands.call cimport Call
from headrace.commands.channels cimport Channels
from headrace.commands.session cimport Session
from headrace.keyspace cimport scan


cdef void confirm(Call call, bytes kind, bytes name)
