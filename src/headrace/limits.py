"""Every limit on what comes from outside: a constant and its reason."""

# Redis's proto-max-bulk-len: no client sends more, and a longer length is a sign of garbage.
BULK_BYTES_MAX = 512 * 1024 * 1024

# One request may hold this many words, as in Redis before 7.0, which takes 2^31 - 1: a list of short words
# takes several times as much memory as their bytes, and these are what client-query-buffer-limit counts. It
# grows only as words arrive.
WORDS_MAX = 1024 * 1024

# An inline request or a `*3\r\n` line longer than this is not the protocol.
INLINE_BYTES_MAX = 64 * 1024

# Redis's client-query-buffer-limit: what one connection may have sent and not yet been served.
QUERY_BYTES_MAX = 1024 * 1024 * 1024

# What a client may send that has yet to say who it is: AUTH and HELLO need no more words, and no longer ones.
# (The number is Redis's. Its words are of 16 KiB, and it keeps ten of them for whoever asks.) The third is
# what of a request that has not wholly arrived is kept of such a client.
STRANGER_WORDS_MAX = 10
STRANGER_WORD_BYTES_MAX = 3 * 1024
STRANGER_BYTES_MAX = 4 * 1024

# What such a client may leave unread of what it is answered.
STRANGER_UNSENT_BYTES_MAX = 4 * 1024

# Redis's limit on the field and value bytes of one entry: a listpack offset must fit 32 bits.
ENTRY_BYTES_MAX = 1 << 30

# The decimal text of an ID never needs more than 41 bytes; Redis refuses past 127.
ID_TEXT_MAX = 127

# Replies nest four or five deep (XINFO STREAM FULL); more is a stack somebody wants to see overflow.
REPLY_DEPTH_MAX = 64

# A client with this much unread gets no further requests executed until it reads; one answer may be longer.
UNSENT_BYTES_MAX = 1024 * 1024

# Replies of one client that are not sent yet, those of one request or transaction included. Beyond this they
# are dropped and the client is closed. A hard client-output-buffer-limit replaces it. Strings may be longer.
REPLY_BYTES_MAX = 256 * 1024 * 1024

# What a blocked client may send ahead; further bytes stay in its socket until it is served.
AHEAD_BYTES_MAX = 64 * 1024

# A listpack says its size in 32 bits, and nothing else that is stored as one string comes near that.
RDB_STRING_BYTES_MAX = (1 << 32) - 1

# A key's place in a dictionary: hash, key and value, at the two thirds it is full on average, and an index.
KEY_PLACE_BYTES = 24 * 3 // 2 + 8

# To know when a key dies takes a place in another dictionary, the time, and a pair and its place in a heap.
KEY_TIME_BYTES = KEY_PLACE_BYTES + 32 + 80 + 8

# A glob segment between two stars, with `?` or classes in it, is found in so many steps a byte divided by 64.
GLOB_SEGMENT_MAX = 1024
