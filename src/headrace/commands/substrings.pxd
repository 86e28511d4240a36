# The C face of substrings.py.
from headrace.commands cimport arguments, strings
from headrace.commands.call cimport Call
from headrace.keyspace.keyspace cimport Database
