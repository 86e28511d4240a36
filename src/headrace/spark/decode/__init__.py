"""Convert replies to Arrow record batches: the decoder, schemas, nested values."""
