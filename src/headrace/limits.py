"""Limits on the input from clients, files and scripts: a constant for each, with the reason."""

# Redis's proto-max-bulk-len: no client sends more; a longer length means garbage.
BULK_BYTES_MAX = 512 * 1024 * 1024

# The most arguments of one request, as in Redis before 7.0; later ones accept 2^31 - 1. A list of short
# arguments takes several times as much memory as their bytes, and client-query-buffer-limit counts only the
# bytes. The list grows only as arguments arrive.
REQUEST_ARGUMENTS_MAX = 1024 * 1024

# An inline request or a `*3\r\n` line longer than this is not the protocol.
INLINE_BYTES_MAX = 64 * 1024

# Redis's client-query-buffer-limit: the bytes one connection may have sent that are not executed yet.
QUERY_BYTES_MAX = 1024 * 1024 * 1024

# Limits for a client that is not authenticated yet: AUTH and HELLO need no more and no longer arguments.
# (The number of arguments is Redis's, which allows 16 KiB for each of them.) The third is how much of an
# incomplete request is kept for such a client.
UNAUTHENTICATED_ARGUMENTS_MAX = 10
UNAUTHENTICATED_ARGUMENT_BYTES_MAX = 3 * 1024
UNAUTHENTICATED_REQUEST_BYTES_MAX = 4 * 1024

# The reply bytes that such a client may leave unread.
UNAUTHENTICATED_UNSENT_BYTES_MAX = 4 * 1024

# Redis's limit on the field and value bytes of one entry: a listpack offset must fit 32 bits.
ENTRY_BYTES_MAX = 1 << 30

# The decimal text of an ID never needs more than 41 bytes; Redis rejects more than 127.
ID_TEXT_MAX = 127

# Replies nest four or five deep (XINFO STREAM FULL); more is an attempt to overflow the stack.
REPLY_DEPTH_MAX = 64

# A client with this much unread gets no further requests executed until it reads; one reply may be longer.
UNSENT_BYTES_MAX = 1024 * 1024

# What all clients together may have beyond that: unread replies, and requests that wait for them. A client
# that sends a whole pipeline before it reads the first reply would otherwise wait for ever. Each may use as
# much as half of what is free, so that a few that never read leave enough for the others.
UNSENT_BYTES_OF_ALL_MAX = 128 * 1024 * 1024

# The unsent replies of one client, including those of one request or transaction. Beyond this they are
# dropped and the client is closed. A hard client-output-buffer-limit replaces it. Strings may be longer.
REPLY_BYTES_MAX = 256 * 1024 * 1024

# The bytes that a blocked client may send ahead; further bytes stay in its socket until it is unblocked.
BLOCKED_CLIENT_BUFFER_BYTES_MAX = 64 * 1024

# A listpack stores its size in 32 bits, and no other stored string comes near that.
RDB_STRING_BYTES_MAX = (1 << 32) - 1

# A key's memory in a dictionary: hash, key and value, at an average load of two thirds, and an index.
KEY_OVERHEAD_BYTES = 24 * 3 // 2 + 8

# An expiry takes a slot in another dictionary, a number, 32 bytes in blocks that double, a slot of a list.
KEY_TTL_OVERHEAD_BYTES = KEY_OVERHEAD_BYTES + 32 + 32 * 3 // 2 + 8

# The bytes of all keys that are remembered for clients with tracking enabled, and the prefixes that one of
# them may have: a change looks up the prefixes of its key, and those of one client are compared pairwise.
TRACKED_KEYS_BYTES_MAX = 256 * 1024 * 1024
TRACKED_PREFIXES_MAX = 1000

# The selectors of one user, which are compared with each of its requests. One takes about 17 kB.
SELECTORS_MAX = 1000

# The most characters of a glob segment between two stars that has `?` or classes. Matching it takes a 64th of
# this many steps per byte.
GLOB_SEGMENT_MAX = 1024

# PUBLISH compares its channel with each pattern: the length of the channel times the number of patterns. A
# step takes some nanoseconds, so other clients wait for a tenth of a second at most.
PATTERN_STEPS_MAX = 16 * 1024 * 1024

# INFO errorstats counts replies by error code. Clients can make up codes (DEBUG ERROR): further codes, and
# longer ones, have no counter of their own.
ERROR_CODES_MAX = 128
ERROR_CODE_BYTES_MAX = 64
# What scripts may hold in Lua: a script that has more is ended. One allocation may pass it by the second.
SCRIPT_MEMORY_BYTES_MAX = 128 * 1024 * 1024
SCRIPT_MEMORY_MARGIN_BYTES = 128 * 1024 * 1024

# The reply of one command to a script.
SCRIPT_REPLY_BYTES_MAX = 64 * 1024 * 1024

# The requests whose effects a script records, which go to the log and the replicas when it ends.
SCRIPT_RECORDED_BYTES_MAX = 1024 * 1024 * 1024

# What a running script has published and is not delivered yet: messages, and their bytes.
SCRIPT_MESSAGES_MAX = 1024
SCRIPT_MESSAGE_BYTES_MAX = 1024 * 1024

# The texts of loaded scripts together; and how many of those that only EVAL has brought are kept.
# One text: the time of its compilation cannot be limited otherwise.
SCRIPT_BYTES_MAX = 4 * 1024 * 1024
# One that must be translated to LuaJIT's dialect, which takes a second for two megabytes; and the line `#!`.
TRANSLATED_SCRIPT_BYTES_MAX = 512 * 1024
SCRIPT_FIRST_LINE_BYTES_MAX = 4096
ALL_SCRIPTS_BYTES_MAX = 32 * 1024 * 1024
EVAL_SCRIPTS_MAX = 500

# The lengths of the two strings of LCS, each plus one, multiplied: as in Redis with the default
# proto-max-bulk-len. LCS takes a bit for each, and four bytes for each byte of the second string.
LCS_CELLS_MAX = 512 * 1024 * 1024 // 4
