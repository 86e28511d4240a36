"""The sink: Arrow record batches to XADD requests, and their delivery."""
