# The C face of delete.py.
from headrace.commands.call cimport Call
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId
