"""Commands on connections: AUTH, HELLO, CLIENT, transactions, pub/sub, MONITOR."""
