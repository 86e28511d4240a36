# The C face of keys.py.
from headrace.commands.call cimport Call
from headrace.keyspace cimport keyspace
from headrace.keyspace.keyspace cimport Database
