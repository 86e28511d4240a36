"""What a test sees of the producers that a stream remembers."""


def memory(talk, key="s"):
    """(producers, iids, added, duplicates) of a stream."""
    one = talk.engine.keyspace.databases[0].stream(key.encode()).idempotency
    return (
        (0, 0, 0, 0)
        if one is None
        else (one.producer_count(), one.iid_count(), one.added_count, one.duplicate_count)
    )


def length(talk):
    return talk("XLEN s")
