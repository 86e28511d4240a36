# The C face of count.py.
from headrace cimport mem
from headrace.commands cimport members
from headrace.commands.call cimport Call
from headrace.streams cimport ranks
from headrace.streams.group cimport Group
from headrace.streams.stream cimport Stream
from headrace.structures cimport streamid
from headrace.structures.streamid cimport StreamId
