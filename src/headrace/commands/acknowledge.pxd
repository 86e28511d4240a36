# The C face of acknowledge.py.
from headrace.commands cimport delete
from headrace.commands.call cimport Call
from headrace.commands.delete cimport Removal
from headrace.streams cimport references
from headrace.streams.group cimport Group
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId

cpdef Group group_or_none(Call call)
