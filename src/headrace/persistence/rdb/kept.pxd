# The C face of kept.py.
from headrace.persistence.rdb.input cimport RdbInput
from headrace.persistence.rdb.output cimport RdbOutput
from headrace.streams.consumer cimport Consumer
from headrace.streams.group cimport Group
from headrace.streams.pending cimport Pending
from headrace.streams.stream cimport Stream

cpdef list unordered(Pending pending)
