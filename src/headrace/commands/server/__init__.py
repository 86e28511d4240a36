"""Commands for operators: ACL, CONFIG, INFO, LATENCY, SLOWLOG, snapshots, scripts."""
