# The C face of connection.py.
from headrace.commands.arguments cimport Arguments, is_word, parse_i64
from headrace.commands.call cimport Call
from headrace.commands.session cimport Session
