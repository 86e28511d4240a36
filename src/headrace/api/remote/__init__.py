"""The backend elsewhere: a server, Sentinels or a cluster, through redis-py."""
